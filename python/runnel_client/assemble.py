"""Makes a bundle's config and tensors from a checkpoint's tensors: finds the parts of the model and their sizes.

Facts that tensors do not have come from the flags of runnel-convert. An error names the flag that helps.
"""

from __future__ import annotations

import fnmatch
import re
from argparse import Namespace
from collections.abc import Callable, Iterable

import torch

from runnel_client import bundle
from runnel_client.bundle import Config, shape_text
from runnel_client.errors import BundleError, check

Tensors = dict[str, torch.Tensor]

LAYER_MODULES = (
    "attention.query_projection",
    "attention.key_projection",
    "attention.value_projection",
    "attention.out_projection",
    "linear1",
    "linear2",
    "norm1",
    "norm2",
)
GATE = (("weight", 2), ("bias", 1))
OMEGA = bundle.INNER_MAP + "omega"
LAYER_TENSORS = tuple(f"{module}.{kind}" for module in LAYER_MODULES for kind in ("weight", "bias"))

# Parts of tensor names that show another kind of attention, and the reason why it cannot be served.
REFUSED = (
    (
        "feature_map.omega",
        "a random feature map; say which with --feature-map favor, fourier, smoothed_fourier or generalized",
    ),
    (
        "attention.inner_attention",
        "an attention other than linear and softmax, which have no tensors of their own but a feature map's omega",
    ),
    ("softmax_temp", "softmax attention; say --attention softmax, --softmax-temp and --ignore '*.softmax_temp'"),
    ("cross_attention", "a decoder that attends to another sequence; only encoders are served"),
    ("self_attention", "a decoder; only encoders are served"),
    (
        "self_attn",
        "torch.nn's own softmax attention; only fast-transformers' linear and softmax attention are served",
    ),
    ("norm3", "a decoder; only encoders are served"),
)


# --- Finding the model's parts ---


def find_encoder(tensors: Tensors, asked: str | None) -> str:
    """The prefix before 'layers.0.' of the only encoder, with its dot."""
    prefixes = set()
    for name in tensors:
        match = re.match(r"(|.*?\.)layers\.\d+\.", name)
        if match:
            prefixes.add(match.group(1))
    check(
        prefixes,
        "expected an encoder of fast-transformers, with tensors such as "
        f"'transformer.layers.0.linear1.weight', found {sample(tensors)}",
    )
    shown = ", ".join(repr(prefix.rstrip(".")) for prefix in sorted(prefixes))
    if asked is not None:
        prefix = asked.rstrip(".") + "." if asked.rstrip(".") else ""
        check(prefix in prefixes, f"--encoder: expected one of {shown}, found '{asked}'")
        return prefix
    check(
        len(prefixes) == 1,
        f"expected one encoder, found several: {shown}; choose one with --encoder",
    )
    return prefixes.pop()


def sample(names: Iterable[str], count: int = 4) -> str:
    names = list(names)
    return ", ".join(f"'{name}'" for name in names[:count]) + (", ..." if len(names) > count else "")


def refuse_other_attention(tensors: Tensors, prefix: str, feature_map: str) -> None:
    for name in tensors:
        if not name.startswith(prefix + "layers."):
            continue
        if feature_map in bundle.RANDOM_FEATURES and name.endswith(f".{OMEGA}"):
            continue
        for part, reason in REFUSED:
            check(f".{part}" not in name, f"tensor '{name}': {reason}")


