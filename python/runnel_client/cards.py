"""Describes a bundle in words, from its config: the table of its card, and one line for the terminal."""

from __future__ import annotations

import os

from runnel_client import bundle
from runnel_client.bundle import Config

FIXED = "whatever its length"  # of a state


def head_text(config: Config) -> str:
    head = config["model"]["head"]
    if head["kind"] == "mixture_of_logistics":
        return f"mixture of {head['components']} logistics over bytes"
    return f"categorical over {config['values']} values"


def position_text(config: Config) -> str:
    position = config["model"]["position"]
    if position["kind"] == "none":
        text = "none"
    else:
        text = {"table": "stored table", "sinusoidal": "sinusoidal"}[position["kind"]]
        text += {
            "concat": ", beside the value's embedding",
            "add": ", added to the value's embedding",
        }[config["model"]["embedding"]["combine"]]
    length = position.get("length")
    return text + (f"; {length:,} inputs at most" if length else "; no last position")


def begin_text(config: Config) -> str:
    begin = config.get("begin")
    if begin is None:
        return "none: a fresh sequence needs a prompt"
    return f"value {begin['value']}" if "value" in begin else "drawn from a histogram"


def attention_text(attention: Config) -> str:
    if attention.get("kind") == "softmax":
        scale = f"{attention['scale']:g}" if "scale" in attention else "1 / sqrt(size of a query)"
        return f"softmax, scale {scale}"
    kind = attention["feature_map"]
    text = (
        "linear, feature map "
        + {
            "elu": "elu(x) + 1",
            "relu": "relu(x)",
            "favor": "FAVOR+",
            "fourier": "random Fourier features",
            "smoothed_fourier": "smoothed random Fourier features",
            "generalized": f"generalized random features ({attention.get('kernel')})",
        }[kind]
    )
    if kind in bundle.RANDOM_FEATURES:
        text += f", {attention['features']} features"
    if attention.get("normalize"):
        text += " of unit vectors"
    return text + (", with a gate that forgets" if attention.get("gate") else "")


def state_text(config: Config) -> str:
    text = f"{bundle.state_bytes(config):,} bytes (fp32), "
    if not bundle.is_softmax(config["model"]):
        return text + FIXED
    length = config["model"]["position"]["length"]
    return (
        text
        + f"{bundle.position_bytes(config):,} for each of {length:,} positions, in pages of {bundle.PAGE_POSITIONS}"
    )


def table(rows: list[tuple[str, str]], parameters: int, dtype: str, state: str) -> str:
    """A Markdown table of `rows`, followed by the rows that every card has at its end."""
    rows = [
        *rows,
        ("parameters", f"{parameters:,}"),
        ("stored as", bundle.DTYPES[dtype][0]),
        ("state per session", state),
    ]
    return "| | |\n| --- | --- |\n" + "".join(f"| {key} | {value} |\n" for key, value in rows)


def card_table(config: Config, dtype: str) -> str:
    """The facts of a model card that follow from its config, as rows of a Markdown table."""
    model = config["model"]
    rows = [
        ("layers", str(model["layers"])),
        ("width", f"{model['width']} (FFN {model['ffn']}, {model['activation']})"),
        (
            "heads",
            f"{model['heads']}, queries of {model['query_size']}, values of {model['value_size']}",
        ),
        ("attention", attention_text(model["attention"])),
        ("values", f"{config['values']:,}"),
        ("positions", position_text(config)),
        ("head", head_text(config)),
        ("begin", begin_text(config)),
    ]
    if "image" in config:
        image = config["image"]
        rows.append(("image", f"{image['height']} x {image['width']} x {image['channels']} bytes"))
    return table(rows, bundle.parameters(config), dtype, state_text(config))


def summary_of(directory: str, name: str, sizes: str, parameters: int, state_bytes: int) -> str:
    """One line for the terminal."""
    size = os.path.getsize(os.path.join(directory, "model.safetensors"))
    return (
        f"{directory}: {name}: {sizes}; {parameters:,} parameters, "
        f"{size:,} bytes of weights, {state_bytes:,} bytes of state per session"
    )


def summary(directory: str, config: Config) -> str:
    """summary_of() a bundle of a transformer."""
    model = config["model"]
    sizes = f"{model['layers']} layers, width {model['width']}, {model['heads']} heads, {head_text(config)}"
    return summary_of(directory, config["name"], sizes, bundle.parameters(config), bundle.state_bytes(config))
