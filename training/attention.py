"""Causal linear attention in its chunked parallel form: the recurrence that runnel serves, fast enough to train with.

Position by position, with phi(x) = elu(x) + 1:

    S += phi(k) v^T        z += phi(k)        y = phi(q)^T S / (phi(q)^T z + eps)

Inside of a chunk the sums are one masked product of matrices; from chunk to chunk S and z are carried. Cost and
memory are linear in the length, and nothing but plain PyTorch is needed.
"""

import torch
from torch.nn import functional


def feature_map(x):
    """elu(x) + 1, but as the server computes it: elu(x) would round to -1 where exp(x) is small, and leave nothing."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def causal_linear_attention(q, k, v, eps=1e-6, chunk=64):
    """Outputs [..., N, M] of queries and keys [..., N, D] and values [..., N, M]; every sum in fp32 (or fp64)."""
    with torch.autocast(q.device.type, enabled=False):
        if q.dtype != torch.float64:
            q, k, v = q.float(), k.float(), v.float()
        return chunked(feature_map(q), feature_map(k), v, eps, chunk)


def chunked(q, k, v, eps, chunk):
    length = q.shape[-2]
    padding = -length % chunk  # with zeros, which add nothing to any sum
    q, k, v = (functional.pad(x, (0, 0, 0, padding)).unflatten(-2, (-1, chunk)) for x in (q, k, v))
    S = before(k.transpose(-1, -2) @ v)  # [..., chunks, D, M]
    z = before(k.sum(-2, keepdim=True))  # [..., chunks, 1, D]
    weights = (q @ k.transpose(-1, -2)).tril()  # [..., chunks, chunk, chunk]
    above = q @ S + weights @ v
    below = (q * z).sum(-1, keepdim=True) + weights.sum(-1, keepdim=True)
    return (above / (below + eps)).flatten(-3, -2)[..., :length, :]


def before(sums):
    """For each chunk the sum over all chunks before it."""
    return functional.pad(sums.cumsum(-3)[..., :-1, :, :], (0, 0, 0, 0, 1, 0))
