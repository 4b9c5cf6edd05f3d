"""Failed calls as exceptions, with the client's options where the server names fields of its contract."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import grpc

from runnel_client import messages
from runnel_client.errors import CallError, call_error
from runnel_client.options import Options

DETAILS = "grpc-status-details-bin"
PLACE = re.compile("\x1f([^\x1f]*)\x1f")
# The fields whose options have another name; the options of the others have the last part of the field's own.
WORDS = {
    "text": "prompt",
    "values": "prompt",
    "stop_text": "stop",
    "children": "count",  # of Session.fork
    "delivery.max_values": "values_per_message",
    "delivery.max_delay": "message_delay",
}
# Arguments of functions that are not options of `generate`.
ARGUMENTS = ("session", "prompt", "id", "position", "count", "allow_inexact", "any_owner", "expires_in")


def word_of(field: str) -> str:
    """The option for a field of the contract; empty if there is none."""
    word = WORDS.get(field, field.rpartition(".")[2])
    return word if word in ARGUMENTS or word in Options.__annotations__ else ""


def rendered(message: str) -> str:
    """Replaces the fields in a message by options. Leaves out hints about fields that have no option."""
    parts = message.split("\x1e")  # every second part is a hint
    kept = [part for at, part in enumerate(parts) if at % 2 == 0 or all(map(word_of, PLACE.findall(part)))]
    return PLACE.sub(lambda place: word_of(place[1]) or place[1], "".join(kept))


def in_words(message: str, trailing: Iterable[tuple[str, Any]]) -> str:
    """The message of a failed call, with options in place of the fields that the trailing metadata lists."""
    found = next((value for key, value in trailing if key == DETAILS), None)
    if not isinstance(found, bytes):
        return message
    contract = messages.load("fault")
    details, fault = contract.StatusDetails(), contract.Fault()
    try:
        details.ParseFromString(found)
        if len(details.details) != 1 or not details.details[0].type_url.endswith("/runnel.v1.Fault"):
            return message
        fault.ParseFromString(details.details[0].value)
    except messages.decode_error():  # the details are not from a runnel server
        return message
    return rendered(fault.message)


def failure_of(error: grpc.RpcError) -> CallError:
    """The exception for a call that failed."""
    trailing = tuple(error.trailing_metadata() or ())
    return call_error(error.code().name, in_words(error.details() or "", trailing), trailing)
