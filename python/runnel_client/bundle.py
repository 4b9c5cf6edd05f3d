"""The bundle format for the Python tools: check a config, list its tensors, read and write files.

A bundle is a directory with config.json, model.safetensors and README.md; docs/bundle.md says what
each key means. Everything here needs numpy alone.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsInt

import numpy as np
import numpy.typing as npt

from runnel_client.errors import BundleError, check

FORMAT = 1

# The same limits as base/limits.h and models/spec.cc; tests/python keeps them equal.
MAX_LAYERS = 256
MAX_WIDTH = 16384
MAX_VOCABULARY = 1 << 20
MAX_POSITIONS = 1 << 31
MAX_CONTEXT = 1 << 24  # positions of softmax attention
MAX_CONFIG_BYTES = 16 << 20
MAX_NAME_LENGTH = 128
MAX_COMPONENTS = 256
MAX_IMAGE_SIDE = 16384
MAX_SYMBOL_BYTES = 64
MAX_HEADER_BYTES = 100 << 20
MAX_FEATURE_NUMBER = 1e6  # of temperature, smoothing and scale
PAGE_POSITIONS = 64  # a cache of keys and values has whole pages

DTYPES = {"f32": ("F32", 4), "f16": ("F16", 2), "bf16": ("BF16", 2)}
POSITION_TABLE = "pos_embedding.pe"

# The feature maps that have random projections, and how few features each can have.
RANDOM_FEATURES = {"favor": 2, "fourier": 2, "smoothed_fourier": 3, "generalized": 1}
FEATURE_MAPS = ("elu", "relu", *RANDOM_FEATURES)
KERNELS = ("relu", "gelu")
INNER_MAP = "attention.inner_attention.feature_map."

# A config.json, or an object within, as json reads it; check_config() says what is wrong with one.
Config = dict[str, Any]
Floats = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]


def shape_text(shape: Iterable[SupportsInt]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


def check_range(key: str, value: int, low: int, high: int) -> None:
    check(low <= value <= high, f"{key}: expected an integer from {low} to {high}, found {value}")


def parse_image(text: str) -> Config:
    """The shape in '28x28x1' or '28x28' (one channel)."""
    match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})(?:x([0-9]{1,6}))?", text)
    if match is None:
        raise BundleError(f"--image: expected HEIGHTxWIDTHxCHANNELS such as 28x28x1, found '{text}'")
    height, width, channels = (int(size or 1) for size in match.groups())
    check_range("--image height", height, 1, MAX_IMAGE_SIDE)
    check_range("--image width", width, 1, MAX_IMAGE_SIDE)
    check(
        channels in (1, 3),
        f"--image channels: expected 1 (grey) or 3 (red, green, blue), found {channels}",
    )
    return {"height": height, "width": width, "channels": channels}


def image_bytes(image: Config) -> int:
    return int(image["height"] * image["width"] * image["channels"])


def parse_symbols(text: str | None, path: str | None) -> list[str] | None:
    """The symbols of a text (a character each) or of a JSON file (an array of strings), or None."""
    check(text is None or path is None, "--symbols and --symbols-file exclude each other; give one")
    if path is not None:
        symbols = read_json(path, "--symbols-file")
        check(
            isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols),
            f"{path}: expected a JSON array of strings",
        )
        return symbols
    return None if text is None else list(text)


def read_json(path: str, flag: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise BundleError(f"{flag}: {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: expected JSON in UTF-8: {error}") from None


def check_config(config: Config) -> None:
    """Refuses a config that the server would refuse: sizes that exceed a limit, or that do not fit each other.

    For families other than the linear transformer, only the server checks the keys of `model`.
    """
    check(
        re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MAX_NAME_LENGTH}}}", config["name"]),
        f"name: expected 1 to {MAX_NAME_LENGTH} characters of A-Z, a-z, 0-9, '.', '_' and '-', "
        f"found '{config['name']}'; give another with --name",
    )
    model = config["model"]
    if model.get("family", "linear_transformer") != "linear_transformer":
        check_range("values", config["values"], 1, MAX_VOCABULARY)
        check_begin(config)
        return
    check_range("model.layers", model["layers"], 1, MAX_LAYERS)
    for key in ("width", "heads", "query_size", "value_size", "ffn"):
        check_range("model." + key, model[key], 1, MAX_WIDTH)
    for key in ("query_size", "value_size"):
        check_range(f"model.heads * model.{key}", model["heads"] * model[key], 1, MAX_WIDTH)
    for group in ("norm",) if is_softmax(model) else ("attention", "norm"):
        eps = np.float32(model[group]["eps"])
        check(0 < eps <= 1, f"model.{group}.eps: expected a number above 0 and at most 1, found {eps}")
    check_attention(model)
    check_range("values", config["values"], 1, MAX_VOCABULARY)
    check_embedding(model)
    check_head(config)
    check_begin(config)
    check_image(config)
    check_symbols(config)
    check_text(config)


def is_softmax(model: Config) -> bool:
    return bool(model["attention"].get("kind") == "softmax")


def check_attention(model: Config) -> None:
    attention = model["attention"]
    kind = attention.get("kind", "linear")
    check(kind in ("linear", "softmax"), f"model.attention.kind: expected linear or softmax, found {kind!r}")
    if is_softmax(model):
        for key in attention:
            check(key in ("kind", "scale"), f"model.attention.{key}: the kind 'softmax' has no such key")
        check_feature_number("scale", attention.get("scale", 1))
        length = model["position"].get("length")
        check(
            length is not None,
            "model.position.length: softmax attention has a last position, found none; give --length",
        )
        check_range("model.position.length", length, 1, MAX_CONTEXT)
        return
    kind = attention["feature_map"]
    check(
        kind in FEATURE_MAPS,
        f"model.attention.feature_map: expected one of {', '.join(FEATURE_MAPS)}, found {kind!r}",
    )
    allowed = {"kind", "feature_map", "eps", "gate"}
    if kind in RANDOM_FEATURES:
        allowed |= {"features", "temperature", "normalize"}
        check_range("model.attention.features", attention["features"], RANDOM_FEATURES[kind], MAX_WIDTH)
        check_range("model.heads * features", model["heads"] * feature_size(model), 1, MAX_WIDTH)
    if kind == "smoothed_fourier":
        allowed.add("smoothing")
    if kind == "generalized":
        allowed.add("kernel")
        check(
            attention["kernel"] in KERNELS,
            f"model.attention.kernel: expected relu or gelu, found {attention['kernel']!r}",
        )
    for key in attention:
        check(key in allowed, f"model.attention.{key}: the feature map '{kind}' has no such key")
    for key in allowed & {"temperature", "smoothing"} & attention.keys():
        check_feature_number(key, attention[key])


def check_feature_number(key: str, number: float) -> None:
    check(
        0 < np.float32(number) <= MAX_FEATURE_NUMBER,
        f"model.attention.{key}: expected a number above 0 and at most 1000000, found {number}",
    )


def projections(attention: Config) -> int:
    """Columns of omega: cosines and sines, and FAVOR+'s two exponentials, come in pairs."""
    count = int(attention["features"])
    if attention["feature_map"] == "generalized":
        return count
    return (count - (attention["feature_map"] == "smoothed_fourier")) // 2


