"""The sizes of networks and the settings of their training, by names such as `mnist paper`."""

from runnel_client import bundle

# batch: sequences in a step; lr: the peak; warmup: the steps up to the peak; steps: used if no time is given.
# mnist, cifar10 and copy at size `paper` are the networks of Katharopoulos et al. 2020. There is no text in the paper:
# `paper` is as large as 5 MiB of bf16 weights allow. `small` is what two CPU cores can train.
RECIPES = {
    "mnist": {
        "paper": {"layers": 8, "heads": 8, "batch": 128, "lr": 3e-4, "warmup": 1000, "steps": 30_000},
        "small": {"layers": 4, "heads": 4, "batch": 16, "lr": 3e-4, "warmup": 200, "steps": 6_000},
    },
    "cifar10": {
        "paper": {"layers": 16, "heads": 8, "batch": 48, "lr": 2e-4, "warmup": 1000, "steps": 20_000},
        "small": {"layers": 4, "heads": 4, "batch": 4, "lr": 4e-4, "warmup": 200, "steps": 6_000},
    },
    "text": {
        "paper": {"layers": 5, "heads": 6, "batch": 64, "lr": 1.5e-3, "warmup": 500, "steps": 20_000},
        "small": {"layers": 4, "heads": 4, "batch": 16, "lr": 2e-3, "warmup": 100, "steps": 2_500, "length": 512},
    },
    "copy": {
        "paper": {"layers": 4, "heads": 8, "batch": 64, "lr": 1e-3, "warmup": 100, "steps": 10_000},
        "small": {"layers": 4, "heads": 3, "batch": 32, "lr": 2e-3, "warmup": 100, "steps": 6_000},
    },
}
HEAD_SIZE = 32
COMPONENTS = 10


TAPS = 4  # inputs of the convolutions of Gated DeltaNet
# A family's FFN is width * first // second, and a rank is width // its number: so the sizes above have about as many
# parameters as the linear transformer has.
FFN = {"gated_deltanet": (35, 16), "rwkv7": (13, 4)}
RANKS = {"decay": 8, "rate": 8, "value": 8, "gate": 4}


def spec_of_family(family, name, data, layers, heads):
    """The config.json of a Gated DeltaNet or an RWKV-7 model of bytes. Neither has a last position."""
    width = heads * HEAD_SIZE
    times, by = FFN[family]
    sizes = {"layers": layers, "width": width, "heads": heads, "ffn": times * width // by}
    if family == "rwkv7":
        model = {"family": "rwkv7", "names": "official", **sizes, "value_width": width}
        model |= {"ranks": {rank: max(1, width // part) for rank, part in RANKS.items()}}
        model |= {"norm_eps": 1e-5, "head_norm_eps": 64e-5}
    else:
        model = {"family": "gated_linear", "mixer": family, **sizes, "key_heads": heads}
        model |= {"key_size": HEAD_SIZE, "value_size": HEAD_SIZE, "taps": TAPS, "decay_rank": 0, "gate_rank": 0}
        model |= {"map": "silu", "key_norm": "l2", "norm_eps": 1e-6}
    model["table_rows"] = data.values
    config = {"runnel_bundle": bundle.FORMAT, "name": name, "model": model, "values": data.values, "text": "bytes"}
    return config | {"begin": data.begin}


def spec(name, data, layers, heads, endless=False, softmax=False):
    """The config.json of a network for a data set.

    An endless one has no last position: it has no positions at all, and a gate, by which it forgets. Its state keeps
    its size in numbers however many values it has seen, and what it learns at one length holds at any other.

    `softmax` changes the attention and nothing else: the paper compares the two.
    """
    width = heads * HEAD_SIZE
    config = {
        "runnel_bundle": bundle.FORMAT,
        "name": name,
        "model": {
            "layers": layers,
            "width": width,
            "heads": heads,
            "query_size": HEAD_SIZE,
            "value_size": HEAD_SIZE,
            "ffn": 4 * width,
            "attention": {"kind": "softmax"} if softmax else {"feature_map": "elu", "eps": 1e-6},
            "norm": {"kind": "layer", "placement": "post", "eps": 1e-5, "final": True},
            "activation": "relu" if data.image or data.unit == "symbol" else "gelu",
            "embedding": {"combine": "concat", "value_width": width // 2},
            # A text's positions are computed: a table would cost a tenth of its weights.
            "position": {"kind": "sinusoidal" if data.unit == "byte" else "table", "length": data.length},
            "head": {"kind": "categorical"},
        },
        "values": data.values,
    }
    if endless:
        config["model"]["attention"]["gate"] = True
        config["model"]["embedding"]["value_width"] = width
        config["model"]["position"] = {"kind": "none"}
    if data.begin:
        config["begin"] = data.begin
    if data.image:
        config["model"]["head"] = {"kind": "mixture_of_logistics", "components": COMPONENTS}
        config["image"] = data.image
    if data.unit == "byte":
        config["text"] = "bytes"
    return config
