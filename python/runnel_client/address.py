"""The address of a server, as people write it."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse

from runnel_client.errors import AccessError

OTHERS = ("http://", "https://", "grpc://", "grpcs://")
SOCKET_FILES = ("unix:", "unix-abstract:")
OWN_SCHEMES = (*SOCKET_FILES, "dns:", "ipv4:", "ipv6:")  # gRPC takes these as they are
EXPECTED = "; expected host:port, as in 127.0.0.1:50051"


def check(address: str) -> None:
    """AccessError unless it is "host:port" ("[::1]:50051" for IPv6), or has one of gRPC's own schemes."""
    found = f"the server's address is {address[:200]!r}"
    for scheme in OTHERS:
        if address.startswith(scheme):
            tls = ", with access=Access(tls=True) or Access(tls_ca=FILE)" if scheme.endswith("s://") else ""
            raise AccessError(f"{found}; leave out '{scheme}' and give host:port{tls}")
    if address.startswith(OWN_SCHEMES):
        return
    host, colon, port = address.rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise AccessError(f"{found}; write IPv6 as [::1]:50051")
    if not colon or not host:
        raise AccessError(f"{found}, without {'a port' if not colon else 'a host'}{EXPECTED}")
    if "/" in host or not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise AccessError(f"{found}{EXPECTED}")


def host_and_port(address: str) -> tuple[str, int] | None:
    """The host, without brackets, and the port of an address.

    It is "host:port", "dns:///host:port", "ipv4:host:port" or "ipv6:[host]:port".
    Without a port it is gRPC's own, 443. None for a socket file and for several addresses.
    """
    places = _places(address)
    return places[0] if len(places) == 1 else None


def is_loopback(address: str) -> bool:
    """Whether the address, or each of several addresses, is on this machine only.

    False for "localhost" if a name server resolves it ("dns://10.0.0.1/localhost:50051").
    """
    if address.startswith(SOCKET_FILES):
        return True
    hosts = [host for host, _ in _places(address)]
    asks_name_server = address.startswith("dns://") and not address.startswith("dns:///")
    return bool(hosts) and all(
        _is_loopback_number(host) or (not asks_name_server and host.lower() in ("localhost", "localhost."))
        for host in hosts
    )


def _places(address: str) -> list[tuple[str, int]]:
    if address.startswith(SOCKET_FILES):
        return []
    places = address
    if address.startswith(OWN_SCHEMES):
        places = urllib.parse.unquote(address.partition(":")[2])
        if places.startswith("//"):
            places = places[2:].partition("/")[2]
    return [_place(text) for text in places.split(",") if text]


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if host.startswith("[") == host.endswith("]") and (":" not in host or host.startswith("[")) and port.isdecimal():
        return host.removeprefix("[").removesuffix("]"), int(port)
    return text.removeprefix("[").removesuffix("]"), 443


def _is_loopback_number(host: str) -> bool:
    if any(map(str.isspace, host)):  # inet_aton ignores what comes after a space
        return False
    try:
        return socket.inet_aton(host)[0] == 127
    except OSError:
        pass
    try:
        number = ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return number.is_loopback or (number.ipv4_mapped is not None and number.ipv4_mapped.is_loopback)
