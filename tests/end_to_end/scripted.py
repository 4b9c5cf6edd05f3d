"""Writes a bundle that follows a script, so that tests know the form of its answers.

    python3 tests/end_to_end/scripted.py FOLDER

A script is a list of tokens, each a piece of text. The next token depends only on the last one: the
embedding is one-hot, the only layer adds zeros, and the head is a table of next tokens. The weights are
so large that sampling always takes the likeliest token. The chat template ends a prompt with a script's
cue: if there are tools and the user spoke last, the model reasons and calls the tool `depth` twice;
otherwise it answers. Python's standard library is enough to run this.
"""

from __future__ import annotations

import array
import json
import math
import pathlib
import sys
from typing import Any

# The texts of the scripts as answers.
THINKING, REMARK = "The user asks about the ford.", "I measure it."
CALLS = [("depth", {"at": "the ford"}), ("depth", {"at": "the bridge"})]
THINKING_AGAIN, ANSWER = "The result is there.", "Two metres at the ford."
END, CALL, SAY = "<|end|>", "<|call|>", "<|say|>"  # the end of a turn, and the cues

SCRIPTS = {
    CALL: [
        *("<think>", "The user asks", " about", " the ford.", "</think>\n", "I measure it.\n"),
        *('<tool_call>\n{"name": "depth", "argu', 'ments": {"at": "the', ' ford"}}\n', "</tool_call>\n<tool"),
        *('_call>{"name": "depth", "arguments": {"at": "the bridge"}}', "</tool_call>"),
    ],
    SAY: ["<think>The result is there.", "</think>", "\n\nTwo metres", " at the ford", "."],
}

TEMPLATE = """\
{%- for tool in tools or [] %}{{ tool | tojson + '<|end|>' }}{% endfor -%}
{%- for m in messages -%}
{{- m.role + ': ' + (m.content or '') -}}
{%- for call in m.tool_calls or [] -%}
{{- '<tool_call>' + call.function | tojson + '</tool_call>' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'assistant: ' + ('<|call|>' if tools and messages[-1].role == 'user' else '<|say|>') -}}
{%- endif -%}
"""


def tokenizer_of(tokens: list[str]) -> dict[str, Any]:
    """A tokenizer of bytes, followed by `tokens`."""
    letters = {f"<0x{byte:02X}>": byte for byte in range(256)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": 256 + index, "content": token, "special": token.startswith("<|"), **plain}
        for index, token in enumerate(tokens)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "model": {"type": "BPE", "vocab": letters, "merges": [], "byte_fallback": True},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }


def config_of(name: str, values: int) -> dict[str, Any]:
    ones = dict.fromkeys(("layers", "heads", "query_size", "value_size", "ffn"), 1)
    model = {
        **ones,
        "width": values,
        "attention": {"feature_map": "elu", "eps": 1e-6},
        "norm": {"kind": "layer", "placement": "post", "eps": 1e-5, "final": False},
        "activation": "relu",
        "embedding": {"combine": "add", "value_width": values},
        "position": {"kind": "none"},
        "head": {"kind": "categorical"},
    }
    return {"runnel_bundle": 1, "name": name, "model": model, "values": values, "text": "tokenizer"}


def tensors_of(following: list[int]) -> dict[str, tuple[list[int], array.array[float]]]:
    """Maps names to the shape and numbers of each tensor. `following` has the token after each token."""
    values = len(following)

    def table(*places: tuple[int, int], scale: float = 1) -> array.array[float]:
        numbers = array.array("f", bytes(4 * values * values))
        for row, column in places:
            numbers[row * values + column] = scale
        return numbers

    shapes: dict[str, list[int]] = {"predictor.bias": [values]}
    layer = "transformer.layers.0."
    for linear, out, inputs in (
        *((f"attention.{kind}_projection", 1, values) for kind in ("query", "key", "value")),
        *(("attention.out_projection", values, 1), ("linear1", 1, values), ("linear2", values, 1)),
    ):
        shapes |= {f"{layer}{linear}.weight": [out, inputs], f"{layer}{linear}.bias": [out]}
    shapes |= {f"{layer}norm{which}.bias": [values] for which in (1, 2)}
    tensors = {name: (shape, array.array("f", bytes(4 * math.prod(shape)))) for name, shape in shapes.items()}
    tensors |= {f"{layer}norm{which}.weight": ([values], array.array("f", [1] * values)) for which in (1, 2)}
    square = [values, values]
    tensors["value_embedding.weight"] = (square, table(*((token, token) for token in range(values))))
    tensors["predictor.weight"] = (square, table(*((then, token) for token, then in enumerate(following)), scale=100))
    return tensors


def write_safetensors(path: pathlib.Path, tensors: dict[str, tuple[list[int], array.array[float]]]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, (shape, numbers) in tensors.items():
        begin, end = end, end + 4 * len(numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(numbers.tobytes() for _, numbers in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_scripted(folder: pathlib.Path) -> None:
    """Writes a bundle that is named like the folder."""
    tokens = [END, *SCRIPTS, *(piece for pieces in SCRIPTS.values() for piece in pieces)]
    assert len(set(tokens)) == len(tokens), "a piece is said once: it has one next token"
    following = [256] * (256 + len(tokens))
    for cue, pieces in SCRIPTS.items():
        said = [256 + tokens.index(token) for token in (cue, *pieces, END)]
        for token, then in zip(said, said[1:]):
            following[token] = then
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(folder.name, len(following)), indent=2))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(tokens), indent=1))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    write_safetensors(folder / "model.safetensors", tensors_of(following))


if __name__ == "__main__":
    write_scripted(pathlib.Path(sys.argv[1]))
