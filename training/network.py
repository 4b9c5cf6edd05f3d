"""The network of docs/bundle.md in PyTorch, for training; its parameters have the names of the bundle's tensors."""

import torch
from torch import nn
from torch.nn import functional

from attention import causal_linear_attention, causal_softmax_attention
from runnel_client import bundle, cards


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        queries, values = (model["heads"] * model[key] for key in ("query_size", "value_size"))
        self.heads, self.softmax = model["heads"], bundle.is_softmax(model)
        self.eps, self.scale = (model["attention"].get(key) for key in ("eps", "scale"))
        self.query_projection = nn.Linear(model["width"], queries)
        self.key_projection = nn.Linear(model["width"], queries)
        self.value_projection = nn.Linear(model["width"], values)
        self.out_projection = nn.Linear(values, model["width"])
        self.gate = None
        if model["attention"].get("gate"):
            self.gate = nn.Linear(model["width"], self.heads)
            with torch.no_grad():
                self.gate.bias.copy_(torch.logit(1 - 1 / memory_lengths(self.heads)))

    def forward(self, x):
        projections = (self.query_projection, self.key_projection, self.value_projection)
        q, k, v = (project(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3) for project in projections)
        if self.softmax:
            y = causal_softmax_attention(q, k, v, self.scale)
        else:
            gate = None if self.gate is None else self.gate(x).transpose(-1, -2)
            y = causal_linear_attention(q, k, v, self.eps, gate=gate)
        return self.out_projection(y.transpose(-2, -3).flatten(-2))


def memory_lengths(heads):
    """How many values each head remembers before training, from 2 to 128. Short memories replace positions."""
    return torch.logspace(1, 7, heads, base=2)


class Layer(nn.Module):
    """Post-norm: attention, then the feed-forward part, each added to its input and normalized."""

    def __init__(self, model):
        super().__init__()
        width, eps = model["width"], model["norm"]["eps"]
        self.attention = Attention(model)
        self.linear1 = nn.Linear(width, model["ffn"])
        self.linear2 = nn.Linear(model["ffn"], width)
        self.norm1 = nn.LayerNorm(width, eps)
        self.norm2 = nn.LayerNorm(width, eps)
        self.activation = {"relu": functional.relu, "gelu": functional.gelu}[model["activation"]]

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.linear2(self.activation(self.linear1(x))))


class Encoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.layers = nn.ModuleList(Layer(model) for _ in range(model["layers"]))
        if model["norm"]["final"]:
            self.norm = nn.LayerNorm(model["width"], model["norm"]["eps"])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) if hasattr(self, "norm") else x


class PositionTable(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.register_buffer("pe", torch.from_numpy(bundle.sinusoids(length, width)))


class Network(nn.Module):
    """Computes the head's outputs [B, N, outputs] for all values [B, N] in one parallel pass."""

    def __init__(self, config):
        super().__init__()
        self.config, model = config, config["model"]
        self.distribution = model["head"]
        self.title, self.how = "A linear transformer", "as a recurrent network"  # on its card
        if bundle.is_softmax(model):
            self.title, self.how = "A transformer with softmax attention", "with a cache of keys and values"
        self.value_embedding = nn.Embedding(config["values"], model["embedding"]["value_width"])
        if model["position"]["kind"] == "table":
            width = bundle.position_width(model)
            self.pos_embedding = PositionTable(model["position"]["length"], width)
        self.computed = None  # the sinusoidal positions that were needed so far
        self.transformer = Encoder(model)
        self.predictor = nn.Linear(model["width"], bundle.head_width(config))

    def forward(self, values):
        x = self.value_embedding(values)
        positions = self.positions(values.shape[1], x)
        if positions is not None:
            add = self.config["model"]["embedding"]["combine"] == "add"
            x = x + positions if add else torch.cat([x, positions.expand(len(x), -1, -1)], -1)
        x = self.transformer(x)
        # In bf16, the rounding error of a mean can be a quarter of a grey level, and no later sum averages it out.
        with torch.autocast(x.device.type, enabled=False):
            return self.predictor(x)

    def positions(self, length, like):
        """The positions' vectors [1, length, width], or None."""
        model = self.config["model"]
        if model["position"]["kind"] == "none":
            return None
        if model["position"]["kind"] == "table":
            return self.pos_embedding.pe[:, :length]
        if self.computed is None or self.computed.shape[1] < length:
            table = bundle.sinusoids(length, bundle.position_width(model))
            self.computed = torch.from_numpy(table).to(like)
        return self.computed[:, :length].to(like)

    def card_table(self, dtype):
        return cards.card_table(self.config, dtype)

    def summary(self, directory):
        return cards.summary(directory, self.config)
