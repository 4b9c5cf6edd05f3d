"""State files on disk."""

from __future__ import annotations

import os
import pathlib
import tempfile


def read(path: str | os.PathLike[str]) -> bytes:
    return pathlib.Path(path).read_bytes()


def write_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file that only its owner may read, as a whole or not at all."""
    target = pathlib.Path(path)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise
