#!/usr/bin/env python3
"""Time other ways to run a model on a GPU, in plain PyTorch at the model's sizes: one JSON object per line.

    peers.py BUNDLE [BATCH,BATCH,...] [SECONDS] [WAY,WAY,...]      BUNDLE: a directory with a config.json, or "lm"

  eager     the authors' unchanged recurrent loop: linear attention, one step for each value
  graph     the same, captured once as a CUDA graph
  compiled  the same under torch.compile with CUDA graphs, if this PyTorch and this machine support it
  softmax   attention over all values so far with a preallocated cache, also captured; timed at half its length

Weights are random: speed does not depend on them. Before anything is timed, fp32 checks compare attention with the sum
that defines it (softmax: over the whole sequence), and each way of running a step with the plain loop. The timed steps
use TF32 products. Without a GPU, only the checks that need none run.
"""

import json
import sys

import torch
import torch.nn.functional as F
from cuda_graph import captured, timed

LM = {
    "layers": 24,
    "width": 2048,
    "heads": 16,
    "query_size": 128,
    "value_size": 128,
    "ffn": 8192,
    "activation": "gelu",
    "values": 50000,
    "position": {"length": 1024},
    "head": {"kind": "categorical"},
}  # of softmax: the length of its cache
STEPS_COMPARED = 4


class Network(torch.nn.Module):
    """A linear (or softmax) transformer, stepped one value at a time for `batch` sequences."""

    def __init__(self, sizes, batch, device, softmax=False):
        super().__init__()
        self.layers, self.width, self.heads = sizes["layers"], sizes["width"], sizes["heads"]
        self.dk, self.dv, self.length = sizes["query_size"], sizes["value_size"], sizes["position"]["length"]
        self.is_mixture, self.softmax = sizes["head"]["kind"] != "categorical", softmax
        self.activate = F.gelu if sizes.get("activation") == "gelu" else F.relu
        generator = torch.Generator().manual_seed(1)

        def keep(name, tensor):  # buffers keep their addresses, which a compiler's CUDA graphs need
            self.register_buffer(name, tensor.to(device))

        def linear(name, out, into):
            keep(name, torch.randn(out, into, generator=generator) / into**0.5)
            keep(name + "_bias", torch.zeros(out))

        queries, inner, ffn = self.heads * self.dk, self.heads * self.dv, sizes["ffn"]
        for i in range(self.layers):
            linear(f"qkv{i}", 2 * queries + inner, self.width)
            linear(f"out{i}", self.width, inner)
            linear(f"up{i}", ffn, self.width)
            linear(f"down{i}", self.width, ffn)
        values = 256 if self.is_mixture else sizes["values"]
        linear("predictor", 3 * sizes["head"]["components"] if self.is_mixture else values, self.width)
        keep("values", torch.randn(values, self.width, generator=generator))
        keep("positions", torch.randn(self.length, self.width, generator=generator))
        shape = (self.layers, batch, self.heads)
        if softmax:
            keep("keys", torch.zeros(*shape, self.length, self.dk, device=device))
            keep("cached", torch.zeros(*shape, self.length, self.dv, device=device))
        else:
            keep("s", torch.zeros(*shape, self.dk, self.dv, device=device))
            keep("z", torch.zeros(*shape, self.dk, device=device))
        keep("value", torch.zeros(batch, dtype=torch.long))
        keep("position", torch.zeros(1, dtype=torch.long))
        keep("places", torch.arange(self.length))
        keep("head", torch.zeros(batch, self.predictor.shape[0]))

    def linear(self, name, x):
        return F.linear(x, getattr(self, name), getattr(self, name + "_bias"))

    def attend(self, layer, q, k, v):
        if self.softmax:
            self.keys[layer].index_copy_(2, self.position, k.unsqueeze(2))
            self.cached[layer].index_copy_(2, self.position, v.unsqueeze(2))
            scores = torch.einsum("bhd,bhld->bhl", q, self.keys[layer]) / self.dk**0.5
            scores = scores.masked_fill(self.places > self.position, float("-inf"))
            return torch.einsum("bhl,bhld->bhd", scores.softmax(-1), self.cached[layer])
        q, k = F.elu(q) + 1, F.elu(k) + 1
        self.s[layer] += torch.einsum("bhd,bhm->bhdm", k, v)
        self.z[layer] += k
        y = torch.einsum("bhd,bhdm->bhm", q, self.s[layer])
        return y / (torch.einsum("bhd,bhd->bh", q, self.z[layer]) + 1e-6).unsqueeze(-1)

    def think(self):
        """Computes the outputs for the next value, in self.head."""
        batch = self.value.shape[0]
        x = self.values[self.value] + self.positions[self.position]
        for i in range(self.layers):
            q, k, v = self.linear(f"qkv{i}", x).split([self.heads * self.dk] * 2 + [self.heads * self.dv], 1)
            heads = [part.reshape(batch, self.heads, -1) for part in (q, k, v)]
            y = self.attend(i, *heads).reshape(batch, -1)
            x = F.layer_norm(x + self.linear(f"out{i}", y), (self.width,))
            x = F.layer_norm(x + self.linear(f"down{i}", self.activate(self.linear(f"up{i}", x))), (self.width,))
        self.head.copy_(self.linear("predictor", F.layer_norm(x, (self.width,))))

    def step(self):
        """Steps each sequence by one value, sampled as in the authors' code."""
        self.think()
        if self.is_mixture:
            logits, means, scales = self.head.chunk(3, 1)
            chosen = draw(logits.softmax(-1))
            u = torch.rand_like(means[:, :1]).clamp(1e-5, 1 - 1e-5)
            scale = F.elu(scales.gather(1, chosen)) + 1.0001
            x = means.gather(1, chosen) + scale * (u.log() - (1 - u).log())
            self.value.copy_(((x + 1) / 2 * 255).round().clamp(0, 255).long().squeeze(1))
        else:
            self.value.copy_(draw(self.head.softmax(-1)).squeeze(1))
        self.position.add_(1).remainder_(self.length)


def draw(probabilities):
    """Draws one value for each row, like torch.multinomial, which waits for the device in older versions."""
    return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1, keepdim=True)


def graph(network):
    """The network's step as a CUDA graph."""
    return captured(network.step)


def compiled(network):
    """The network's step by PyTorch's compiler, which makes its own CUDA graph."""
    step = torch.compile(network.step, mode="reduce-overhead", fullgraph=True)
    for _ in range(3):  # compiles, warms up, captures
        step()
    return step


WAYS = {"eager": lambda network: network.step, "graph": graph, "softmax": graph, "compiled": compiled}


def check_attention(sizes, device):
    """Compares the recurrence with the sum that defines it, and the cache with softmax over the whole sequence."""
    for softmax in (False, True):
        network = Network({**sizes, "layers": 1}, 2, device, softmax)
        q, k, v = (
            torch.randn(7, 2, network.heads, size, device=device) for size in (network.dk, network.dk, network.dv)
        )
        for i in range(7):
            found = network.attend(0, q[i], k[i], v[i])
            network.position.add_(1)
        if softmax:
            weights = (torch.einsum("bhd,lbhd->lbh", q[6], k) / network.dk**0.5).softmax(0)
        else:
            weights = torch.einsum("bhd,lbhd->lbh", F.elu(q[6]) + 1, F.elu(k) + 1)
            weights = weights / weights.sum(0)
        expected = torch.einsum("lbh,lbhd->bhd", weights, v)
        assert torch.allclose(found, expected, atol=1e-4), "attention is not the sum that it should be"


def outputs(network, step):
    """Head outputs of a few steps over given values, from a fresh state. The given values replace sampled ones."""
    for state in ("s", "z", "keys", "cached", "position"):
        if hasattr(network, state):
            getattr(network, state).zero_()
    found = []
    for i in range(STEPS_COMPARED):
        network.value.fill_(17 * i + 1)
        step()
        found.append(network.head.clone())
    return torch.stack(found)


def check_way(name, sizes, device):
    """Compares a way of running steps with the plain loop, on two layers."""
    network = Network({**sizes, "layers": min(sizes["layers"], 2)}, 2, device, softmax=name == "softmax")
    expected = outputs(network, network.step)
    step = WAYS[name](network)
    found = outputs(network, step)
    assert torch.isfinite(found).all() and torch.allclose(found, expected, atol=1e-4), f"{name} is not the plain loop"


def say(**figures):
    print(json.dumps(figures), flush=True)


def measure(name, sizes, batch, seconds):
    network = Network(sizes, batch, "cuda", softmax=name == "softmax")
    network.position.fill_(network.length // 2)
    return round(batch / timed(WAYS[name](network), seconds), 1)


def main():
    if not 2 <= len(sys.argv) <= 5:
        sys.exit("usage: peers.py BUNDLE [BATCH,BATCH,...] [SECONDS] [WAY,WAY,...]")
    sizes, model = LM, "lm"
    if sys.argv[1] != "lm":
        with open(sys.argv[1] + "/config.json", encoding="utf-8") as file:
            config = json.load(file)
        sizes, model = config["model"], config["name"]
    batches = [int(text) for text in (sys.argv[2] if len(sys.argv) > 2 else "1,64,1024").split(",")]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    ways = sys.argv[4].split(",") if len(sys.argv) > 4 else list(WAYS)
    if not set(ways) <= set(WAYS):
        sys.exit(f"peers.py: WAY is {sys.argv[4]}; expected some of {','.join(WAYS)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad():
        check_attention(sizes, device)
        check_way("eager", sizes, device)
        say(torch=torch.__version__, checked_on=device)
        if device == "cpu":
            return
        for name in ways:
            try:
                torch.set_float32_matmul_precision("highest")
                check_way(name, sizes, device)
                torch.set_float32_matmul_precision("high")
                for batch in batches:
                    say(peer=name, model=model, batch=batch, values_per_s=measure(name, sizes, batch, seconds))
            except (RuntimeError, ImportError, AttributeError) as error:  # no compiler or no memory: try the others
                say(peer=name, model=model, skipped=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")


if __name__ == "__main__":
    main()
