"""Causal attention for training: linear in its chunked parallel form, and softmax in blocks.

Linear attention is the recurrence that runnel serves, fast enough to train with.

Position by position, with phi(x) = elu(x) + 1:

    S += phi(k) v^T        z += phi(k)        y = phi(q)^T S / (phi(q)^T z + eps)

and with a gate g in (0, 1) per head and position, before these sums:

    S *= g        z *= g        phi(k) *= 1 - g

Inside a chunk, one masked product of matrices computes the sums. S and z are carried from chunk to chunk. Cost and
memory grow linearly with the length, except for one small matrix over chunks if there is a gate. It needs only PyTorch.
"""

import math

import torch
from torch.nn import functional


def feature_map(x):
    """elu(x) + 1, computed like the server. If exp(x) is small, elu(x) would round to -1, and the sum would be 0."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def causal_linear_attention(q, k, v, eps=1e-6, chunk=64, gate=None):
    """Outputs [..., N, M] of queries and keys [..., N, D] and values [..., N, M]; every sum in fp32 (or fp64).

    `gate` holds the gate's logits [..., N], or is None.
    """
    with torch.autocast(q.device.type, enabled=False):
        if q.dtype != torch.float64:
            q, k, v = q.float(), k.float(), v.float()
            gate = None if gate is None else gate.float()
        return chunked(feature_map(q), feature_map(k), v, eps, chunk, gate)


def chunked(q, k, v, eps, chunk, gate):
    length = q.shape[-2]
    padding = -length % chunk  # with zeros, which add nothing to any sum
    q, k, v = (functional.pad(x, (0, 0, 0, padding)).unflatten(-2, (-1, chunk)) for x in (q, k, v))
    if gate is None:
        weights = (q @ k.transpose(-1, -2)).tril()  # [..., chunks, chunk, chunk]
        S = before(k.transpose(-1, -2) @ v)  # [..., chunks, D, M]
        z = before(k.sum(-2, keepdim=True))  # [..., chunks, 1, D]
    else:
        gate = functional.pad(gate, (0, padding)).unflatten(-1, (-1, chunk))
        k = k * torch.sigmoid(-gate)[..., None]
        kept = functional.logsigmoid(gate).cumsum(
            -1
        )  # logarithm of the share of the chunk's first S that remains: [..., chunks, chunk]
        weights = (q @ k.transpose(-1, -2)) * decay(kept, kept)
        k_left = k * (kept[..., -1:] - kept).exp()[..., None]  # the share that remains at the chunk's end
        total = kept[..., -1].cumsum(-1)
        between = decay(functional.pad(total[..., :-1], (1, 0)), total, diagonal=-1)  # [..., chunks, chunks]
        S = mix(between, k_left.transpose(-1, -2) @ v)
        z = mix(between, k_left.sum(-2, keepdim=True))
        q = q * kept.exp()[..., None]
    above = q @ S + weights @ v
    below = (q * z).sum(-1, keepdim=True) + weights.sum(-1, keepdim=True)
    return (above / (below + eps)).flatten(-3, -2)[..., :length, :]


def before(sums):
    """For each chunk the sum over all chunks before it."""
    return functional.pad(sums.cumsum(-3)[..., :-1, :, :], (0, 0, 0, 0, 1, 0))


def decay(here, there, diagonal=0):
    """exp(here_t - there_s) for s <= t + diagonal, 0 for the others: [..., t, s]."""
    difference = here[..., :, None] - there[..., None, :]
    past = torch.ones_like(difference, dtype=torch.bool).tril(diagonal)
    return difference.masked_fill(~past, -torch.inf).exp()


def mix(weights, sums):
    """For each chunk t the sum over chunks s of weights [..., t, s] times sums [..., s, :, :]."""
    return (weights @ sums.flatten(-2)).unflatten(-1, sums.shape[-2:])


def causal_softmax_attention(q, k, v, scale=None, block=128):
    """Means of the values [..., N, M] so far, weighted by softmax(scale q . k); every sum in fp32 (or fp64).

    Queries are taken in blocks, each with the keys up to its end: half of the whole square is never computed.
    """
    with torch.autocast(q.device.type, enabled=False):
        if q.dtype != torch.float64:
            q, k, v = q.float(), k.float(), v.float()
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        outputs = []
        for begin in range(0, q.shape[-2], block):
            part = scale * q[..., begin : begin + block, :]
            end = begin + part.shape[-2]
            scores = part @ k[..., :end, :].transpose(-1, -2)
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(begin + 1)
            outputs.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ v[..., :end, :])
        return torch.cat(outputs, -2)
