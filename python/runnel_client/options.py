"""The options of `generate`: their types, what they mean, and how help() shows them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, cast, get_type_hints

from runnel_client.conversation import Message, Variable

Function = TypeVar("Function", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """What a call that samples may be given. An option that is left out has the server's default.

    So has an option that is None, except expected_position.

    model: the model's name, or one of its aliases; it may be left out if the server has one model
    messages: a conversation in place of the prompt, in the form of OpenAI's API; on a session only the new messages
    tools: tools that the answer may call, likewise; the calls are part of its text
    variables: of the chat template, such as {"enable_thinking": False}
    continues: the answer continues the last message, which is the assistant's
    state: starts from a stored state of this name (`Client.states` lists them)
    token: starts from a state token, `finished[0].token` of an earlier call with include_state
    include_state: end with a state token, from which any server with the same seal keys continues; for one sample
    samples: number of independent continuations of the prompt
    max_values: most values to sample, 0 only feeds; default: to the last position, limits.chat_values for messages
    max_time: seconds after which every sample ends, with reason TIME
    max_queue_time: seconds that the call may wait in the server for a free state
    seed: the same seed gives the same values; default: drawn by the server
    temperature: below 1 makes likely values likelier, above 1 less likely; 0, and below 0.001, is greedy; default: 1
    top_k: sample from the `top_k` most likely values alone
    top_p: sample from the most likely values that together have this probability
    min_p: leave out values that are less likely than `min_p` times the most likely one
    greedy: take the most likely value each time
    repetition_penalty: above 1 makes the sequence's last values less likely, given and sampled ones alike
    presence_penalty: taken from the logit of each value that this call has sampled, -2 to 2
    frequency_penalty: the same, as often as the value has been sampled
    logit_bias: a term for the logit of each of these values, -100 to 100
    stop: a text, or a list of texts and of lists of values; a sample ends when it has sampled one of them
    ignore_eos: continue after a value that ends the model's texts
    top_log_probs: number of most likely values to report at each position
    keep: keep the sequence: in the session, or as a new session that `started.session` names
    begin: feed the model's first value before the prompt; default: True for text, False for values
    expected_position: raise Aborted unless the session is there; default: where its last call ended; None: no check
    request_id: names the call, so that it can be made again; default: a random id
    values_per_message: values that the server sends together, at most
    message_delay: seconds that a value may wait for others, to be sent together
    timeout: seconds that the call may take, all attempts together; default: the client's
    progress: a function that is called with the number of values that have come since its last call
    """

    model: str | None
    messages: Sequence[Message] | None
    tools: Sequence[Mapping[str, Any]] | None
    variables: Mapping[str, Variable] | None
    continues: bool | None
    state: str | None
    token: bytes | None
    include_state: bool | None
    samples: int | None
    max_values: int | None
    max_time: float | None
    max_queue_time: float | None
    seed: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    greedy: bool | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    stop: str | Sequence[str | Sequence[int]] | None
    ignore_eos: bool | None
    top_log_probs: int | None
    keep: bool | None
    begin: bool | None
    expected_position: int | None
    request_id: str | None
    values_per_message: int | None
    message_delay: float | None
    timeout: float | None
    progress: Callable[[int], object] | None


CONVERSATION = ("messages", "tools", "variables", "continues")  # the options that take the place of a prompt


class _LeftOut:
    """The default of an option, as help() shows it."""

    def __repr__(self) -> str:
        return "..."


def takes_options(*fixed: str) -> Callable[[Function], Function]:
    """Decorates a function that takes **options: refuses options that it sets itself, and help() shows the others."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            for name in fixed:
                if name in options:
                    raise TypeError(f"{function.__name__}() has no option {name!r}")
            return function(*arguments, **options)

        @functools.wraps(function)
        async def awaited(*arguments: Any, **options: Any) -> Any:
            return await checked(*arguments, **options)

        signature = inspect.signature(function)
        given = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        names = [name for name in Options.__annotations__ if name not in fixed]
        shown: Any = awaited if inspect.iscoroutinefunction(function) else checked
        shown.__signature__ = signature.replace(
            parameters=[*given, *(_parameter(name) for name in names)],
        )
        lines = [line for line in (inspect.getdoc(Options) or "").splitlines() if line.partition(":")[0] in names]
        shown.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n" + "\n".join(f"  {line}" for line in lines)
        return cast(Function, shown)

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=_LeftOut(), annotation=get_type_hints(Options)[name])