def feature_size(model: Config) -> int:
    """Features of a query or key of one head."""
    attention = model["attention"]
    kind = attention.get("feature_map")
    if kind not in RANDOM_FEATURES:
        return int(model["query_size"])
    pairs = 1 if kind == "generalized" else 2
    return pairs * projections(attention) + (kind == "smoothed_fourier")


def check_embedding(model: Config) -> None:
    width, value_width = model["width"], model["embedding"]["value_width"]
    alone = model["embedding"]["combine"] == "add" or model["position"]["kind"] == "none"
    key = "model.embedding.value_width"
    if alone:
        check(
            value_width == width,
            f"{key}: expected {width}, as it fills model.width, found {value_width}",
        )
    else:
        check(
            1 <= value_width < width,
            f"{key}: expected 1 to {width - 1}, to leave room for positions, found {value_width}",
        )
    length = model["position"].get("length")
    if model["position"]["kind"] == "table" or length is not None:
        check(length is not None, "model.position.length: a position table has a length, found none")
        check_range(
            "model.position.length",
            length,
            1,
            MAX_POSITIONS - 1 if model["position"]["kind"] == "table" else MAX_POSITIONS,
        )


def check_head(config: Config) -> None:
    head = config["model"]["head"]
    if head["kind"] != "mixture_of_logistics":
        return
    check_range("model.head.components", head["components"], 1, MAX_COMPONENTS)
    check(
        config["values"] == 256,
        f"values: a mixture of logistics is over 256 bytes, found {config['values']} values",
    )


