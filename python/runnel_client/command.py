"""What the command-line tools share: flags, one-line errors, and the fix for a package that is missing.

Imports only the standard library, so that a tool can still report an error if numpy is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from runnel_client.errors import BundleError, RunnelError

# Debian's packages for each extra of pyproject.toml; "" is the package without extras.
DEBIAN = {
    "": "python3-numpy python3-grpcio python3-protobuf",
    "pictures": "python3-numpy python3-grpcio python3-protobuf python3-pil",
    "convert": "python3-numpy python3-torch",
    "train": "python3-numpy python3-torch python3-pil python3-grpcio python3-protobuf",
    "bench": "python3-numpy python3-torch libopenblas0-openmp python3-matplotlib python3-grpcio python3-protobuf",
}


class Parser(argparse.ArgumentParser):
    """Raises BundleError for a wrong flag, as for every other wrong input."""

    def __init__(self, prog: str, description: str | None, examples: str):
        super().__init__(
            prog=prog,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise BundleError(f"{message} (see {self.prog} --help)")


def run(
    program: str,
    tool: Callable[[Sequence[str] | None], object],
    argv: Sequence[str] | None,
    interrupted: str = "interrupted",
) -> int:
    """The exit status of tool(argv): what it returns, 0 for None, or after one line on stderr 2 for an error, and 130
    for Ctrl-C, which says `interrupted`."""
    try:
        status = tool(argv)
    except RunnelError as error:
        print(f"{program}: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{program}: {interrupted}", file=sys.stderr)
        return 130
    return status if isinstance(status, int) else 0


def printable(text: str) -> str:
    """A text as one line. A file may give its tensors names that would control a terminal: these are escaped."""
    line = " ".join(text.split())
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def missing(error: ImportError, extra: str = "") -> BundleError:
    """The error for a failed import: which module is missing, and what installs it for this interpreter."""
    if error.name is None or error.name.split(".")[0] == "runnel_client":
        raise error
    return BundleError(f"{sys.executable} has no module '{error.name}'; install it with: {remedy(extra)}")


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """If an import in the block fails, raises an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(str(missing(error)), name=error.name) from None


def exit_missing(program: str, error: ImportError, extra: str = "") -> NoReturn:
    """Ends a program whose imports failed, with status 2."""
    print(f"{program}: error: {missing(error, extra)}", file=sys.stderr)
    sys.exit(2)


def remedy(extra: str) -> str:
    """A shell command that installs what an extra needs, in a way that this interpreter allows."""
    if sys.prefix == "/usr" and os.path.exists("/etc/debian_version"):
        return f"sudo apt install {DEBIAN[extra]}"
    python, package = sys.executable, requirement(extra)
    managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if sys.prefix == sys.base_prefix and os.path.exists(managed):
        return f"{python} -m venv .venv && .venv/bin/python -m pip install {package}"
    return f"{python} -m pip install {package}"


def requirement(extra: str) -> str:
    """The name of this package for pip: its folder, if it runs from a checkout."""
    folder = pathlib.Path(__file__).resolve().parents[1]
    name = "runnel-client"
    if (folder / "pyproject.toml").exists():
        name = os.path.relpath(folder)
        name = name if name.startswith(".") else f"./{name}"
    return f"'{name}[{extra}]'" if extra else name
