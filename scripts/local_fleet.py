"""Replicas of a server on this machine that share a store, with HAProxy in front. For scripts/fleet and tests/fleet."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 600.0  # maximum seconds to wait for an event; long, because the machine may be busy
NAMES = ("ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX")  # docker/haproxy-fleet.cfg has the first three
_ports = itertools.count(20000)


def wait_until(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Waits for an event. TimeoutError names it if it does not come."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:g} s: {what}")
        time.sleep(0.02)


def page(address: str, path: str) -> str | None:
    """The body of the answer to a GET. None unless its status is 200."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read().decode() if response.status == 200 else None
        except (http.client.HTTPException, OSError):
            return None


def answers(address: str, path: str) -> bool:
    return page(address, path) is not None


def own_address() -> str:
    """A loopback address that no other process uses, so that a server finds its ports free when it starts again."""
    process = os.getpid()
    return f"127.{64 + (process >> 16) % 128}.{process >> 8 & 255}.{process & 255}"


def find_haproxy() -> str | None:
    return shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")


class Replica:
    """`runnel serve` on ports that it keeps when it is started again."""

    def __init__(self, name: str, command: list[str], folder: pathlib.Path):
        self.name = name
        self.grpc, self.http, self.metrics = (f"{own_address()}:{next(_ports)}" for _ in range(3))
        places = ["--address", self.grpc, "--http-address", self.http, "--metrics-address", self.metrics]
        self._command, self._log = [*command, *places], folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Starts it, without waiting until it is ready."""
        with self._log.open("ab") as log:
            # A new session, so that Ctrl-C reaches only this program. SIGXFSZ stays ignored, so that writing too
            # large a file fails with an error.
            self.process = subprocess.Popen(self._command, stderr=log, start_new_session=True, restore_signals=False)

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.has_ended() or answers(self.metrics, "/readyz"), f"replica {self.name} is ready")
        if self.has_ended():
            raise RuntimeError(f"replica {self.name} ended: {self.log()[-2000:]}")

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Waits until it has ended, and gives its exit code."""
        assert self.process is not None
        return self.process.wait(PATIENCE)

    def runs_calls(self) -> bool:
        # Not the list of sessions, because with a store, every replica also lists the calls of the others.
        return re.search(r"^runnel_calls_running [1-9]", page(self.metrics, "/metrics") or "", re.M) is not None

    def stop(self) -> None:
        if not self.has_ended():
            self.signal(signal.SIGCONT)
            self.kill()


class Fleet:
    """Replicas of one model on one store. At the end of its block all of them have ended."""

    def __init__(
        self,
        runnel: str,
        folder: pathlib.Path,
        *flags: str,
        model: str = "text-endless-small",
        store: str = "dir",
        proxied: bool = True,
        count: int = 3,
    ):
        """`store`: "dir" is a directory in `folder`; "" is none; else the value of --storage.

        `proxied`: with HAProxy if it is installed.
        """
        self._stack = contextlib.ExitStack()
        storage = ["--storage", f"dir:{folder / 'store'}" if store == "dir" else store] if store else []
        command = [runnel, "serve", str(ROOT / "zoo" / model), *storage, *flags]
        self.replicas: list[Replica] = []
        self.proxy = ""  # the address of HAProxy
        self._proxy_log = folder / "haproxy.log"
        with contextlib.ExitStack() as stack:
            for name in NAMES[:count]:
                replica = Replica(name.lower(), command, folder)
                stack.callback(replica.stop)
                self.replicas.append(replica)
                replica.begin()
            for replica in self.replicas:
                replica.wait_until_ready()
            if proxied and (program := find_haproxy()):
                self._start_proxy(program, folder, stack)
            self._stack = stack.pop_all()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_proxy(self, program: str, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        # No replica counts as dead because the machine is busy.
        places = {"RUNNEL_PEERS": f"unix@{folder}/peers", "RUNNEL_CHECK_TIMEOUT": "60s"}
        for name, replica in zip(NAMES, self.replicas):
            places |= {f"RUNNEL_{name}_GRPC": replica.grpc, f"RUNNEL_{name}_HTTP": replica.http}
            places |= {f"RUNNEL_{name}_METRICS": replica.metrics}
        for name in NAMES[len(self.replicas) : 2]:  # otherwise the proxy would use the address of another machine
            closed = f"{own_address()}:{next(_ports)}"
            places |= {f"RUNNEL_{name}_{port}": closed for port in ("GRPC", "HTTP", "METRICS")}
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.proxy = f"127.0.0.1:{listening.getsockname()[1]}"
            others = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
            environment = {**others, **places, "RUNNEL_PROXY": f"fd@{listening.fileno()}"}
            with self._proxy_log.open("wb") as log:
                process = subprocess.Popen(
                    [program, "-db", "-f", str(ROOT / "docker/haproxy-fleet.cfg")],
                    env=environment,
                    pass_fds=[listening.fileno()],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        stack.callback(process.wait, PATIENCE)
        stack.callback(process.kill)
        wait_until(lambda: answers(self.proxy, "/v1/models"), "HAProxy passes calls")

    def serving(self) -> Replica:
        """The only replica that runs a call. RuntimeError if none does, or several."""
        found = [replica for replica in self.replicas if replica.runs_calls()]
        if len(found) != 1:
            raise RuntimeError(f"one replica must run calls, and {len(found)} do")
        return found[0]

    def changes(self, replica: Replica, state: str) -> int:
        """How often HAProxy has logged that a replica has become UP, or DOWN."""
        return self._proxy_log.read_text(encoding="utf-8").count(f"Server grpc/{replica.name} is {state}")