class Parts:
    """Takes tensors out of the checkpoint under the bundle's names, and keeps the remaining ones in `left`."""

    def __init__(self, tensors: Tensors):
        self.left = dict(tensors)
        self.all = tensors
        self.taken: Tensors = {}

    def take(self, name: str, as_name: str, dims: int) -> torch.Tensor:
        tensor = self.all[name]
        plain = tensor.layout == torch.strided and tensor.dtype in (
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
        )
        check(
            plain,
            f"tensor '{name}': expected floating-point numbers, found {tensor.dtype} ({tensor.layout})",
        )
        check(
            tensor.dim() == dims,
            f"tensor '{name}': expected {dims} dimension{'s' * (dims > 1)}, found {shape_text(tensor.shape)}",
        )
        self.left.pop(name, None)
        self.taken[as_name] = tensor
        return tensor

    def candidates(self, fits: Callable[[torch.Tensor], bool]) -> str:
        found = [f"'{name}' {shape_text(tensor.shape)}" for name, tensor in self.left.items() if fits(tensor)]
        return "; it could be " + " or ".join(found[:4]) if found else ""


def take_omega(parts: Parts, prefix: str, layers: int) -> int:
    """Takes the projections of every layer; returns how many there are."""
    for index in range(layers):
        name = f"{prefix}layers.{index}.{OMEGA}"
        check(
            name in parts.all,
            f"tensor '{name}' is missing: a random feature map is stored in every layer",
        )
        omega = parts.take(name, f"transformer.layers.{index}.{OMEGA}", 2)
        check(
            bool(omega.any()),
            f"tensor '{name}': expected random projections, found zeros only: the checkpoint was "
            "saved before the feature map had drawn any",
        )
    return int(omega.shape[1])


def take_gate(parts: Parts, prefix: str, layers: int) -> bool:
    """Takes the gate of every layer, as training/train.py --endless writes it; returns whether there is one."""
    tensors = [(f"layers.{index}.attention.gate.{kind}", dims) for index in range(layers) for kind, dims in GATE]
    if not any(prefix + name in parts.all for name, _ in tensors):
        return False
    for name, dims in tensors:
        check(prefix + name in parts.all, f"tensor '{prefix}{name}' is missing: every layer has a gate, or none")
        parts.take(prefix + name, f"transformer.{name}", dims)
    return True


def take_encoder(parts: Parts, prefix: str) -> tuple[int, bool]:
    """Takes the encoder; returns how many layers it has, and whether a final norm."""
    pattern = re.compile(re.escape(prefix) + r"layers\.(\d+)\.(.+)")
    layers: dict[int, set[str]] = {}
    for name in parts.all:
        match = pattern.fullmatch(name)
        if match:
            layers.setdefault(int(match.group(1)), set()).add(match.group(2))
    count = max(layers) + 1
    check(
        count <= bundle.MAX_LAYERS,
        f"'{prefix}layers.{count - 1}': expected at most {bundle.MAX_LAYERS} layers",
    )
    for index in range(count):
        for tensor in LAYER_TENSORS:
            name = f"{prefix}layers.{index}.{tensor}"
            check(
                name in parts.all,
                f"tensor '{name}' is missing (the encoder has {count} layers by its last name)",
            )
            dims = 2 if tensor.endswith("weight") and "norm" not in tensor else 1
            parts.take(name, f"transformer.layers.{index}.{tensor}", dims)
    has_norm = prefix + "norm.weight" in parts.all
    if has_norm:
        check(
            prefix + "norm.bias" in parts.all,
            f"tensor '{prefix}norm.bias' is missing beside its weight",
        )
        for kind in ("weight", "bias"):
            parts.take(f"{prefix}norm.{kind}", f"transformer.norm.{kind}", 1)
    return count, has_norm


def find_named(
    parts: Parts,
    asked: str | None,
    flag: str,
    default: str,
    what: str,
    fits: Callable[[torch.Tensor], bool],
    kind: str = "weight",
) -> str:
    """The full name of the tensor that a flag or the authors' code names, under any prefix."""
    wanted = asked or default
    for name in (wanted, f"{wanted}.{kind}"):
        if name in parts.all:
            return name
    if asked is None:
        found = [name for name in parts.left if name.endswith((f".{default}", f".{default}.{kind}"))]
        check(len(found) < 2, f"expected one {what}, found {sample(found)}; choose one with {flag}")
        if found:
            return found[0]
    problem = f"{flag}: expected a tensor's name, found '{asked}'" if asked else f"no {what}: there is no '{default}'"
    raise BundleError(
        f"{problem}{parts.candidates(fits)}; name it with {flag}, and give the file that holds it "
        "as a further CHECKPOINT if it is elsewhere"
    )


