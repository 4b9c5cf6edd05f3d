#!/usr/bin/env python3
"""Time the peers of runnel on a GPU, in plain PyTorch at a bundle's sizes: one JSON object per line.

  eager     the authors' recurrent loop as it is: linear attention, one step a value
  graph     the same, captured once as a CUDA graph
  softmax   attention over all values so far with a preallocated cache, captured likewise; timed at half its length

Weights are random: speed does not depend on them. Each is first shown to give what the authors' loop gives (softmax:
what softmax over the whole sequence gives). Without a GPU only that is checked.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F


class Network:
    """A linear (or softmax) transformer with a mixture head, stepped one value at a time for `batch` sequences."""

    def __init__(self, sizes, batch, device, softmax=False):
        self.layers, self.width, self.heads = sizes["layers"], sizes["width"], sizes["heads"]
        self.dk, self.dv, self.length = sizes["query_size"], sizes["value_size"], sizes["position"]["length"]
        self.components, self.softmax = sizes["head"]["components"], softmax
        generator = torch.Generator().manual_seed(1)

        def linear(out, into):
            weight = torch.randn(out, into, generator=generator) / into**0.5
            return weight.to(device), torch.zeros(out, device=device)

        inner, ffn = self.heads * self.dv, sizes["ffn"]
        queries = self.heads * self.dk
        self.weights = [
            (linear(queries, self.width), linear(queries, self.width), linear(inner, self.width),
             linear(self.width, inner), linear(ffn, self.width), linear(self.width, ffn))
            for _ in range(self.layers)
        ]
        self.predictor = linear(3 * self.components, self.width)
        self.values = torch.randn(256, self.width // 2, generator=generator).to(device)
        self.positions = torch.randn(self.length, self.width - self.width // 2, generator=generator).to(device)
        shape = (self.layers, batch, self.heads)
        if softmax:
            self.keys = torch.zeros(*shape, self.length, self.dk, device=device)
            self.cached = torch.zeros(*shape, self.length, self.dv, device=device)
        else:
            self.s = torch.zeros(*shape, self.dk, self.dv, device=device)
            self.z = torch.zeros(*shape, self.dk, device=device)
        self.value = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(self.length, device=device)

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

    def head(self):
        batch = self.value.shape[0]
        position = self.positions[self.position].expand(batch, -1)
        x = torch.cat([self.values[self.value], position], 1)
        for layer, (wq, wk, wv, wo, w1, w2) in enumerate(self.weights):
            q = F.linear(x, *wq).view(batch, self.heads, self.dk)
            k = F.linear(x, *wk).view(batch, self.heads, self.dk)
            v = F.linear(x, *wv).view(batch, self.heads, self.dv)
            y = self.attend(layer, q, k, v).reshape(batch, -1)
            x = F.layer_norm(x + F.linear(y, *wo), (self.width,))
            x = F.layer_norm(x + F.linear(F.relu(F.linear(x, *w1)), *w2), (self.width,))
        return F.linear(F.layer_norm(x, (self.width,)), *self.predictor)

    def step(self):
        """One value of each sequence, sampled as the authors do."""
        logits, means, scales = self.head().chunk(3, 1)
        chosen = torch.multinomial(logits.softmax(-1), 1)
        u = torch.rand_like(chosen, dtype=torch.float32).clamp(1e-5, 1 - 1e-5)
        scale = F.elu(scales.gather(1, chosen)) + 1.0001
        x = means.gather(1, chosen) + scale * (u.log() - (1 - u).log())
        self.value.copy_(((x + 1) / 2 * 255).round().clamp(0, 255).long().squeeze(1))
        self.position.add_(1).remainder_(self.length)


def check(sizes, device):
    """The recurrence against the sum it stands for, and the cache against softmax over the whole sequence."""
    for softmax in (False, True):
        network = Network(sizes, 2, device, softmax)
        q, k, v = (torch.randn(7, 2, network.heads, size, device=device)
                   for size in (network.dk, network.dk, network.dv))
        for i in range(7):
            found = network.attend(0, q[i], k[i], v[i])
            network.position.add_(1)
        if softmax:
            weights = (torch.einsum("bhd,lbhd->lbh", q[6], k) / network.dk**0.5).softmax(0)
        else:
            weights = torch.einsum("bhd,lbhd->lbh", F.elu(q[6]) + 1, F.elu(k) + 1)
            weights = weights / weights.sum(0)
        expected = torch.einsum("lbh,lbhd->bhd", weights, v)
        assert torch.allclose(found, expected, atol=1e-4), "a peer does not compute what it should"


def timed(step, batch, seconds):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        count += 10
    return batch * count / (time.perf_counter() - begin)


def captured(network):
    """The network's step as a graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            network.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network.step()
    return graph.replay


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: peers.py BUNDLE")
    with open(sys.argv[1] + "/config.json", encoding="utf-8") as file:
        sizes = json.load(file)["model"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad():
        check(sizes, device)
        print(json.dumps({"torch": torch.__version__, "checked_on": device}), flush=True)
        if device == "cpu":
            return
        for batch in (1, 64, 1024):
            for name in ("eager", "graph", "softmax"):
                network = Network(sizes, batch, device, softmax=name == "softmax")
                network.position.fill_(network.length // 2)
                rate = timed(network.step if name == "eager" else captured(network), batch, 2)
                print(json.dumps({"peer": name, "batch": batch, "values_per_s": round(rate, 1)}), flush=True)


if __name__ == "__main__":
    main()
