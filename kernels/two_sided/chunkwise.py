"""Two-sided decays a chunk at a time, in products of matrices whose factors all decay.

What is left of a write j when token i reads it is exp(G_i - G_j) on either side, and that splits into a
factor of i and one of j only with exp(-G_j), which overflows. So pairs (i, j) are taken by the power of two s
for which i lies in the later and j in the earlier half of the same 2s tokens: from j to the middle, and from
the middle to i, no factor exceeds one. No sum of log decays is a difference of longer ones, so that a token
that forgets all leaves the small decays after it their digits.

A chunk is [B, Hk, H / Hk, N, C, D], and the H / Hk heads of values that share a key meet it by broadcasting.
"""

import operator

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 32
"""Tokens of a chunk, a power of two: chosen, not measured."""


def chunkwise(
    q: Tensor, k: Tensor, v: Tensor, key_log_decay: Tensor, value_log_decay: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return o and the state; arguments are those of `reference`."""
    length = operator.index(q.shape[1])
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    key_heads = q.shape[2]
    q, k, v, log_f, log_g = (_split(x, chunk, key_heads) for x in (q, k, v, key_log_decay, value_log_decay))
    state = None if state is None else state.reshape(len(q), key_heads, -1, *state.shape[2:])
    o = (q * k).sum(dim=-1, keepdim=True) * v
    half = 1
    while half < chunk:
        o = o + _across(q, k, v, log_f, log_g, half)
        half *= 2
    states, last = _walk(k * _after(log_f), v * _after(log_g), log_f, log_g, state)
    if states is not None:
        o = o + _until(log_g) * ((q * _until(log_f)) @ states)
    o = o.flatten(3, 4)[..., :length, :]
    return o.flatten(1, 2).transpose(1, 2), last.flatten(1, 2)


def _split(x: Tensor, chunk: int, key_heads: int) -> Tensor:
    """Cut [B, T, H, D] into [B, Hk, H / Hk, N, C, D].

    Zeros at the end write nothing and decay nothing, so the final state stands.
    """
    x = F.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % chunk))
    return x.reshape(len(x), key_heads, x.shape[1] // key_heads, -1, chunk, x.shape[3])


def _across(q: Tensor, k: Tensor, v: Tensor, log_f: Tensor, log_g: Tensor, half: int) -> Tensor:
    """Return what tokens of later halves read of the earlier ones before them: [B, Hk, H / Hk, N, C, V].

    It is zero for the others.
    """
    (_, q), (k, _), (v, _) = (_halves(x, half) for x in (q, k, v))
    (f_before, f), (g_before, g) = (_halves(x, half) for x in (log_f, log_g))
    scores = (q * _until(f)) @ (k * _after(f_before)).mT
    read = _until(g) * (scores @ (v * _after(g_before)))
    return F.pad(read, (0, 0, half, 0)).flatten(-3, -2)


def _halves(x: Tensor, half: int) -> tuple[Tensor, ...]:
    """Cut [..., C, D] into two of [..., C / 2 half, half, D]."""
    return x.reshape(*x.shape[:-2], -1, 2, half, x.shape[-1]).unbind(dim=-3)


def _until(log_decay: Tensor) -> Tensor:
    """Return what is left from the start of [..., C, D] after each token, its own decay included."""
    return log_decay.cumsum(dim=-2).exp()


def _after(log_decay: Tensor) -> Tensor:
    """Return what is left at the end of [..., C, D] of each token's write."""
    later = F.pad(log_decay[..., 1:, :], (0, 0, 0, 1))
    return later.flip(-2).cumsum(dim=-2).flip(-2).exp()


def _walk(
    k: Tensor, v: Tensor, log_f: Tensor, log_g: Tensor, state: Tensor | None
) -> tuple[Tensor | None, Tensor]:
    """Return the states before chunks [B, Hk, H / Hk, N, K, V], None if all are zero, and the last.

    Takes what is left of writes at the end of their chunk.
    """
    gained = k.mT @ v
    if state is None and k.shape[3] == 1:
        return None, gained[:, :, :, 0]
    state = torch.zeros_like(gained[:, :, :, 0]) if state is None else state
    f, g = (x.sum(dim=-2).exp() for x in (log_f, log_g))
    states = []
    # not by index: the gradient of every chunk would be as large as all
    for keep_key, keep_value, write in zip(
        f.unbind(dim=3), g.unbind(dim=3), gained.unbind(dim=3), strict=True
    ):
        states.append(state)
        state = keep_key[..., None] * keep_value[..., None, :] * state + write
    return torch.stack(states, dim=3), state
