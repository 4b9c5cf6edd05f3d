"""The recurrence of Gated DeltaNet and RWKV-7 for training, in its chunked parallel form.

Both families correct a state S [D, M] by a product of rank one before they read it:

    S <- diag(w) S + b (S^T a + v)^T              y = S^T q          (Gated DeltaNet)
    S <- diag(w) S + b (S^T a)^T + k v^T          y = S^T q          (RWKV-7)

S^T a is computed from the state before the decay. Let u_t be the vector in the bracket after b_t, d_t the product of
the decays of a chunk up to position t, and S the state before the chunk. Then the u of a chunk solve a triangular
system, whose right side is linear in S. For Gated DeltaNet it is

    u_t - sum_{s<t} (a_t^T diag(d_{t-1} / d_s) b_s) u_s = S^T diag(d_{t-1}) a_t + v_t

The systems of all chunks are solved at once. One product for each chunk then carries S from chunk to chunk.
"""

import torch
from torch.nn import functional

CHUNK = 32


def delta_rule(q, v, log_w, a, b, k, *, chunk=CHUNK):
    """Outputs [..., N, M] of q, a, b and k [..., N, D] and v [..., N, M]; every sum in fp32 (or fp64).

    `log_w` holds logarithms of the decays: [..., N, 1] of a head, or [..., N, D] of its channels. Decays of channels
    are divided by each other, so the logarithms of a chunk must add up to more than -80; those of RWKV-7 are at least
    -0.607 each. Logarithms of a head are only subtracted, so no sum is too low. If `k` is None, v is added to S^T a.
    """
    with torch.autocast(q.device.type, enabled=False):
        if q.dtype != torch.float64:
            q, v, log_w, a, b, k = (None if x is None else x.float() for x in (q, v, log_w, a, b, k))
        return chunked(q, v, log_w, a, b, k, chunk)


def chunked(q, v, log_w, a, b, k, chunk):
    length, keys = q.shape[-2:]
    padding = -length % chunk  # with zeros, which leave S as it is
    q, v, log_w, a, b = (split(x, padding, chunk) for x in (q, v, log_w, a, b))
    columns = b if k is None else torch.cat([b, split(k, padding, chunk)], -2)
    kept = log_w.cumsum(-2)  # [..., chunks, chunk, 1 or D]

    # Rows of a, then rows of q; columns of b, then columns of k if there is one.
    rows, here = torch.cat([a, q], -2), torch.cat([kept - log_w, kept], -2)
    there = kept if k is None else torch.cat([kept, kept], -2)
    rows_of_S = rows * here.exp()
    between = weights(rows, columns, here, there, rows_of_S)
    of_a, of_q = rows_of_S.split(chunk, -2)
    system, reads = between[..., :chunk].split(chunk, -2)
    if k is None:
        added, y = v, 0.0
    else:
        added, y = (between[..., chunk:] @ v).split(chunk, -2)
    sides = torch.cat([of_a, added], -1)
    solved = torch.linalg.solve_triangular(-system, sides, upper=False, unitriangular=True)

    # A chunk turns the state S before it into diag(kept) S + moved S + new.
    writes = (columns * (kept[..., -1:, :] - there).exp()).mT
    moved, new = (writes[..., :chunk] @ solved).split([keys, v.shape[-1]], -1)
    if k is not None:
        new = new + writes[..., chunk:] @ v
    moved = moved + torch.diag_embed(kept[..., -1, :].exp().expand(moved.shape[:-1]))
    S = states(moved, new)

    by_state, by_inputs = (reads @ solved).split([keys, v.shape[-1]], -1)
    y = y + by_inputs + (of_q + by_state) @ S
    return y.flatten(-3, -2)[..., :length, :]


def split(x, padding, chunk):
    return functional.pad(x, (0, 0, 0, padding)).unflatten(-2, (-1, chunk))


def weights(rows, columns, here, there, scaled):
    """rows_t^T diag(exp(here_t - there_s)) columns_s where s is in the past of t, 0 elsewhere.

    That is s < t in the upper half of the rows, and s <= t in the lower half. `scaled` is rows times exp(here).
    """
    chunk = rows.shape[-2] // 2
    past = torch.ones(2 * chunk, chunk, dtype=torch.bool, device=rows.device).tril(-1)
    past[chunk:] = past[:chunk].logical_not().mT
    past = past.repeat(1, columns.shape[-2] // chunk)
    if here.shape[-1] > 1:
        return (scaled @ (columns * (-there).exp()).mT).masked_fill(~past, 0)
    return (rows @ columns.mT) * (here - there.mT).masked_fill(~past, -torch.inf).exp()


def states(moved, new):
    """The state before each chunk: zeros, then S <- moved S + new."""
    S = [torch.zeros_like(new[..., 0, :, :])]
    for by, added in list(zip(moved.unbind(-3), new.unbind(-3)))[:-1]:
        S.append(by @ S[-1] + added)
    return torch.stack(S, -3)
