"""Failed calls as exceptions, with the options of `generate` where the server names fields of its contract."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import grpc

from runnel_client import messages
from runnel_client.errors import CallError, call_error

DETAILS = "grpc-status-details-bin"
# The fields whose options have another name; those that are left out have the last part of the field's own.
WORDS = {
    "origin.session": "session",
    "text": "prompt",
    "stop_text": "stop",
    "delivery.max_values": "values_per_message",
    "delivery.max_delay": "message_delay",
}


def word_of(field: str) -> str:
    """The option for a field of the contract."""
    return WORDS.get(field, field.rpartition(".")[2])


def in_words(message: str, trailing: Iterable[tuple[str, Any]]) -> str:
    """The message of a failed call with options where it names fields, by what the trailing metadata says of them."""
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
    except messages.decode_error():  # the details of some other server
        return message
    return re.sub("\x1f([^\x1f]*)\x1f", lambda place: word_of(place[1]), fault.message.replace("\x1e", ""))


def failure_of(error: grpc.RpcError) -> CallError:
    """The exception for a call that failed."""
    trailing = tuple(error.trailing_metadata() or ())
    return call_error(error.code().name, in_words(error.details() or "", trailing), trailing)
