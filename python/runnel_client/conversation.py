"""Conversations: their types, and their messages in the wire contract."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from runnel_client import messages as contract

Variable = str | int | float | bool | None  # of a chat template


class Function(TypedDict, total=False):
    """The function that an assistant calls."""

    name: str
    arguments: str | Mapping[str, Any]  # a JSON object as text, or the object


class ToolCall(TypedDict, total=False):
    """A call of a tool, in the form of OpenAI's API."""

    id: str
    type: str  # "function"
    function: Function


class Message(TypedDict, total=False):
    """A message of a conversation, in the form of OpenAI's API. `content` is a text."""

    role: str  # "system", "developer", "user", "assistant" or "tool"
    content: str | None
    reasoning_content: str  # the assistant's thinking
    tool_calls: Sequence[ToolCall]
    tool_call_id: str  # of the result of a tool
    name: str


def set_conversation(
    conversation: Any,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Variable],
    continues: bool,
) -> None:
    """Fills a Conversation. TypeError for a member of a message that is not known, and for a value of another type."""
    for message in messages:
        _check_members(message, Message)
        made = conversation.messages.add(role=message.get("role", ""), content=message.get("content"))
        made.reasoning = message.get("reasoning_content") or ""
        made.tool_call_id = message.get("tool_call_id") or ""
        made.name = message.get("name") or ""
        for call in message.get("tool_calls") or ():
            _check_members(call, ToolCall)
            function = call.get("function", {})
            _check_members(function, Function)
            arguments = function.get("arguments") or ""
            made.tool_calls.add(
                id=call.get("id", ""),
                name=function.get("name", ""),
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
    conversation.tools.extend(json.dumps(tool) for tool in tools)
    conversation.variables.extend(_variable(name, value) for name, value in variables.items())
    conversation.continues = continues


def _check_members(given: Mapping[str, Any], kind: type) -> None:
    unknown = sorted(set(given) - set(kind.__annotations__))
    if unknown:
        raise TypeError(f"a {kind.__name__} has no member {unknown[0]!r}; it has {', '.join(kind.__annotations__)}")


def _variable(name: str, value: Variable) -> Any:
    made = contract.inference().TemplateVariable(name=name)
    if isinstance(value, bool):
        made.flag = value
    elif isinstance(value, int):
        made.integer = value
    elif isinstance(value, float):
        made.number = value
    elif value is not None:
        made.text = value
    return made
