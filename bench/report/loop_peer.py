"""The recurrent loop of the paper's authors, in plain PyTorch, on a bundle.

The model is built from torch.nn modules as their library builds it, layer by layer, with the state updated in place by
einsum. Each value is drawn as they draw it. Nothing is compiled or fused, as in their code.
"""

import math
import os
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import bundle
from runnel_client.errors import check


class RecurrentAttention(torch.nn.Module):
    """Linear attention for one value of each sequence, with the state of all earlier values."""

    def __init__(self, model):
        super().__init__()
        width, heads = model["width"], model["heads"]
        queries, values = heads * model["query_size"], heads * model["value_size"]
        self.heads, self.eps = heads, model["attention"]["eps"]
        self.query_projection = torch.nn.Linear(width, queries)
        self.key_projection = torch.nn.Linear(width, queries)
        self.value_projection = torch.nn.Linear(width, values)
        self.out_projection = torch.nn.Linear(values, width)

    def forward(self, x, state):
        count = len(x)
        q = F.elu(self.query_projection(x).view(count, self.heads, -1)) + 1
        k = F.elu(self.key_projection(x).view(count, self.heads, -1)) + 1
        v = self.value_projection(x).view(count, self.heads, -1)
        if state is None:
            state = (x.new_zeros(*k.shape, v.shape[-1]), x.new_zeros(k.shape))
        memory, normalizer = state
        normalizer += k
        memory += torch.einsum("nhd,nhm->nhdm", k, v)
        scale = 1 / (torch.einsum("nhd,nhd->nh", q, normalizer) + self.eps)
        y = torch.einsum("nhd,nhdm,nh->nhm", q, memory, scale)
        return self.out_projection(y.reshape(count, -1)), state


class Layer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        width, eps = model["width"], model["norm"]["eps"]
        self.attention = RecurrentAttention(model)
        self.linear1 = torch.nn.Linear(width, model["ffn"])
        self.linear2 = torch.nn.Linear(model["ffn"], width)
        self.norm1 = torch.nn.LayerNorm(width, eps=eps)
        self.norm2 = torch.nn.LayerNorm(width, eps=eps)
        self.activation = F.relu if model["activation"] == "relu" else F.gelu

    def forward(self, x, state):
        y, state = self.attention(x, state)
        x = self.norm1(x + y)
        return self.norm2(x + self.linear2(self.activation(self.linear1(x)))), state


class Transformer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(model) for _ in range(model["layers"]))
        self.norm = torch.nn.LayerNorm(model["width"], eps=model["norm"]["eps"]) if model["norm"]["final"] else None

    def forward(self, x, states):
        states = states or [None] * len(self.layers)
        for index, layer in enumerate(self.layers):
            x, states[index] = layer(x, states[index])
        return (x if self.norm is None else self.norm(x)), states


class Peer(torch.nn.Module):
    """A bundle's model. forward(values [N], position, states) -> (head [N, outputs], states)."""

    def __init__(self, directory):
        super().__init__()
        self.config = bundle.read_json(os.path.join(directory, "config.json"), "bundle")
        model = self.config["model"]
        check(
            model["attention"]["feature_map"] == "elu",
            f"{directory}: expected the feature map 'elu', found '{model['attention']['feature_map']}'",
        )
        self.combine, self.position = model["embedding"]["combine"], model["position"]["kind"]
        self.is_mixture = model["head"]["kind"] == "mixture_of_logistics"
        self.length = model["position"].get("length")
        self.position_width = bundle.position_width(model)
        self.value_embedding = torch.nn.Embedding(self.config["values"], model["embedding"]["value_width"])
        self.transformer = Transformer(model)
        self.predictor = torch.nn.Linear(model["width"], bundle.head_width(self.config))
        self.load(os.path.join(directory, "model.safetensors"))
        self.eval()

    def load(self, path):
        stored = bundle.read_safetensors(path)
        tensors = {name: torch.from_numpy(values.copy()) for name, values in stored.items()}
        table = tensors.pop(bundle.POSITION_TABLE, None)
        self.table = None if table is None else table[0]
        self.load_state_dict(tensors)

    def position_at(self, index):
        if self.table is not None:
            return self.table[index]
        columns = torch.arange(self.position_width, dtype=torch.float64)
        angle = index * 10000.0 ** (-2.0 * torch.div(columns, 2, rounding_mode="floor") / self.position_width)
        return torch.where(columns % 2 == 0, torch.sin(angle), torch.cos(angle)).float()

    def forward(self, values, position, states):
        x = self.value_embedding(values)
        if self.position != "none":
            at = self.position_at(position).expand(len(values), -1)
            x = x + at if self.combine == "add" else torch.cat([x, at], dim=1)
        y, states = self.transformer(x, states)
        return self.predictor(y), states

    def advance(self, values, position, states):
        """One step: returns the values drawn for the next position, the head's outputs for them, and the states."""
        head, states = self(values, position, states)
        return self.sample(head), head, states

    def sample(self, head):
        """Draws one value for each row of the head."""
        if not self.is_mixture:
            return torch.multinomial(torch.softmax(head, dim=1), 1).squeeze(1)
        logits, means, raw = head.chunk(3, dim=1)
        component = torch.multinomial(torch.softmax(logits, dim=1), 1)
        mean, scale = means.gather(1, component), F.elu(raw.gather(1, component)) + 1.0001
        u = torch.rand(mean.shape)
        drawn = mean + scale * (torch.log(u) - torch.log(1 - u))
        return torch.round((drawn + 1) / 2 * 255).clamp(0, 255).long().squeeze(1)

    def log_prob(self, head, values):
        """The natural log-probability of a value for each row of the head, as in training. It is computed in double,
        because it subtracts nearly equal numbers."""
        head = head.double()
        if not self.is_mixture:
            return torch.log_softmax(head, dim=1).gather(1, values.unsqueeze(1)).squeeze(1)
        logits, means, raw = head.chunk(3, dim=1)
        log_scale = raw.clamp(min=-7)
        y = (values / 127.5 - 1).unsqueeze(1)
        upper, lower, middle = ((y - means + edge / 255) * torch.exp(-log_scale) for edge in (1, -1, 0))
        mass = torch.sigmoid(upper) - torch.sigmoid(lower)
        density = middle - log_scale - 2 * F.softplus(middle) - math.log(127.5)
        inside = torch.where(mass > 1e-5, torch.log(mass.clamp(min=1e-12)), density)
        log_prob = torch.where(y < -0.999, -F.softplus(-upper), torch.where(y > 0.999, -F.softplus(lower), inside))
        return torch.logsumexp(log_prob + torch.log_softmax(logits, dim=1), dim=1)
