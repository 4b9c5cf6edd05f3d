"""How a server is reached: plainly or by TLS, with a certificate and a key of one's own or without."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import Any

from runnel_client.errors import AccessError


@dataclass(frozen=True)
class Access:
    """How to reach a server, as the flags of the `runnel` commands say it: files in PEM, a host's name, a key."""

    tls: bool = False  # true, too, where one of the next four is given
    tls_ca: str = ""  # authorities; empty: those that gRPC finds on this system
    tls_cert: str = ""  # the client's own certificate, and
    tls_key: str = ""  # its key
    tls_name: str = ""  # in the server's certificate; empty: the host in the address
    api_key: str = ""
    api_key_file: str = ""  # holds the key; goes before api_key
    plaintext_key: bool = False  # the key may go to another machine without TLS

    @classmethod
    def from_environment(cls) -> Access:
        """What RUNNEL_TLS, RUNNEL_TLS_CA, RUNNEL_API_KEY and so on say."""

        def said(name: str) -> str:
            return os.environ.get(f"RUNNEL_{name}", "")

        return cls(
            tls=said("TLS") not in ("", "0", "false"),
            tls_ca=said("TLS_CA"),
            tls_cert=said("TLS_CERT"),
            tls_key=said("TLS_KEY"),
            tls_name=said("TLS_NAME"),
            api_key=said("API_KEY"),
            api_key_file=said("API_KEY_FILE"),
        )

    def uses_tls(self) -> bool:
        return self.tls or any((self.tls_ca, self.tls_cert, self.tls_key, self.tls_name))

    def channel(self, address: str, options: list[tuple[str, str | int]], aio: bool = False) -> Any:
        """A channel of grpc, or of grpc.aio. Nothing is connected yet."""
        import grpc
        import grpc.aio

        kind = grpc.aio if aio else grpc
        if not self.uses_tls():
            return kind.insecure_channel(address, options=options)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise AccessError("tls_cert and tls_key go together: give both, or none")
        credentials = grpc.ssl_channel_credentials(
            _read(self.tls_ca), private_key=_read(self.tls_key), certificate_chain=_read(self.tls_cert)
        )
        name = [("grpc.ssl_target_name_override", self.tls_name)] if self.tls_name else []
        return kind.secure_channel(address, credentials, options=[*options, *name])

    def metadata(self, address: str) -> list[tuple[str, str]]:
        """What each call carries. The key goes to another machine by TLS alone, unless that is asked for."""
        held = _read(self.api_key_file)
        key = held.decode().strip() if held is not None else self.api_key
        if not key:
            return []
        if not (self.uses_tls() or self.plaintext_key or _is_loopback(address)):
            raise AccessError(
                f"the key would go to {address} in the clear, for anyone on the way to read; use TLS (tls_ca), or "
                "plaintext_key where nobody else can listen"
            )
        return [("authorization", f"Bearer {key}")]


def _read(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
