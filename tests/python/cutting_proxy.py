"""A TCP proxy that cuts each connection after a number of bytes of the server's answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence


class CuttingProxy:
    """Listens on `address` from its construction to the end of its `with` block."""

    def __init__(self, server: str, cuts: Sequence[int]):
        """`cuts`: after how many bytes each connection is cut, in order. Later connections are not cut."""
        host, _, port = server.rpartition(":")
        self._server, self._cuts = (host, int(port)), list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for one in self._sockets:
            _end(one)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                most = self._cuts[self.connections] if self.connections < len(self._cuts) else None
                self.connections += 1
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, target, bound in ((client, server, None), (server, client, most)):
                    self._threads.append(threading.Thread(target=_pass_on, args=(source, target, bound)))
                    self._threads[-1].start()


def _pass_on(source: socket.socket, target: socket.socket, most: int | None) -> None:
    """Forwards bytes until one side ends or `most` bytes have passed, then closes both."""
    with contextlib.suppress(OSError):
        while most is None or most > 0:
            found = source.recv(4096 if most is None else min(most, 4096))
            if not found:
                break
            target.sendall(found)
            most = None if most is None else most - len(found)
    _end(source)
    _end(target)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