def check_begin(config: Config) -> None:
    begin, values = config.get("begin"), config["values"]
    if begin is None:
        return
    if "value" in begin:
        check_range("begin.value", begin["value"], 0, values - 1)
        return
    histogram = begin["histogram"]
    check(
        len(histogram) == values,
        f"begin.histogram: expected {values} numbers, one per value, found {len(histogram)}",
    )
    for index, weight in enumerate(histogram):
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        check(
            number and 0 <= weight <= 3.4e38,
            f"begin.histogram[{index}]: expected a number from 0 to 3.4e38, found {weight!r}",
        )
    check(
        np.asarray(histogram, np.float32).any(),
        "begin.histogram: expected a number above 0, found none",
    )


def check_image(config: Config) -> None:
    image = config.get("image")
    if image is None:
        return
    check(
        "symbols" not in config,
        "--image and --symbols exclude each other: values are bytes or symbols",
    )
    check(
        config["values"] <= 256,
        f"values: an image has at most 256, one per byte, found {config['values']}",
    )
    length = config["model"]["position"].get("length")
    expected = image_bytes(image) - 1
    check(
        length == expected,
        f"model.position.length: expected {expected} (image height * width * channels - 1), found {length}",
    )


def check_symbols(config: Config) -> None:
    symbols, values = config.get("symbols"), config["values"]
    if symbols is None:
        return
    check(len(symbols) == values, f"symbols: expected {values}, one per value, found {len(symbols)}")
    seen = set()
    for index, symbol in enumerate(symbols):
        size = len(symbol.encode("utf-8", "surrogatepass"))
        check(
            1 <= size <= MAX_SYMBOL_BYTES,
            f"symbols[{index}]: expected 1 to {MAX_SYMBOL_BYTES} bytes of UTF-8, found {size}",
        )
        check(
            not re.search("[\ud800-\udfff]", symbol),
            f"symbols[{index}]: expected Unicode text, found a lone surrogate",
        )
        check(
            symbol not in seen,
            f"symbols[{index}]: expected a symbol of its own, found {symbol!r} a second time",
        )
        seen.add(symbol)


def check_text(config: Config) -> None:
    text = config.get("text")
    if text is None:
        return
    check(text in ("bytes", "tokenizer"), f"text: expected 'bytes' or 'tokenizer', found {text!r}")
    for other in ("image", "symbols"):
        check(other not in config, f"text and {other} exclude each other: values are one of them")
    kind = config["model"]["head"]["kind"]
    check(kind == "categorical", f"model.head.kind: text has a categorical head, found {kind}")
    check(
        text != "bytes" or config["values"] == 256,
        f"values: the bytes of text are 256 values, found {config['values']}",
    )


def head_width(config: Config) -> int:
    head = config["model"]["head"]
    return int(3 * head["components"] if head["kind"] == "mixture_of_logistics" else config["values"])


def position_width(model: Config) -> int:
    value_width = model["embedding"]["value_width"]
    return int(value_width if model["embedding"]["combine"] == "add" else model["width"] - value_width)


