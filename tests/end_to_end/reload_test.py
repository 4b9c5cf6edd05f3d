"""Operators change models while the server runs, with `runnel reload` and an administrator's key.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import tempfile
import unittest
from typing import Any

from keys_test import ROOT, Server, Tenant, eventually, grpc, run

ZOO = ROOT / "zoo"


class ReloadTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.keys = str(self.folder / "keys.jsonl")
        self.admin, self.user = self.new("root", "--admin"), self.new("ada")
        self.slow = self.new("slow", "--values-per-second", "100")
        self.write([{"name": "digits", "path": str(ZOO / "mnist-small")}])
        flags = ("--config", str(self.folder / "serve.json"), "--keys", self.keys, "--address", "127.0.0.1:0")
        self.server = Server(*flags, models=())
        self.stack.callback(self.server.stop)
        self.address = f"127.0.0.1:{self.server.port()}"
        self.channel = self.stack.enter_context(grpc.insecure_channel(self.address))

    def new(self, name: str, *flags: str) -> str:
        return run("key", "new", name, "--file", self.keys, *flags).stdout.strip()

    def write(self, models: list[dict[str, Any]], **settings: Any) -> None:
        (self.folder / "serve.json").write_text(json.dumps({"models": models, **settings}), encoding="utf-8")

    def reload(self, key: str) -> subprocess.CompletedProcess[str]:
        return run("reload", "--server", self.address, "--api-key", key, "--json")

    def report(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.reload(self.admin).stdout)
        return {name: found for name, found in result.items() if found}

    def test_an_administrator_reloads_while_streams_run(self) -> None:
        whole = Tenant(self.channel, self.user).values(300)
        stream = Tenant(self.channel, self.slow).generate(300)  # lasts two seconds
        next(stream)
        self.write(
            [{"name": "text", "path": str(ZOO / "text-small"), "aliases": ["latest"]}],
            limits={"connections": 7},
        )
        expected = {"added": ["text"], "retired": ["digits"], "needs_restart": ["limits.connections"]}
        self.assertEqual(self.report(), expected)
        self.assertTrue(stream.is_active())
        values = [v for event in stream for run in event.values.runs for v in run.values]
        self.assertEqual(values, whole, "the stream has the bits of the model that it began on")
        told = run("info", "--server", self.address, "--api-key", self.user, "--json")
        self.assertEqual([(m["name"], m["aliases"]) for m in json.loads(told.stdout)["models"]], [("text", ["latest"])])
        self.assertEqual(self.report(), {"kept": ["text"], "needs_restart": ["limits.connections"]})

    def test_other_keys_may_not_reload(self) -> None:
        refused = self.reload(self.user)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("PERMISSION_DENIED", refused.stderr)
        self.assertIn("--admin", refused.stderr)

    def test_a_model_that_does_not_load_leaves_the_old_one(self) -> None:
        (self.folder / "broken").mkdir()
        self.write([{"name": "digits", "path": "broken"}])
        result = self.reload(self.admin)
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertEqual(report["kept"], ["digits"])
        self.assertIn("config.json", report["refused"][0]["reason"])
        self.assertEqual(len(Tenant(self.channel, self.user).values(8)), 8)

    def test_a_configuration_that_is_wrong_changes_nothing(self) -> None:
        (self.folder / "serve.json").write_text("{", encoding="utf-8")
        result = self.reload(self.admin)
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED_PRECONDITION", result.stderr)
        self.assertTrue(eventually(lambda: "warn reload" in self.server.text()), self.server.text())
        self.assertEqual(len(Tenant(self.channel, self.user).values(8)), 8)


if __name__ == "__main__":
    unittest.main(verbosity=1)
