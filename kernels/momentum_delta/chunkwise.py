"""The delta rule with momentum a chunk at a time, in products of matrices.

Let A_tj = a_{j+1} ... a_t be what is left at t of S after j, and M_ji the same of N. A write z_i = e_i (error
of i) under k_i goes into N at i, and from N into S at every j from i on. So S after t holds of it

    W_ti = sum over i <= j <= t of A_tj b_j M_ji

and before its own write, decayed, the sum over j < t. All terms are positive: no digits are lost, where a
change of basis that makes both states decay apart would need ratios a / m of all tokens before. The errors of
a chunk solve a triangular system, as in DeltaNet's parallel form (2406.06484).

A chunk is [B, Hk, H / Hk, N, C, D], and the H / Hk heads of values that share a key meet it by broadcasting.
S and N lie above each other, [B, Hk, H / Hk, 2 K, V].
"""

import operator

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.decays import bounded

CHUNK = 32
"""Tokens of a chunk, a power of two: chosen, not measured."""


def chunkwise(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    log_momentum: Tensor,
    step: Tensor,
    share: Tensor,
    S: Tensor,
    N: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, S and N; arguments are those of `reference`."""
    length, key_heads = operator.index(q.shape[1]), q.shape[2]
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    q, k, v = (_split(x, chunk, key_heads) for x in (q, k, v))
    gates = (_split(x[..., None], chunk, key_heads) for x in (log_decay, log_momentum, step, share))
    log_a, log_m, step, share = gates
    (a, A), (m, M) = _left(log_a), _left(log_m)
    reach = A * share.mT
    before = reach.tril(-1)
    a_to_S, m_to_S = a, reach @ m  # what S after t holds of the S and the N that the chunk starts from
    W = reach @ M

    finds = step * torch.cat([a * k, (before @ m) * k], dim=-1)
    system = step * (k @ k.mT) * (before @ M)
    solved = torch.linalg.solve_triangular(
        system, torch.cat([step * v, finds], dim=-1), upper=False, unitriangular=True
    )
    u, finds = solved.split([v.shape[-1], finds.shape[-1]], dim=-1)
    ends = torch.cat([W[..., -1, :, None] * k, M[..., -1, :, None] * k], dim=-1)
    last = (x[..., -1:, :] for x in (a_to_S, m_to_S, m))

    state = torch.cat([S, N], dim=-2)
    state = state.reshape(len(q), key_heads, -1, *state.shape[2:])
    starts, writes = [], []
    # not by index: the gradient of every chunk would be as large as all
    for u_n, finds_n, ends_n, *kept in zip(*(x.unbind(dim=3) for x in (u, finds, ends, *last)), strict=True):
        starts.append(state)
        z = u_n - finds_n @ state
        writes.append(z)
        state = _carry(state, *kept) + ends_n.mT @ z
    reads = torch.cat([a_to_S * q, m_to_S * q], dim=-1)
    o = reads @ torch.stack(starts, dim=3) + ((q @ k.mT) * W) @ torch.stack(writes, dim=3)
    o = o.flatten(3, 4)[..., :length, :].flatten(1, 2).transpose(1, 2)
    S, N = state.flatten(1, 2).chunk(2, dim=-2)
    return o, S, N


def _split(x: Tensor, chunk: int, key_heads: int) -> Tensor:
    """Cut [B, T, H, D] into [B, Hk, H / Hk, N, C, D].

    Zeros at the end write nothing and decay nothing, so the final state stands.
    """
    x = F.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % chunk))
    return x.reshape(len(x), key_heads, x.shape[1] // key_heads, -1, chunk, x.shape[3])


def _left(log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is left after each token of [..., C, 1] since the start, and since each token [..., C, C].

    Sums are in float64, since in float32 a token that forgets all would hide what follows.
    """
    sums = bounded(log_decay).double().cumsum(dim=-2)
    later = torch.ones(sums.shape[-2], sums.shape[-2], dtype=torch.bool, device=sums.device).triu(1)
    since = (sums - sums.mT).masked_fill(later, -torch.inf).exp()
    return sums.exp().to(log_decay.dtype), since.to(log_decay.dtype)


def _carry(state: Tensor, a_to_S: Tensor, m_to_S: Tensor, m: Tensor) -> Tensor:
    """Return what is left of the states [..., 2 K, V] at the end of a chunk."""
    S, N = state.chunk(2, dim=-2)
    return torch.cat([a_to_S * S + m_to_S * N, m * N], dim=-2)