def take_embedding(parts: Parts, width: int, args: Namespace) -> tuple[int, int]:
    name = find_named(
        parts,
        args.embedding,
        "--embedding",
        "value_embedding",
        "value embedding",
        lambda tensor: tensor.dim() == 2 and tensor.shape[1] <= width,
    )
    values, value_width = parts.take(name, "value_embedding.weight", 2).shape
    return values, value_width


def take_predictor(parts: Parts, width: int, args: Namespace) -> int:
    name = find_named(
        parts,
        args.predictor,
        "--predictor",
        "predictor",
        "output layer",
        lambda tensor: tensor.dim() == 2 and tensor.shape[1] == width,
    )
    weight = parts.take(name, "predictor.weight", 2)
    check(
        weight.shape[1] == width,
        f"tensor '{name}': expected [outputs, {width}], found {shape_text(weight.shape)}",
    )
    bias = name[: -len("weight")] + "bias" if name.endswith("weight") else ""
    if bias in parts.all:
        parts.take(bias, "predictor.bias", 1)
    else:
        parts.taken["predictor.bias"] = torch.zeros(weight.shape[0])
    return int(weight.shape[0])


def take_position(parts: Parts, width: int, value_width: int, args: Namespace) -> tuple[Config, Config]:
    """The 'embedding' and 'position' of the config."""
    check(
        value_width <= width,
        f"the value embedding is {value_width} wide: expected at most {width}, the encoder's width",
    )
    if args.position_kind != "table":
        check(
            args.position is None,
            f"--position names a table: it excludes --position-kind {args.position_kind}",
        )
        position: Config = {"kind": args.position_kind}
        length = args.length
        if length is None and args.image is not None:
            length = bundle.image_bytes(args.image) - 1
        if length is not None:
            position["length"] = length
        combine = "add" if args.position_kind == "sinusoidal" and value_width == width else "concat"
        return {"combine": combine, "value_width": value_width}, position
    check(
        args.length is None,
        "--length: a position table has its own; use it with --position-kind sinusoidal or none",
    )
    name = find_table(parts, width, value_width, args)
    table = parts.all[name]
    if table.dim() == 2:
        parts.all[name] = table = table.unsqueeze(0)
    table = parts.take(name, bundle.POSITION_TABLE, 3)
    check(
        table.shape[0] == 1,
        f"tensor '{name}': expected [1, length, width], found {shape_text(table.shape)}",
    )
    if value_width + table.shape[2] == width:
        combine = "concat"
    else:
        check(
            value_width == width == table.shape[2],
            f"tensor '{name}': expected a width of {width - value_width} (beside the embedding's "
            f"{value_width}, {width} together) or embedding and table both {width} wide (added), "
            f"found {table.shape[2]}",
        )
        combine = "add"
    return {"combine": combine, "value_width": value_width}, {
        "kind": "table",
        "length": table.shape[1],
    }


def find_table(parts: Parts, width: int, value_width: int, args: Namespace) -> str:
    try:
        return find_named(
            parts,
            args.position,
            "--position",
            "pos_embedding",
            "position table",
            lambda tensor: tensor.dim() in (2, 3) and tensor.shape[-1] in (width, width - value_width),
            kind="pe",
        )
    except BundleError as error:
        raise BundleError(f"{error}; or say --position-kind sinusoidal or none, if it has no table") from None


# --- The config ---


def divisors(*numbers: int) -> list[int]:
    return [n for n in range(1, min(numbers) + 1) if all(number % n == 0 for number in numbers)]


