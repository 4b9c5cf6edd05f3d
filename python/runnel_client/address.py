"""The address of a server, as people write it."""

from __future__ import annotations

import ipaddress

from runnel_client.errors import AccessError

OTHERS = ("http://", "https://", "grpc://", "grpcs://")
OWN_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")  # gRPC takes these as they are
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
    """Of "host:port", without brackets; None if the address has a scheme of gRPC's."""
    if address.startswith(OWN_SCHEMES):
        return None
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine has the address."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    place = host_and_port(address)
    if place is None:
        return False
    try:
        return place[0] == "localhost" or ipaddress.ip_address(place[0]).is_loopback
    except ValueError:
        return False