def expected_tensors(config: Config) -> Shapes:
    """The shape of every tensor of a bundle, by fast-transformers' name."""
    model = config["model"]
    width, ffn = model["width"], model["ffn"]
    queries, values = model["heads"] * model["query_size"], model["heads"] * model["value_size"]
    tensors: Shapes = {"value_embedding.weight": (config["values"], model["embedding"]["value_width"])}
    if model["position"]["kind"] == "table":
        tensors[POSITION_TABLE] = (1, model["position"]["length"], position_width(model))

    def linear(name: str, out: int, inputs: int) -> None:
        tensors[name + ".weight"] = (out, inputs)
        tensors[name + ".bias"] = (out,)

    def norm(name: str) -> None:
        tensors[name + ".weight"] = (width,)
        tensors[name + ".bias"] = (width,)

    for index in range(model["layers"]):
        layer = f"transformer.layers.{index}."
        linear(layer + "attention.query_projection", queries, width)
        linear(layer + "attention.key_projection", queries, width)
        linear(layer + "attention.value_projection", values, width)
        linear(layer + "attention.out_projection", width, values)
        attention = model["attention"]
        if attention.get("feature_map") in RANDOM_FEATURES:
            tensors[layer + INNER_MAP + "omega"] = (model["query_size"], projections(attention))
        if attention.get("normalize"):
            tensors[layer + INNER_MAP + "sigma"] = (model["heads"], model["query_size"])
        if attention.get("gate"):
            linear(layer + "attention.gate", model["heads"], width)
        linear(layer + "linear1", ffn, width)
        linear(layer + "linear2", width, ffn)
        norm(layer + "norm1")
        norm(layer + "norm2")
    if model["norm"]["final"]:
        norm("transformer.norm")
    linear("predictor", head_width(config), width)
    return tensors


def parameters(config: Config) -> int:
    """The number of trained numbers, without the position table and omega, which are not parameters."""
    return sum(math.prod(shape) for name, shape in expected_tensors(config).items() if not is_buffer(name))


def is_buffer(name: str) -> bool:
    return name == POSITION_TABLE or name.endswith(".omega")


