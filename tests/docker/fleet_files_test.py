#!/usr/bin/env python3
"""docker/fleet: its files fit each other, the flags of the server, and the variables of HAProxy's configuration.

tests/docker/fleet_files_test.py build/release/runnel

Needs PyYAML.
"""

import json
import pathlib
import re
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
FOLDER = ROOT / "docker" / "fleet"
HAPROXY = (ROOT / "docker" / "haproxy-fleet.cfg").read_text()
SETTINGS = json.loads((FOLDER / "serve.json").read_text())
CONFIG = "/etc/runnel/serve.json"
PATIENCE = 120.0
RUNNEL = ""


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def stopping_ms(words: list[str]) -> int:
    """The time from SIGTERM to the end of a server."""
    return int(value_of(words, "--lame-duck-ms")) + int(SETTINGS["limits"]["grace_ms"])


class Fleet(unittest.TestCase):
    def assert_flags_exist(self, words: list[str]) -> None:
        helped = subprocess.run([RUNNEL, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"--[a-z-]+", helped))
        self.assertEqual([word for word in words if word.startswith("--") and word not in known], [])
        self.assertEqual(words[:3], ["serve", "--config", CONFIG])

    def test_the_settings_start_a_server(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            own = {"models": [{"path": str(ROOT / "zoo/mnist-small")}], "storage": {"url": f"dir:{folder / 'store'}"}}
            (folder / "serve.json").write_text(json.dumps(SETTINGS | own))
            words = ["serve", "--config", str(folder / "serve.json"), "--address", "127.0.0.1:0", "--sessions", "8"]
            with subprocess.Popen([RUNNEL, *words], stderr=subprocess.PIPE, text=True) as process:
                logged = ""
                for line in process.stderr:
                    logged += line
                    if '"ready"' in line:
                        process.terminate()
                self.assertEqual(process.wait(PATIENCE), 0, logged)
        self.assertEqual(SETTINGS["storage"]["url"], "dir:/sessions/store")

    def test_compose_has_three_replicas_that_the_proxy_knows(self) -> None:
        services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
        given = services.pop("proxy")["environment"]
        read = set(re.findall(r"RUNNEL_\w+", HAPROXY)) - {"RUNNEL_PEM", "RUNNEL_PEERS"}
        self.assertEqual(set(given), read)
        self.assertEqual(set(services), {"one", "two", "three"})
        for name, service in services.items():
            words = service["command"]
            self.assert_flags_exist(words)
            for port, flag in (("GRPC", "--address"), ("HTTP", "--http-address"), ("METRICS", "--metrics-address")):
                self.assertEqual(value_of(words, flag), given[f"RUNNEL_{name.upper()}_{port}"])
            self.assertEqual(service["healthcheck"]["test"][-1], value_of(words, "--address"))
            self.assertGreater(int(service["stop_grace_period"].rstrip("s")) * 1000, stopping_ms(words) + 5000)
            self.assertEqual(service["network_mode"], "service:proxy")
            self.assertIn(f"./serve.json:{CONFIG}:ro", service["volumes"])
            self.assertEqual([one.split(":")[-1] for one in service["volumes"]][1:], ["/sessions"])
        inter, fall = map(int, re.search(r"inter (\d+)ms fall (\d+)", HAPROXY).groups())
        self.assertGreaterEqual(int(value_of(words, "--lame-duck-ms")), 2 * inter * fall)

    def test_kubernetes_has_what_its_parts_name(self) -> None:
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


if __name__ == "__main__":
    RUNNEL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
