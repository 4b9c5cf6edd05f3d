#!/usr/bin/env python3
"""Serves thousands of sessions for an hour to clients of every kind, while keys and models change, and writes
docs/benchmarks/soak.{json,md,png}.

    bench/report/soak.py RUNNEL OUT_DIRECTORY [--seconds N] [--sessions N]

Clients behave, cancel, retry, stall, vanish and attack (soak_clients.py). An operator rotates their keys, and reloads
models in turn, including a broken one. The exit code is 1 if
- a call ended with an unexpected status
- a value differs from the one that its seed draws
- a created session is missing or at a wrong position
- a state was not freed
- memory or the number of open files grew.

Needs protoc, and Python with grpcio, protobuf, numpy and matplotlib; on Debian: scripts/setup bench
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import grpc
import grpc.aio

from runnel_client import messages, serving
from runnel_client.errors import BundleError
from soak_clients import Clients, Door, Keys, Session, request_of
from soak_report import draw, grown, report

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = 8
LENGTH = 1500  # values of a session, at most
STALL = 2.0  # seconds
SPARE = 256  # states in addition to those of the sessions
CREATING = 64  # number of sessions that are created at the same time
CROWD = {"behave": 12, "cancel": 6, "retry": 6, "turn": 4, "be_stalled": 2, "vanish": 2, "attack": 2}
PAUSES = {"vanish": 0.2, "attack": 1.0}


class Operator:
    """The operator of the server: prepares its files, and changes its keys and models while it serves."""

    def __init__(self, runnel: str, folder: pathlib.Path, sessions: int) -> None:
        self.runnel, self.folder = runnel, folder
        self.file, self.log = folder / "keys.jsonl", folder / "log"
        self.flags = ["--config", str(folder / "serve.json"), "--keys", str(self.file)]
        self.flags += ["--sessions", str(sessions + SPARE), "--record-bytes", "4096", "--stream-room", "64"]
        self.flags += ["--stall-timeout-ms", str(int(1000 * STALL)), "--backend", "cpu"]
        for seed, name in enumerate(("stays", "a", "b")):
            words = ("--preset", "tiny", "--endless", "--symbols", "0123456789abcdefghij", "--begin", "none")
            command = [sys.executable, str(ROOT / "scripts/runnel-random-bundle"), *words, "--seed", str(seed)]
            subprocess.run([*command, "--out", str(folder / name)], stdout=subprocess.DEVNULL, check=True)
        (folder / "broken").mkdir()
        self.keys = Keys(self.new_key("ada"), self.new_key("root", "--admin"))
        self.serve(self.model("a"), self.model("b"))
        self.reloads: dict[str, int] = {}
        self.rotations = 0
        self.log_read, self.log_reloads = 0, 0  # bytes of the log read so far, and the reloads in them

    def new_key(self, name: str, *flags: str) -> str:
        command = [self.runnel, "key", "new", name, "--file", str(self.file), *flags]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def model(self, directory: str, name: str = "", aliases: tuple[str, ...] = ()) -> dict[str, Any]:
        return {"name": name or directory, "path": directory, "aliases": aliases}

    def serve(self, *models: dict[str, Any]) -> None:
        """Writes a config file with these models and the model "stays"."""
        text = json.dumps({"models": [self.model("stays"), *models]})
        (self.folder / "next.json").write_text(text, encoding="utf-8")
        os.replace(self.folder / "next.json", self.folder / "serve.json")

    async def rotate(self, clients: Clients, pause: float) -> None:
        """Repeatedly gives the clients a new key, and removes the old key soon after."""
        door = Door(clients.address, self.keys)
        models = messages.load("models")
        while not await passed(clients.over, pause):
            key = await asyncio.to_thread(self.new_key, "ada")
            while True:
                try:
                    await door.unary(
                        "/runnel.v1.Models/ListModels", models.ListModelsRequest(), models.ListModelsResponse, key
                    )
                    break
                except Exception:  # the server has not read the file yet
                    await asyncio.sleep(0.1)
            self.keys.user = key
            await asyncio.sleep(1)
            command = [self.runnel, "key", "remove", "ada", "--old", "--file", str(self.file)]
            await asyncio.to_thread(subprocess.run, command, check=True)
            self.rotations += 1
        await door.channel.close()

    async def reload(self, clients: Clients, process: subprocess.Popen[bytes], pause: float) -> None:
        """Repeatedly changes the models, and reloads them by the RPC and by SIGHUP. The model "stays" never changes."""
        door = Door(clients.address, self.keys)
        plans = [
            ("added", [self.model("a", "turns", ("latest",))]),
            ("replaced", [self.model("b", "turns", ("latest",))]),
            ("refused", [self.model("broken", "turns", ("latest",))]),
            ("added", [self.model("b", "turns"), self.model("a", "other", ("latest",))]),
            ("retired", []),
        ]
        while not clients.over.is_set():
            for expected, models in plans:
                if await passed(clients.over, pause):
                    break
                done = self.reloads_logged()
                self.serve(*models)
                report = await self.ask_to_reload(door)
                self.reloads[expected] = self.reloads.get(expected, 0) + 1
                if "stays" not in report.kept or not getattr(report, expected):
                    clients.account.fault(f"a reload for {expected} came to {report}")
                process.send_signal(signal.SIGHUP)
                # Waits for both reloads before the files change again.
                while self.reloads_logged() < done + 2 and process.poll() is None:
                    await asyncio.sleep(0.05)
        await door.channel.close()

    async def ask_to_reload(self, door: Door) -> Any:
        admin = messages.load("admin")
        while True:
            try:
                return await door.unary(
                    "/runnel.v1.Admin/Reload", admin.ReloadRequest(), admin.ReloadResponse, self.keys.admin
                )
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.ABORTED:  # ABORTED: another reload is still running
                    raise
                await asyncio.sleep(0.1)

    def reloads_logged(self) -> int:
        with self.log.open("rb") as file:
            file.seek(self.log_read)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self.log_read += len(lines)
        self.log_reloads += lines.count(b" info reload ")
        return self.log_reloads


async def passed(over: asyncio.Event, seconds: float) -> bool:
    """Waits for `seconds`, or until `over` is set. Returns whether it is set."""
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


def sample_of(process: subprocess.Popen[bytes]) -> dict[str, float]:
    status = pathlib.Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()
    files = len(os.listdir(f"/proc/{process.pid}/fd"))
    return {"resident": int(status[1]) * os.sysconf("SC_PAGESIZE"), "files": files}


async def find_truth(door: Door) -> dict[str, list[list[int]]]:
    """The value at each position, by model and seed, from one fresh call for each model and seed."""
    truth: dict[str, list[list[int]]] = {}
    for model in ("stays", "a", "b"):
        for seed in range(SEEDS):
            values = [1]
            async for event in door.generate(request_of(model, seed, LENGTH)):
                values += [value for run in event.values.runs for value in run.values]
            truth.setdefault(model, []).append(values)
    return truth


async def create(door: Door, clients: Clients, count: int) -> list[Session]:
    sessions = messages.load("sessions")
    made = [Session(f"s{number}", number % SEEDS) for number in range(count)]

    async def make(some: list[Session]) -> None:
        for session in some:
            request = sessions.CreateSessionRequest(model="stays", id=session.name)
            await door.unary("/runnel.v1.Sessions/CreateSession", request, sessions.Session)

    await asyncio.gather(*(make(made[start::CREATING]) for start in range(CREATING)))
    clients.free.extend(sorted(made, key=lambda session: session.name))
    return made


async def check_sessions(door: Door, clients: Clients, made: list[Session]) -> None:
    """Checks that every created session exists at its expected position, and that all other states are free."""
    sessions, models = messages.load("sessions"), messages.load("models")
    found: dict[str, int] = {}
    token = ""
    while True:
        request = sessions.ListSessionsRequest(model="stays", page_size=1000, page_token=token)
        page = await door.unary("/runnel.v1.Sessions/ListSessions", request, sessions.ListSessionsResponse)
        found |= {session.id: session.position for session in page.sessions}
        token = page.next_page_token
        if not token:
            break
    if found != {session.name: session.position for session in made}:
        wrong = [session for session in made if found.get(session.name) != session.position]
        clients.account.fault(f"{len(found)} sessions of {len(made)}; of these stand elsewhere: {wrong[:5]}")
    for _ in range(1200):  # two minutes: the machine may be busy with other things
        request = models.GetModelRequest(name="stays")
        model = await door.unary("/runnel.v1.Models/GetModel", request, models.ModelInfo)
        if model.sessions_free == model.sessions - len(made):
            return
        await asyncio.sleep(0.1)
    clients.account.fault(f"{model.sessions_free} states are free; expected {model.sessions - len(made)}")


async def run(operator: Operator, process: subprocess.Popen[bytes], address: str, plan: argparse.Namespace) -> dict:
    door = Door(address, operator.keys)
    clients = Clients(address, operator.keys, await find_truth(door), STALL)
    made = await create(door, clients, plan.sessions)
    tasks = [
        asyncio.create_task(clients.loop(getattr(clients, kind), PAUSES.get(kind, 0.01)))
        for kind, count in CROWD.items()
        for _ in range(count)
    ]
    pause = min(20.0, plan.seconds / 12)
    tasks.append(asyncio.create_task(operator.rotate(clients, pause)))
    tasks.append(asyncio.create_task(operator.reload(clients, process, pause / 4)))
    begun, samples = time.monotonic(), []
    while (now := time.monotonic() - begun) < plan.seconds and process.poll() is None:
        samples.append({"second": round(now, 1), **sample_of(process), "values": clients.account.values})
        await asyncio.sleep(max(0.5, plan.seconds / 600))
    clients.over.set()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            clients.account.fault(f"a client broke down: {result!r}")
    await check_sessions(door, clients, made)
    await door.channel.close()
    account = clients.account
    ended = sum(sum(by_status.values()) for by_status in account.ended.values())
    if ended != account.begun:
        account.fault(f"{account.begun} calls were begun, and {ended} have ended")
    return {
        "seconds": plan.seconds,
        "sessions": plan.sessions,
        "values": account.values,
        "calls": {kind: dict(by_status) for kind, by_status in sorted(account.ended.items())},
        "reloads": operator.reloads,
        "rotations": operator.rotations,
        "samples": samples,
        "faults": account.faults,
    }


def machine() -> dict[str, Any]:
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return {"cores": os.cpu_count(), "cpu": names[0] if names else "unknown", "load": os.getloadavg()[0]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runnel", help="the program")
    parser.add_argument("out", type=pathlib.Path, help="directory for soak.json, soak.md and soak.png")
    parser.add_argument("--seconds", type=float, default=3600, help="(default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=10000, help="(default: %(default)s)")
    parser.add_argument("--any-growth", action="store_true", help="do not hold memory and files against anything")
    plan = parser.parse_args(argv)
    here = machine()
    with tempfile.TemporaryDirectory() as holder:
        operator = Operator(plan.runnel, pathlib.Path(holder), plan.sessions)
        with serving.process_of(plan.runnel, operator.flags, operator.log) as (process, address):
            figures = asyncio.run(run(operator, process, address, plan))
        if process.returncode != 0:
            figures["faults"].append(f"the server ended with {process.returncode}: {operator.log.read_text()[-2000:]}")
    figures["machine"] = here
    if not plan.any_growth:
        figures["faults"] += grown(figures)
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / "soak.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    draw(figures, plan.out / "soak.png")
    (plan.out / "soak.md").write_text(report(figures), encoding="utf-8")
    print(report(figures))
    for fault in figures["faults"]:
        print(f"soak.py: {fault}", file=sys.stderr)
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BundleError, OSError) as error:
        sys.exit(f"soak.py: error: {error}")
