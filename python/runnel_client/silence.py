"""Finds out why a server does not answer, and says it in the words of the `runnel` commands."""

from __future__ import annotations

import errno
import os
import socket
import ssl

from runnel_client.access import Access
from runnel_client.address import host_and_port
from runnel_client.errors import AccessError, CallError, DeadlineExceeded, Unavailable

PROBE = 5.0  # seconds to find out, enough even on a busy machine
# The beginnings of gRPC's own messages, in several versions. All other messages come from a server.
NEVER_CONNECTED = ("failed to connect", "dns resolution failed", "errors resolving", "name resolution failed")
OUT_OF_TIME = "deadline exceeded"
START_ONE = "; start one with 'runnel serve BUNDLE', or give Client the address of another"


def explained(failure: CallError, address: str, access: Access) -> CallError:
    """The error in clearer words, if it comes from gRPC and not from a server.

    A connection and a handshake each take up to PROBE seconds, which may be after the call's deadline.
    """
    said = failure.details.lower()
    place = host_and_port(address)
    never_connected = said.startswith(NEVER_CONNECTED)
    if not never_connected and said != OUT_OF_TIME:
        return failure
    too_slow = DeadlineExceeded("the call took longer than its time limit; give it more time with timeout=SECONDS")
    if place is None:
        return Unavailable(f"no server answers at {address}{START_ONE}") if never_connected else too_slow
    try:
        with socket.create_connection(place, PROBE) as connection:
            return Unavailable(_wrong_protocol(connection, address, access)) if never_connected else too_slow
    except TimeoutError:
        return DeadlineExceeded(f"no connection to {address}; is the address right, and does a firewall let it pass?")
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
        reason = getattr(error, "strerror", error)
        return Unavailable(f"the host {place[0]!r} cannot be found ({reason}): check the address of the server")
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return Unavailable(f"no server answers at {address}{START_ONE}")
        return Unavailable(f"no connection to {address}: {os.strerror(error.errno or 0)}{START_ONE}")


def _wrong_protocol(connection: socket.socket, address: str, access: Access) -> str:
    """The fault of a peer that accepts connections, although gRPC could not use it."""
    if access.uses_tls():
        try:
            with access.context().wrap_socket(connection, server_hostname=access.tls_name or _host_of(address)):
                return f"{address} speaks TLS, but no gRPC; is that the port of 'runnel serve'?"
        # AccessError: a file has changed since the client was made. ValueError: a name that no certificate has.
        except (OSError, AccessError, ValueError) as error:
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
            return f"the TLS handshake with {address} failed: {reason}"
    if _speaks_tls(connection):
        return (
            f"{address} speaks TLS: give Client access=Access(tls_ca=FILE) with the authority that signed its "
            "certificate, or Access(tls=True) if this system trusts it"
        )
    return f"something listens at {address}, but it does not speak gRPC; is that the port of 'runnel serve'?"


def _speaks_tls(connection: socket.socket) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return error.reason not in ("WRONG_VERSION_NUMBER", None)
    except OSError:
        return False
    return True


def _host_of(address: str) -> str:
    place = host_and_port(address)
    return place[0] if place else ""