def state_bytes(config: Config) -> int:
    """Bytes of one session in fp32: S and z of every layer and head, or pages of keys and values."""
    model = config["model"]
    if is_softmax(model):
        pages = -(-model["position"]["length"] // PAGE_POSITIONS)
        return pages * PAGE_POSITIONS * position_bytes(config)
    return int(4 * model["layers"] * model["heads"] * feature_size(model) * (model["value_size"] + 1))


def position_bytes(config: Config) -> int:
    """Bytes that a session's keys and values take for each position in fp32; 0 with linear attention."""
    model = config["model"]
    size = model["query_size"] + model["value_size"] if is_softmax(model) else 0
    return int(4 * model["layers"] * model["heads"] * size)


def sinusoids(length: int, width: int) -> Floats:
    """The usual position table [1, length, width]: sines on even columns, cosines on odd ones."""
    position = np.arange(length, dtype=np.float64)[:, None]
    angle = position * 10000.0 ** (-2.0 * np.arange((width + 1) // 2) / width)
    table = np.empty((1, length, width), np.float32)
    table[0, :, 0::2] = np.sin(angle)
    table[0, :, 1::2] = np.cos(angle)[:, : width // 2]
    return table


def to_stored(name: str, values: npt.ArrayLike, dtype: str) -> bytes:
    """The little-endian bytes of finite fp32 `values` as `dtype`, rounded to the nearest even."""
    values = np.ascontiguousarray(values, dtype="<f4")
    finite = np.isfinite(values)
    if not finite.all():
        index = np.unravel_index(int(np.argmin(finite)), values.shape)
        raise BundleError(f"tensor '{name}': expected finite numbers, found {values[index]} at {shape_text(index)}")
    if dtype == "f32":
        return values.tobytes()
    if dtype == "f16":
        with np.errstate(over="ignore"):
            stored = values.astype("<f2")
        overflow = ~np.isfinite(stored)
    else:
        bits = values.view("<u4")
        stored = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype("<u2")
        overflow = (stored & 0x7F80) == 0x7F80
    if overflow.any():
        index = np.unravel_index(int(np.argmax(overflow)), values.shape)
        raise BundleError(
            f"tensor '{name}': {values[index]} at {shape_text(index)} does not fit {dtype}; use --dtype f32"
        )
    return stored.tobytes()


def stored_dtype(name: str, dtype: str) -> str:
    """Buffers stay fp32: rounding a table would move every position, and omega every feature."""
    return "f32" if is_buffer(name) else dtype


def write_safetensors(
    path: str,
    shapes: Mapping[str, Sequence[int]],
    make: Callable[[str], Floats],
    dtype: str = "f32",
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes tensors of `shapes` (by name), which make(name) returns one by one to save memory.

    The widest types come first, so that every tensor is aligned to its own size.
    """

    def order(name: str) -> tuple[int, str]:
        return (-DTYPES[stored_dtype(name, dtype)][1], name)

    names = sorted(shapes, key=order)
    offset = 0
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for name in names:
        kind, size = DTYPES[stored_dtype(name, dtype)]
        end = offset + size * math.prod(shapes[name])
        header[name] = {"dtype": kind, "shape": list(shapes[name]), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in names:
            values = make(name)
            check(
                tuple(values.shape) == tuple(shapes[name]),
                f"tensor '{name}': expected shape {shape_text(shapes[name])}, found {shape_text(values.shape)}",
            )
            file.write(to_stored(name, values, stored_dtype(name, dtype)))


def read_safetensors(path: str) -> dict[str, Floats]:
    """All tensors of a file as fp32 arrays, by name. For files that these tools wrote."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        check(
            size <= MAX_HEADER_BYTES,
            f"{path}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {size}",
        )
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        tensors[name] = from_stored(raw, entry["dtype"]).reshape(entry["shape"])
    return tensors


def from_stored(raw: bytes, kind: str) -> Floats:
    """The numbers in a tensor's bytes; `kind` as safetensors names it."""
    if kind == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[kind]).astype(np.float32)


def rounded(name: str, values: Floats, dtype: str) -> Floats:
    """A tensor after it was written to a bundle of that dtype and read back."""
    kind = stored_dtype(name, dtype)
    return from_stored(to_stored(name, values, kind), DTYPES[kind][0]).reshape(values.shape)


def config_text(config: Config) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    size = len(text.encode())
    check(
        size <= MAX_CONFIG_BYTES,
        f"config.json: expected at most {MAX_CONFIG_BYTES} bytes, found {size}; shorten symbols",
    )
    return text


def write_bundle(
    directory: str,
    config: Config,
    make: Callable[[str], Floats],
    dtype: str = "f32",
    card: str = "",
    tokenizer: str | None = None,
    shapes: Shapes | None = None,
) -> None:
    """Writes config.json, model.safetensors, README.md and, if it is given, tokenizer.json, each whole or not at all. A
    family other than the linear transformer needs the `shapes` of its tensors."""
    check_config(config)
    check(
        (config.get("text") == "tokenizer") == (tokenizer is not None),
        "text: 'tokenizer' goes with a tokenizer.json, and only this does",
    )
    shapes = expected_tensors(config) if shapes is None else shapes
    texts = {"config.json": config_text(config), "README.md": card}
    if tokenizer is not None:
        texts["tokenizer.json"] = tokenizer
    paths = {name: os.path.join(directory, name) for name in ("model.safetensors", *texts)}
    temporary = [path + ".tmp" for path in paths.values()]
    is_new = not os.path.exists(directory)
    try:
        os.makedirs(directory, exist_ok=True)
        write_safetensors(temporary[0], shapes, make, dtype, {"format": "pt"})
        for path, content in zip(temporary[1:], texts.values()):
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(content)
        for path, final in zip(temporary, paths.values()):
            os.replace(path, final)
    except OSError as error:
        raise BundleError(f"--out: {error.filename or directory}: {error.strerror}") from None
    finally:
        for path in temporary:
            if os.path.exists(path):
                os.remove(path)
        if is_new and os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)
