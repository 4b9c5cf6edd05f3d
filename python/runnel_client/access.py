"""How to reach a server: with or without TLS, a client certificate and a key."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Any

from runnel_client.address import is_loopback
from runnel_client.errors import AccessError

# The same limit as in the runnel commands.
MAX_KEY_BYTES = 4096
NO = ("", "0", "f", "n", "-", "false", "off", "no", "disable")  # for RUNNEL_TLS


@dataclass(frozen=True)
class Access:
    """How to reach a server, with the names of the flags of the `runnel` commands.

    tls: use TLS; the other TLS options imply it
    tls_ca: PEM file of the authorities to trust; default: those that gRPC finds on this system
    tls_cert, tls_key: PEM files of the client's own certificate and its key
    tls_name: the name in the server's certificate; default: the host in the address
    api_key_file: file of the key that each call carries; takes precedence over api_key
    api_key: the key itself
    plaintext_key: send the key to another machine without TLS, too
    """

    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_name: str = ""
    api_key: str = field(default="", repr=False)
    api_key_file: str = ""
    plaintext_key: bool = False

    @classmethod
    def from_environment(cls) -> Access:
        """From the variables RUNNEL_TLS, RUNNEL_TLS_CA, RUNNEL_API_KEY and so on."""

        def said(name: str) -> str:
            return os.environ.get(f"RUNNEL_{name}", "")

        return cls(
            tls=said("TLS").lower() not in NO,
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
        credentials = self.credentials()
        if credentials is None:
            return kind.insecure_channel(address, options=options)
        name = [("grpc.ssl_target_name_override", self.tls_name)] if self.tls_name else []
        return kind.secure_channel(address, credentials, options=[*options, *name])

    def credentials(self) -> Any:
        """The credentials of a channel with TLS; None without TLS. AccessError if the options or files are wrong."""
        import grpc

        if not self.uses_tls():
            return None
        if bool(self.tls_cert) != bool(self.tls_key):
            raise AccessError("tls_cert and tls_key go together: give both, or none")
        authorities, certificate, key = map(_read, (self.tls_ca, self.tls_cert, self.tls_key))
        if authorities or certificate:
            self.context()  # raises for unusable files, which gRPC reports only at the first call, and vaguely
        return grpc.ssl_channel_credentials(authorities, private_key=key, certificate_chain=certificate)

    def context(self) -> ssl.SSLContext:
        """The same for Python's own TLS."""
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_cert:
                # Never asks for a password, because gRPC cannot read encrypted keys.
                context.load_cert_chain(self.tls_cert, self.tls_key or None, lambda: "")
        except OSError as error:
            raise AccessError(f"the files of tls_ca, tls_cert and tls_key cannot be used: {error}") from None
        return context

    def metadata(self, address: str, tls: bool | None = None) -> list[tuple[str, str]]:
        """The metadata of each call. The key goes to another machine only over TLS, unless `plaintext_key`.

        `tls`: whether the connection uses TLS; default: uses_tls().
        """
        secure = self.uses_tls() if tls is None else tls
        key = self._key()
        if not key:
            return []
        if not (secure or self.plaintext_key or is_loopback(address)):
            raise AccessError(
                f"the key would go to {address} in the clear, for anyone on the way to read; use TLS (tls_ca), or "
                "plaintext_key if nobody else can listen"
            )
        return [("authorization", f"Bearer {key}")]

    def _key(self) -> str:
        """The key; empty without one. The errors do not show it."""
        held = _read(self.api_key_file)
        key = self.api_key if held is None else held.strip().decode("latin-1")
        if held is not None and not key:
            raise AccessError(f"{self.api_key_file} has no key in it")
        if len(key) > MAX_KEY_BYTES or not all("!" <= character <= "~" for character in key):
            raise AccessError(
                f"the key is not one: it must be letters, digits and signs of ASCII, {MAX_KEY_BYTES} at most"
            )
        return key


def _read(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from None