def choose_heads(queries: int, values: int, asked: int | None) -> int:
    possible = ", ".join(str(n) for n in divisors(queries, values))
    fact = f"it must divide {queries} (query_projection) and {values} (value_projection), so one of {possible}"
    if asked is None:
        raise BundleError(f"--heads is needed, as tensors do not tell it: {fact}")
    check(
        asked >= 1 and queries % asked == 0 and values % asked == 0,
        f"--heads {asked} is impossible: {fact}",
    )
    return asked


def choose_softmax(args: Namespace, gate: bool) -> Config:
    """The 'attention' of the config, of softmax attention."""
    check(not gate, "--attention softmax: the checkpoint has a gate, which goes with linear attention")
    usual = {"feature_map": "elu", "attention_eps": 1e-6, "stabilize": False}
    for key in (*usual, "features", "temperature", "smoothing", "kernel"):
        check(
            getattr(args, key) == usual.get(key),
            f"--{key.replace('_', '-')} goes with --attention linear",
        )
    return {"kind": "softmax"} | ({} if args.softmax_temp is None else {"scale": args.softmax_temp})


def choose_attention(args: Namespace, query_size: int, projections: int | None, gate: bool) -> Config:
    """The 'attention' of the config."""
    if args.attention == "softmax":
        return choose_softmax(args, gate)
    check(args.softmax_temp is None, "--softmax-temp goes with --attention softmax; a feature map has --temperature")
    check(
        not args.stabilize,
        "--stabilize: it subtracts a maximum over the whole sequence, of which a recurrent network "
        "has not seen the end; only a model trained without it can be served",
    )
    kind = args.feature_map
    attention: Config = {"feature_map": kind, "eps": args.attention_eps} | ({"gate": True} if gate else {})
    given = {
        key: getattr(args, key)
        for key in ("features", "temperature", "smoothing", "kernel")
        if getattr(args, key) is not None
    }
    for key in given:
        fits = {"smoothing": ("smoothed_fourier",), "kernel": ("generalized",)}
        check(
            kind in fits.get(key, bundle.RANDOM_FEATURES),
            f"--{key} says nothing about the feature map {kind}",
        )
    if projections is None:
        return attention
    usual: Config = {"features": query_size}
    if kind == "generalized":
        usual = {"features": projections, "kernel": "relu"}
    attention |= usual | given
    found = bundle.projections(attention)
    possible = f"{projections}"
    if kind != "generalized":
        least = 2 * projections + (kind == "smoothed_fourier")
        possible = f"{least} or {least + 1}"
    check(
        found == projections,
        f"--features {attention['features']} is impossible: omega has {projections} columns, so "
        f"{kind} was made with {possible} features",
    )
    return attention


