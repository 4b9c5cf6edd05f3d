#!/usr/bin/env python3
"""Installs a release into clean roots and uses it: `make release` runs this on what it has written.

tests/packaging/release_test.py build/release-VERSION      (as root: it changes the root directory of what it starts)
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

RELEASE = pathlib.Path()
PATIENCE = 600  # seconds until what must come counts as never coming: the machine may be busy with other things
PNG = b"\x89PNG"
# Paths in the root of the installed package, without the first slash.
UNIT = "usr/lib/systemd/system/runnel.service"
PICTURE = "tmp/digits.png"
# Notes what it is asked to do.
SYSTEMCTL = """#!/bin/sh
echo "$@" >>"$DPKG_ROOT/asked"
"""


def run(*command: object, **options: object) -> str:
    """The output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def only(pattern: str) -> pathlib.Path:
    """The one file of the release with such a name."""
    (found,) = RELEASE.glob(pattern)
    return found


def make_root(root: pathlib.Path, program: pathlib.Path) -> None:
    """A root with the C library and a database of packages that says nothing else."""
    for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pathlib.Path(library).resolve(), target)
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "tmp", "dev"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()


def dpkg(root: pathlib.Path, *words: object) -> str:
    # The root has no package of the C library, and no shell for the package's scripts.
    return run("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", "--log=/dev/null", *words)


def files_of(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def ready_address(log: pathlib.Path) -> str:
    """The address that a starting server logs once it is ready."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ready = re.search(r" ready .*address=(\S+)", log.read_text())
        if ready:
            return ready[1]
        time.sleep(0.1)
    raise AssertionError("the server did not start:\n" + log.read_text())


class Release(unittest.TestCase):
    def test_checksums_cover_every_file(self):
        lines = (RELEASE / "SHA256SUMS").read_text().splitlines()
        sums = {line[66:]: line[:64] for line in lines}
        self.assertEqual(set(sums), {path.name for path in RELEASE.iterdir()} - {"SHA256SUMS"})
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((RELEASE / name).read_bytes()).hexdigest(), digest, name)

    def test_the_program_needs_only_the_c_library(self):
        libraries = run("ldd", only("runnel-*-linux-*"))
        names = set(re.findall(r"^\s*(\S+) =>", libraries, re.MULTILINE))
        self.assertLessEqual(names, {"libc.so.6", "libm.so.6"})

    def test_the_bill_of_materials_names_linked_packages(self):
        bill = json.loads(only("*.spdx.json").read_text())
        names = {package["name"] for package in bill["packages"]}
        self.assertLessEqual({"runnel", "libgrpc++-dev", "libssl-dev"}, names)
        links = [link["referenceLocator"] for package in bill["packages"] for link in package.get("externalRefs", [])]
        self.assertIn("pkg:deb/debian/libgrpc%2B%2B-dev", [link.partition("@")[0] for link in links])
        known = {package["SPDXID"] for package in bill["packages"]} | {"SPDXRef-DOCUMENT"}
        for link in bill["relationships"]:
            self.assertIn(link["relatedSpdxElement"], known)

    def test_the_python_package_installs_into_a_clean_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            # numpy and grpcio come from the system: the test needs no network.
            run("/usr/bin/python3", "-m", "venv", "--system-site-packages", f"{folder}/venv")
            run(f"{folder}/venv/bin/pip", "install", "-q", "--no-deps", "--no-index", only("*.whl"))
            code = "import runnel_client; print(runnel_client.__version__)"
            version = run(f"{folder}/venv/bin/python3", "-c", code, cwd=folder).strip()
            self.assertEqual(version, RELEASE.name.removeprefix("release-"))


class Package(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="runnel_root_")
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        make_root(self.root, only("runnel-*-linux-*"))
        self.before = files_of(self.root)
        dpkg(self.root, "--install", only("*.deb"))

    def test_purging_leaves_nothing(self):
        self.assertIn("etc/runnel/serve.json", files_of(self.root))
        dpkg(self.root, "--purge", "runnel")
        left = {name for name in files_of(self.root) - self.before if not name.startswith("var/lib/dpkg/")}
        self.assertEqual(left, set())
        self.assertFalse((self.root / "etc/runnel").exists())

    def test_removing_keeps_the_settings(self):
        (self.root / "etc/runnel/serve.json").write_text("{}")
        dpkg(self.root, "--remove", "runnel")
        self.assertEqual((self.root / "etc/runnel/serve.json").read_text(), "{}")
        self.assertFalse((self.root / "usr/bin/runnel").exists())

    def test_a_service_that_was_removed_is_started_when_it_is_installed_again(self):
        tools = self.root / "tools"
        tools.mkdir()
        (tools / "systemctl").write_text(SYSTEMCTL)
        (tools / "systemctl").chmod(0o755)
        (self.root / "run/systemd/system").mkdir(parents=True)
        path = os.environ["PATH"]
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{tools}:{path}"}):
            dpkg(self.root, "--remove", "runnel")
            dpkg(self.root, "--install", only("*.deb"))
            dpkg(self.root, "--install", only("*.deb"))  # an upgrade
        asked = [line for line in (self.root / "asked").read_text().splitlines() if line != "daemon-reload"]
        expected = ["is-enabled --quiet", "disable --now", "enable --now", "try-restart"]
        self.assertEqual(asked, [f"{words} runnel.service" for words in expected])

    def test_the_unit_starts_the_installed_program(self):
        unit = (self.root / UNIT).read_text()
        for command in re.findall(r"^Exec\w+=(\S+)", unit, re.MULTILINE):
            if command.startswith("/usr/bin/"):
                self.assertTrue((self.root / command.lstrip("/")).exists(), command)
        if shutil.which("systemd-analyze"):
            path = self.root / UNIT
            # Its programs and its manual page are looked for on this machine.
            done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
            here = re.compile(r"/usr/bin/|Command 'man ")
            faults = [line for line in done.stderr.splitlines() if "runnel.service" in line and not here.search(line)]
            self.assertEqual(faults, [])

    def test_the_units_command_serves_a_picture(self):
        unit = (self.root / UNIT).read_text()
        match = re.search(r"^ExecStart=(.+)$", unit, re.MULTILINE)
        assert match is not None
        own = ["--address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--sessions", "4"]
        log = self.root / "log"
        with log.open("w") as file:
            server = subprocess.Popen(["chroot", self.root, *match.group(1).split(), *own], stderr=file)
        try:
            client = ["chroot", self.root, "/usr/bin/runnel"]
            address = ["--server", ready_address(log)]
            run(*client, "health", "--wait", str(PATIENCE), *address)
            picture = ["--count", "2", "--out", f"/{PICTURE}"]  # the client sees self.root as its root
            run(*client, "generate", "--model", "mnist-small", *picture, *address)
            self.assertEqual((self.root / PICTURE).read_bytes()[:4], PNG)
            run(*client, "generate", "--model", "text-small", "--max-values", "20", "--prompt", "The ", *address)
        finally:
            server.terminate()
            server.wait(PATIENCE)
        self.assertEqual(server.returncode, 0, log.read_text())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RELEASE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
