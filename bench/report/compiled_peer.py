"""The fastest PyTorch that a user could pick: a step of a bundle's model as one compiled function.

It computes the same as the authors' loop (loop_peer.py). One product computes queries, keys and values, products are in
bf16 or fp32, states are updated in place, the function also draws the value, and the compiler folds and packs the
weights. It needs PyTorch 2 and a C++ compiler.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from loop_peer import Peer, RecurrentAttention, Transformer
from runnel_client.errors import check

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Product(torch.nn.Module):
    """A linear layer, or several with concatenated outputs, in its own precision."""

    def __init__(self, layers: list[torch.nn.Linear], dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.cat([one.weight for one in layers]).to(dtype), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.cat([one.bias for one in layers]).to(dtype), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).float()


class Attention(torch.nn.Module):
    def __init__(self, plain: RecurrentAttention, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.eps = plain.heads, plain.eps
        self.sizes = [plain.query_projection.out_features] * 2 + [plain.value_projection.out_features]
        self.projections = Product([plain.query_projection, plain.key_projection, plain.value_projection], dtype)
        self.out = Product([plain.out_projection], dtype)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, normalizer: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(1, (self.heads, -1)) for part in self.projections(x).split(self.sizes, dim=1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        normalizer.add_(k)
        memory.add_(k.unsqueeze(-1) * v.unsqueeze(-2))
        scale = (q * normalizer).sum(-1, keepdim=True) + self.eps
        y = (q.unsqueeze(-1) * memory).sum(-2) / scale
        return self.out(y.flatten(1))


class Step(torch.nn.Module):
    """forward(values [N], the position's vector, memories, normalizers) -> (drawn values [N], head [N, outputs])."""

    def __init__(self, peer: Peer, dtype: torch.dtype) -> None:
        super().__init__()
        plain: Transformer = peer.transformer
        self.embedding, self.combine, self.draw = peer.value_embedding, peer.combine, peer.sample
        self.attentions = torch.nn.ModuleList(Attention(one.attention, dtype) for one in plain.layers)
        self.linear1 = torch.nn.ModuleList(Product([one.linear1], dtype) for one in plain.layers)
        self.linear2 = torch.nn.ModuleList(Product([one.linear2], dtype) for one in plain.layers)
        self.norm1 = torch.nn.ModuleList(one.norm1 for one in plain.layers)
        self.norm2 = torch.nn.ModuleList(one.norm2 for one in plain.layers)
        self.activation = plain.layers[0].activation
        self.norm = plain.norm or torch.nn.Identity()
        self.predictor = Product([peer.predictor], torch.float32)

    def forward(self, values, at, memories, normalizers):
        x = self.embedding(values)
        if at is not None:
            at = at.expand(len(values), -1)
            x = x + at if self.combine == "add" else torch.cat([x, at], dim=1)
        for index, attention in enumerate(self.attentions):
            x = self.norm1[index](x + attention(x, memories[index], normalizers[index]))
            hidden = self.activation(self.linear1[index](x))
            x = self.norm2[index](x + self.linear2[index](hidden))
        head = self.predictor(self.norm(x))
        return self.draw(head), head


class CompiledPeer(Peer):
    """A Peer whose step is compiled, separately for each number of sequences. Without `compiles` it is not compiled."""

    def __init__(self, directory: str, precision: str, compiles: bool = True) -> None:
        super().__init__(directory)
        self.step = Step(self, DTYPES[precision]).eval()
        if not compiles:
            return
        check(
            hasattr(torch, "compiler"), f"--form compiled: PyTorch {torch.__version__} compiles nothing; use 2 or later"
        )
        # Weights never change, so they are folded and packed, and no step checks them.
        options = {"freezing": True, "guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
        self.step = torch.compile(self.step, dynamic=False, options=options)

    def fresh(self, batch: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        sizes = self.config["model"]
        keys = (batch, sizes["heads"], sizes["query_size"])
        layers = range(sizes["layers"])
        return [torch.zeros(*keys, sizes["value_size"]) for _ in layers], [torch.zeros(keys) for _ in layers]

    def advance(self, values, position, states):
        states = states or self.fresh(len(values))
        at = None if self.position == "none" else self.position_at(position)
        drawn, head = self.step(values, at, *states)
        return drawn, head, states
