#!/usr/bin/env python3
"""What can break in docker/ without anyone building the image: `make image` does that, and takes minutes.

tests/docker/image_test.py build/release/runnel
"""

import json
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from server_memory import most_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMPOSE = [(ROOT / "docker" / name).read_text() for name in ("compose.yaml", "compose-tls.yaml")]
HAPROXY = (ROOT / "docker" / "haproxy.cfg").read_text()
IMAGE = (ROOT / "docker" / "image").read_text()
DEPLOY = "".join((ROOT / "docs" / name).read_text() for name in ("tls.md", "deploy.md"))
RUNNEL = ""


def output(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command}: exit {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def context():
    """The paths that .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!")]


def copy_context(to):
    for path in context():
        source, target = ROOT / path, to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def arguments(text):
    """The words of a list, as the Dockerfile (JSON) and compose.yaml (bare words) have them."""
    return [word.strip().strip('"') for word in text.strip().strip("[]").split(",")]


def setting(words, flag, default):
    return int(words[words.index(flag) + 1]) if flag in words else default


def flags_of_serve():
    return set(re.findall(r"--[a-z-]+", output(RUNNEL, "serve", "--help")))


def server_in(compose):
    """The words of `runnel serve` in a compose file."""
    return arguments(re.search(r"command: (\[serve.*\])", compose).group(1))


class Context(unittest.TestCase):
    def test_the_build_context_can_be_configured(self):
        # CMake misses every folder and file that its lists name and the context lacks.
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory)
            copy_context(folder / "source")
            output(
                "cmake",
                "-G",
                "Ninja",
                "-S",
                folder / "source",
                "-B",
                folder / "build",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DRUNNEL_STATIC=ON",
                "-DRUNNEL_TESTS=OFF",
            )
            link = (folder / "build" / "build.ninja").read_text()
        libraries = re.search(r"build runnel: .*?LINK_LIBRARIES = (.*?)\n", link, re.DOTALL).group(1)
        self.assertEqual([word for word in libraries.split() if ".so" in word], [])
        self.assertIn("libgrpc++.a", libraries)

    def test_the_build_context_has_only_listed_paths(self):
        self.assertEqual((ROOT / ".dockerignore").read_text().splitlines()[1], "*")
        for path in context():
            self.assertTrue((ROOT / path).exists(), path)

    def test_the_build_context_has_all_paths_that_the_dockerfile_names(self):
        for path in re.findall(r"(?:scripts/setup|docker/rootfs|zoo/[\w-]+)", DOCKERFILE):
            self.assertTrue(any(path == p or path.startswith(p + "/") for p in context()), path)


class RootFileSystem(unittest.TestCase):
    root: pathlib.Path

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name) / "root"
        output(ROOT / "docker" / "rootfs", RUNNEL, ROOT / "zoo" / "mnist-small", cls.root)

    def test_the_program_runs_on_its_libraries_alone(self):
        loader = next(p for p in self.root.rglob("ld-linux*") if p.is_file())
        folders = ":".join(sorted({str(p.parent) for p in self.root.rglob("*.so*")}))
        command = [loader, "--inhibit-cache", "--library-path", folders, self.root / "usr/bin/runnel"]
        self.assertIn("813", output(*command, "info", self.root / "zoo" / "mnist-small"))
        used = re.findall(
            r"=> (/\S+)",
            output(loader, "--inhibit-cache", "--library-path", folders, "--list", self.root / "usr/bin/runnel"),
        )
        self.assertEqual([path for path in used if not path.startswith(str(self.root))], [])

    def test_any_user_can_read_it_and_only_root_can_write(self):
        for path in self.root.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            self.assertEqual(mode & 0o444, 0o444, path)
            self.assertEqual(mode & 0o022, 0, path)

    def test_the_image_has_the_licences(self):
        names = " ".join(path.name for path in self.root.rglob("*.copyright"))
        for package in ("libc6", "libgrpc++-dev", "libprotobuf-dev", "libssl-dev"):
            self.assertIn(package, names)
        licence = (self.root / "usr/share/doc/runnel/LICENSE").read_text()
        self.assertIn("Apache License", licence)
        self.assertIn('org.opencontainers.image.licenses="Apache-2.0"', DOCKERFILE)


class Promises(unittest.TestCase):
    def test_the_image_is_run_by_a_user_without_rights(self):
        self.assertRegex(DOCKERFILE, r"\nUSER [1-9]\d*:[1-9]\d*\n")
        self.assertIn("\nSTOPSIGNAL SIGTERM\n", DOCKERFILE)

    def test_the_health_check_asks_the_port_that_is_served(self):
        health = json.loads(re.search(r"HEALTHCHECK .*\\\n +CMD (\[.*\])", DOCKERFILE).group(1))
        words = json.loads(re.search(r"\nCMD (\[.*\])", DOCKERFILE).group(1))
        port = words[words.index("--address") + 1].split(":")[1]
        self.assertEqual(health[1], "health")
        self.assertIn(f"127.0.0.1:{port}", output(RUNNEL, "health", "--help"))
        self.assertIn(f"\nEXPOSE {port}\n", DOCKERFILE)

    def test_every_flag_exists(self):
        known = flags_of_serve()
        lines = re.findall(
            r"(?:\nCMD|command:|args:) (\[serve.*\]|\[\"serve.*\])", "\n".join([DOCKERFILE, *COMPOSE, DEPLOY])
        )
        self.assertEqual(len(lines), 4)
        for line in lines:
            flags = {word for word in arguments(line) if word.startswith("--")}
            self.assertLessEqual(flags, known)
        for line in re.findall(r"runnel serve (.*)", DEPLOY.replace("\\\n", "")):
            self.assertLessEqual({word for word in shlex.split(line) if word.startswith("--")}, known)

    def test_recipes_for_public_addresses_require_credentials(self):
        # Otherwise `runnel serve` refuses to start: what others reach is public by name, or has TLS and a credential.
        text = "".join([DEPLOY, *COMPOSE, DOCKERFILE, IMAGE]).replace("\\\n", "")
        recipes = re.findall(r"serve\b[^`\n]*0\.0\.0\.0:[^`\n]*", text)
        self.assertGreaterEqual(len(recipes), 5)
        for recipe in recipes:
            flags = set(re.findall(r"--[a-z-]+", recipe))
            proven = "--tls-cert" in flags and flags & {"--keys", "--tls-client-ca"}
            self.assertTrue(proven or "--insecure-public" in flags, recipe)

    def test_compose_waits_longer_than_the_drain(self):
        for compose in COMPOSE:
            words = server_in(compose)
            grace_ms = setting(words, "--grace-ms", 10000) + setting(words, "--lame-duck-ms", 0)
            seconds = int(re.search(r"stop_grace_period: (\d+)s", compose).group(1))
            self.assertGreater(seconds * 1000, grace_ms + 5000)

    def test_compose_allows_the_memory_that_the_server_may_use(self):
        here = {"/zoo/mnist-small": str(ROOT / "zoo/mnist-small")}
        for compose in COMPOSE:
            words = [here.get(word, word) for word in server_in(compose)]
            if "--http-address" in words:
                words[words.index("--http-address") + 1] = "127.0.0.1:0"
            # The last two name what is not here, and take no memory. The default address may be in use.
            for flag in ("--address", "--http-hosts", "--keys"):
                if flag in words:
                    del words[words.index(flag) : words.index(flag) + 2]
            words += ["--address", "127.0.0.1:0"]
            limits = re.findall(r"mem(?:swap)?_limit: (\d+)m  #", compose)
            self.assertEqual(len(limits), 2)
            self.assertGreater(min(map(int, limits)) << 20, most_of(RUNNEL, words))

    def test_recipes_with_a_proxy_set_its_variables(self):
        read = {"RUNNEL_PROXY", "RUNNEL_SERVER", "RUNNEL_PEM", "RUNNEL_HTTP", "RUNNEL_STREAMS"}
        self.assertEqual(set(re.findall(r"RUNNEL_\w+", HAPROXY)), read)
        for recipe in (COMPOSE[1], DEPLOY[DEPLOY.index("### Kubernetes") :]):
            given = set(re.findall(r"^ +(RUNNEL_\w+):|name: (RUNNEL_\w+)", recipe, re.MULTILINE))
            with_default = {"RUNNEL_SERVER", "RUNNEL_STREAMS"}
            self.assertEqual({"".join(pair) for pair in given} - with_default, read - with_default)
            self.assertIn("127.0.0.1:8000", recipe)

    def test_a_client_of_the_proxy_has_no_more_streams_than_a_connection_of_the_server(self):
        # With more, HAProxy would open further connections for one client, which count against --connections.
        default = json.loads((ROOT / "config" / "serve.json").read_text())["limits"]["streams_per_connection"]
        [preset] = re.findall(r"presetenv RUNNEL_STREAMS (\d+)", HAPROXY)
        self.assertLessEqual(int(preset), default)
        [given] = re.findall(r'RUNNEL_STREAMS: "(\d+)"', COMPOSE[1])
        self.assertLessEqual(int(given), setting(server_in(COMPOSE[1]), "--streams-per-connection", default))

    def test_compose_reads_no_variable_that_the_commands_read(self):
        # A folder that is exported for compose as RUNNEL_TLS would make every command of the same shell fail.
        flags = set(re.findall(r"RUNNEL_\w+", (ROOT / "cli" / "common_flags.cc").read_text()))
        self.assertIn("RUNNEL_TLS", flags)
        used = set(re.findall(r"\$\{(RUNNEL_\w+)", "".join(COMPOSE)))
        self.assertEqual(used & flags, set())
        [documented] = re.findall(r"export (RUNNEL_HOST=.*)", DEPLOY)
        self.assertEqual(set(re.findall(r"(RUNNEL_\w+)=", documented)), used)
        self.assertEqual(set(re.findall(r"^# +export (RUNNEL_\w+)=", COMPOSE[1], re.MULTILINE)), used)


if __name__ == "__main__":
    RUNNEL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
