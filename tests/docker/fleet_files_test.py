#!/usr/bin/env python3
"""docker/fleet: its files fit each other, the flags of the server, and the variables of HAProxy's configuration.

tests/docker/fleet_files_test.py build/release/runnel

Needs PyYAML, and redis-server for one of the tests.
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Any

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error}; on Debian: apt install python3-yaml")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from local_fleet import own_address, wait_until  # noqa: E402
from server_memory import most_of  # noqa: E402

FOLDER = ROOT / "docker" / "fleet"
HAPROXY = (ROOT / "docker" / "haproxy-fleet.cfg").read_text()
SETTINGS = json.loads((FOLDER / "serve.json").read_text())
CONFIG = "/etc/runnel/serve.json"
PATIENCE = 600.0  # seconds until an event counts as one that never comes
RUNNEL = ""


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def is_open(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), PATIENCE):
            return True
    except OSError:
        return False


def stopping_ms(words: list[str]) -> int:
    """The longest time from SIGTERM to the end of a server, whose store may hang for ten seconds."""
    return int(value_of(words, "--lame-duck-ms")) + int(SETTINGS["limits"]["grace_ms"]) + 10000


class Fleet(unittest.TestCase):
    most: int  # the memory that a server with the settings may come to use

    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as name:
            settings = pathlib.Path(name, "serve.json")
            own = {"models": [{"path": str(ROOT / "zoo/mnist-small")}], "storage": {"url": f"dir:{name}/store"}}
            settings.write_text(json.dumps(SETTINGS | own))
            ports = [word for door in ("", "http-", "metrics-") for word in (f"--{door}address", "127.0.0.1:0")]
            cls.most = most_of(RUNNEL, ["serve", "--config", str(settings), *ports])

    def assert_flags_exist(self, words: list[str]) -> None:
        helped = subprocess.run([RUNNEL, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"--[a-z-]+", helped))
        self.assertEqual([word for word in words if word.startswith("--") and word not in known], [])
        self.assertEqual(words[:3], ["serve", "--config", CONFIG])

    def assert_starts(self, folder: pathlib.Path, words: list[str]) -> None:
        """A server is ready with the settings and these flags, and its store, if no flag names one, in `folder`."""
        own = {"models": [{"path": str(ROOT / "zoo/mnist-small")}], "storage": {"url": f"dir:{folder / 'store'}"}}
        (folder / "serve.json").write_text(json.dumps(SETTINGS | own))
        command = [RUNNEL, "serve", "--config", str(folder / "serve.json"), "--sessions", "8", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            logged = ""
            for line in process.stderr:
                logged += line
                if '"ready"' in line:
                    process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0, logged)
        self.assertIn('"ready"', logged)

    def test_the_settings_start_a_server(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            self.assert_starts(pathlib.Path(name), ["--address", "127.0.0.1:0"])
        self.assertEqual(SETTINGS["storage"]["url"], "dir:/sessions/store")

    def test_a_server_starts_with_the_redis_of_the_files(self) -> None:
        program = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # the same, by another name
        if program is None:
            self.skipTest("there is no redis-server")
        words = yaml.safe_load((FOLDER / "compose-redis.yaml").read_text())["services"]["one"]["command"]
        own = own_address()  # so that the port of the files is free
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([FOLDER / "redis-secrets", folder], check=True, timeout=PATIENCE)
            settings = folder / "redis.conf"
            places = {"bind 127.0.0.1": f"bind {own}", "/data": str(folder / "data"), "/secrets": str(folder / "redis")}
            text = (FOLDER / "redis.conf").read_text()
            for place, here in places.items():
                self.assertIn(place, text)
                text = text.replace(place, here)
            settings.write_text(text)
            redis = ["redis-server", str(settings)]
            with subprocess.Popen(redis, executable=program, stdout=subprocess.DEVNULL) as process:
                try:
                    wait_until(lambda: is_open(own, 6379), "Redis listens")
                    flags = [
                        "--address",
                        "127.0.0.1:0",
                        "--storage",
                        value_of(words, "--storage").replace("127.0.0.1", own),
                    ]
                    for flag in ("--storage-password-file", "--seal-keys"):
                        flags += [flag, value_of(words, flag).replace("/secrets", str(folder / "server"))]
                    self.assert_starts(folder, flags)
                finally:
                    process.kill()

    def test_the_docs_have_the_same_settings_of_redis(self) -> None:
        documented = (ROOT / "docs" / "fleet.md").read_text()
        [rules] = re.findall(r"user runnel on >PASSWORD (.*)", documented)
        self.assertIn(f" {rules}\n", (FOLDER / "redis-secrets").read_text())
        for line in ("appendonly yes", "appendfsync everysec", 'save ""', "maxmemory-policy noeviction"):
            self.assertIn(f"\n{line}\n", documented)
            self.assertIn(f"\n{line}\n", (FOLDER / "redis.conf").read_text())

    def test_compose_has_three_replicas_that_the_proxy_knows(self) -> None:
        for file, places in (("compose.yaml", ["/sessions"]), ("compose-redis.yaml", ["/secrets"])):
            with self.subTest(file=file):
                self.check_compose(yaml.safe_load((FOLDER / file).read_text())["services"], places)

    def check_compose(self, services: dict[str, Any], places: list[str]) -> None:
        """`places`: where the volumes of a replica are, besides its settings."""
        network = services.pop("network")
        self.assertEqual(network["entrypoint"], ["sleep", "infinity"])
        self.assertEqual([port.split(":")[-1] for port in network["ports"]], ["50050"])
        proxy = services.pop("proxy")
        self.assertEqual(proxy["network_mode"], "service:network")
        given = proxy["environment"]
        redis = services.pop("redis", None)
        if redis is not None:
            self.assertEqual(redis["network_mode"], "service:network")
            self.assertIn("./redis.conf:/etc/redis/redis.conf:ro", redis["volumes"])
            self.assertEqual(redis["command"], ["redis-server", "/etc/redis/redis.conf"])
        read = set(re.findall(r"RUNNEL_\w+", HAPROXY)) - {"RUNNEL_PEM", "RUNNEL_PEERS", "RUNNEL_CHECK_TIMEOUT"}
        self.assertEqual(set(given), read)
        # With more, HAProxy would open further connections for one client, which count against limits.connections.
        self.assertLessEqual(int(given["RUNNEL_STREAMS"]), SETTINGS["limits"]["streams_per_connection"])
        self.assertEqual(set(services), {"one", "two", "three"})
        for name, service in services.items():
            words = service["command"]
            self.assert_flags_exist(words)
            for port, flag in (("GRPC", "--address"), ("HTTP", "--http-address"), ("METRICS", "--metrics-address")):
                self.assertEqual(value_of(words, flag), given[f"RUNNEL_{name.upper()}_{port}"])
            self.assertEqual(service["healthcheck"]["test"][-1], value_of(words, "--address"))
            self.assertGreater(int(service["stop_grace_period"].rstrip("s")) * 1000, stopping_ms(words) + 5000)
            self.assertEqual(service["network_mode"], "service:network")
            self.assertEqual(service["mem_limit"], service["memswap_limit"])
            self.assertGreater(int(service["mem_limit"].rstrip("m")) << 20, self.most)
            self.assertIn(f"./serve.json:{CONFIG}:ro", service["volumes"])
            found = [re.sub(r":ro$", "", one).split(":")[-1] for one in service["volumes"]]
            self.assertEqual(found[1:], places)
        inter, fall = map(int, re.search(r"inter (\d+)ms fall (\d+)", HAPROXY).groups())
        self.assertGreaterEqual(int(value_of(words, "--lame-duck-ms")), 2 * inter * fall)

    def test_kubernetes_defines_every_object_that_it_names(self) -> None:
        found: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "k8s.yaml").read_text())}
        spec = found["Deployment"]["spec"]
        pod = spec["template"]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        for selector in (
            spec["selector"]["matchLabels"],
            found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
            found["Service"]["spec"]["selector"],
            found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        ):
            self.assertEqual(selector, labels)
        [container] = pod["containers"]
        words = container["args"]
        self.assert_flags_exist(words)
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        for name, flag in (("grpc", "--address"), ("http", "--http-address"), ("metrics", "--metrics-address")):
            self.assertEqual(value_of(words, flag), f"0.0.0.0:{ports[name]}")
        self.assertEqual({one["name"]: one["port"] for one in found["Service"]["spec"]["ports"]}, ports)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertIn(container[probe]["httpGet"]["port"], ports)
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        self.assertEqual(mounts["sessions"], "/sessions")
        self.assertEqual({one["name"] for one in pod["volumes"]}, set(mounts))
        claims = [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
        self.assertEqual(claims, [found["PersistentVolumeClaim"]["metadata"]["name"]])
        self.assertEqual(found["PersistentVolumeClaim"]["spec"]["accessModes"], ["ReadWriteMany"])
        self.assertGreater(pod["terminationGracePeriodSeconds"] * 1000, stopping_ms(words) + 5000)
        self.assertGreater(int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20, self.most)
        self.assert_keys_are_private(pod)
        # Otherwise each mount opens the folder of the store to the group.
        self.assertEqual(pod["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch")

    def assert_keys_are_private(self, pod: dict[str, Any]) -> None:
        """The server's group, and nobody else, can read its file of keys: `runnel serve` refuses other files."""
        [secret] = [one["secret"] for one in pod["volumes"] if one["name"] == "keys"]
        self.assertEqual(secret["defaultMode"], 0o440)
        self.assertIn("fsGroup", pod["securityContext"])

    def test_kubernetes_in_the_docs_has_private_keys(self) -> None:
        text = (ROOT / "docs" / "deploy.md").read_text()
        recipe = text[text.index("### Kubernetes") :].split("```yaml\n")[1].split("```")[0]
        [deployment] = [one for one in yaml.safe_load_all(recipe) if one["kind"] == "Deployment"]
        self.assert_keys_are_private(deployment["spec"]["template"]["spec"])


if __name__ == "__main__":
    RUNNEL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