def choose_head(outputs: int, vocabulary: int, image: Config | None) -> Config:
    """The 'head' of the config."""
    if image and vocabulary == 256 and outputs % 3 == 0:
        return {"kind": "mixture_of_logistics", "components": outputs // 3}
    if outputs == vocabulary:
        return {"kind": "categorical"}
    hint = ""
    if vocabulary == 256 and outputs % 3 == 0:
        hint = f"; as a mixture of {outputs // 3} logistics it needs --image HxWxC"
    elif image:
        hint = "; a mixture of logistics has 3 outputs per component and 256 values"
    raise BundleError(
        f"the output layer has {outputs} outputs and there are {vocabulary} values: expected one per value{hint}"
    )


def check_image_length(image: Config | None, position: Config) -> None:
    """Refuses an image whose shape does not fit the number of positions. The error lists shapes that fit."""
    length = position.get("length")
    if image is None or length is None or length == bundle.image_bytes(image) - 1:
        return
    total = length + 1
    possible = [
        f"{side}x{side}x{channels}" for channels in (1, 3) for side in range(1, 4096) if side * side * channels == total
    ]
    more = f", such as {' or '.join(possible)}" if possible else ""
    shape = "x".join(str(image[key]) for key in ("height", "width", "channels"))
    raise BundleError(
        f"--image {shape} is impossible: it has {bundle.image_bytes(image)} bytes, and with "
        f"{length} positions height * width * channels must be {total}{more}"
    )


def choose_begin(args: Namespace, notes: list[str]) -> Config | None:
    """The 'begin' of the config, or None."""
    check(
        args.begin is None or args.begin_histogram is None,
        "--begin and --begin-histogram exclude each other; give one",
    )
    if args.begin_histogram is not None:
        histogram = bundle.read_json(args.begin_histogram, "--begin-histogram")
        check(isinstance(histogram, list), f"{args.begin_histogram}: expected a JSON array of numbers")
        return {"histogram": histogram}
    if args.begin == "none":
        return None
    if args.begin is not None:
        check(
            re.fullmatch(r"[0-9]{1,7}", args.begin),
            f"--begin: expected a value or 'none', found '{args.begin}'",
        )
        return {"value": int(args.begin)}
    if args.image and args.image["channels"] == 1:
        notes.append("fresh images begin with 0; --begin says otherwise")
        return {"value": 0}
    notes.append("fresh sequences need a prompt; --begin or --begin-histogram gives them a first value")
    return None


def build(tensors: Tensors, args: Namespace, notes: list[str]) -> tuple[Config, Tensors]:
    """The config and the bundle's tensors. Appends to `notes` facts that the user may want to know."""
    ignored = [name for name in tensors if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.ignore)]
    tensors = {name: tensor for name, tensor in tensors.items() if name not in ignored}
    prefix = find_encoder(tensors, args.encoder)
    refuse_other_attention(tensors, prefix, args.feature_map)
    parts = Parts(tensors)
    layers, final_norm = take_encoder(parts, prefix)
    projections = None
    if args.feature_map in bundle.RANDOM_FEATURES:
        projections = take_omega(parts, prefix, layers)
    gate = take_gate(parts, prefix, layers)
    first = "transformer.layers.0."
    queries, width = parts.taken[first + "attention.query_projection.weight"].shape
    values = parts.taken[first + "attention.value_projection.weight"].shape[0]
    vocabulary, value_width = take_embedding(parts, width, args)
    outputs = take_predictor(parts, width, args)
    embedding, position = take_position(parts, width, value_width, args)
    check(
        not parts.left,
        f"tensors that have no place in a bundle: {sample(parts.left)}; if they take "
        "no part in the forward pass, say --ignore PATTERN",
    )
    heads = choose_heads(queries, values, args.heads)
    check_image_length(args.image, position)
    config: Config = {
        "runnel_bundle": bundle.FORMAT,
        "name": args.name,
        "model": {
            "layers": layers,
            "width": width,
            "heads": heads,
            "query_size": queries // heads,
            "value_size": values // heads,
            "ffn": parts.taken[first + "linear1.weight"].shape[0],
            "attention": choose_attention(args, queries // heads, projections, gate),
            "norm": {
                "kind": "layer",
                "placement": "post",
                "eps": args.norm_eps,
                "final": final_norm,
            },
            "activation": args.activation,
            "embedding": embedding,
            "position": position,
            "head": choose_head(outputs, vocabulary, args.image),
        },
        "values": vocabulary,
    }
    begin = choose_begin(args, notes)
    if begin is not None:
        config["begin"] = begin
    if args.image is not None:
        config["image"] = args.image
    symbols = bundle.parse_symbols(args.symbols, args.symbols_file)
    if symbols is not None:
        config["symbols"] = symbols
    check(
        not args.text or args.tokenizer is None,
        "--text and --tokenizer exclude each other: values are bytes or tokens",
    )
    if args.text or args.tokenizer is not None:
        config["text"] = "bytes" if args.text else "tokenizer"
    return config, parts.taken
