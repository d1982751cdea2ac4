"""The recurrence as a parallel scan over transition matrices, written for comparisons: "auto" never takes it.

A token takes the state from S to A S + B, with A [K, K] and B [K, V], and two tokens one after the other are
a token of the same kind: (A', B') after (A, B) is (A' A, A' B + B'). So all states come of log2(T) rounds of
products, each over many tokens at once (Blelloch 1990; with diagonal A S5, 2208.04933). The delta rule's A is
a whole matrix: joining two tokens costs K^3 where the recurrence costs K V, and every token's A and S are
kept in memory. The chunkwise form avoids that.
"""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Recurrence
from linbench.kernels.matrix_state.update import Delta, LowRank


def scan(recurrence: Recurrence) -> tuple[Tensor, Tensor]:
    """Return o and the final state, as `reference`."""
    q, _, _, _, _, read, _, scale, state, _, _ = promoted = recurrence.promoted().unroll_steps()
    kept, written = _transitions(promoted)
    start = torch.zeros_like(written[:, 0]) if state is None else state
    written = torch.cat([(kept[:, 0] @ start + written[:, 0])[:, None], written[:, 1:]], dim=1)
    states = _scanned(kept, written)
    seen = states if read == "after" else torch.cat([start[:, None], states[:, :-1]], dim=1)
    o = scale * torch.einsum("bthkv,bthk->bthv", seen, q)
    return recurrence.outputs(o), states[:, -1]


def _transitions(recurrence: Recurrence) -> tuple[Tensor, Tensor]:
    """Return A [B, T, H, K, K] and B [B, T, H, K, V] of every token."""
    _, k, v, log_decay, update, *_ = recurrence
    left = torch.ones_like(k)  # of every row of the state
    if log_decay is not None:
        left = (log_decay[..., None] if log_decay.dim() == 3 else log_decay).exp().expand(k.shape)
    kept = torch.diag_embed(left)
    if isinstance(update, Delta):
        erase = k if update.erase_key is None else update.erase_key
        beta = update.beta[..., None, None]
        return kept - beta * _outer(k, erase if update.reads == "undecayed" else erase * left), beta * _outer(
            k, v
        )
    if isinstance(update, LowRank):
        kept = kept + _outer(update.b, update.a)
    return kept, _outer(k, v)


def _scanned(kept: Tensor, written: Tensor) -> Tensor:
    """Return S_t = A_t S_{t-1} + B_t from S = 0, for all t at once.

    Pairs of tokens become one, half as many are scanned, and every other state follows from the one before
    it.
    """
    length = kept.shape[1]
    if length == 1:
        return written
    pairs = length // 2 * 2
    a, b = kept[:, 1:pairs:2], written[:, 1:pairs:2]
    odd = _scanned(a @ kept[:, 0:pairs:2], a @ written[:, 0:pairs:2] + b)
    later = kept[:, 2::2] @ odd[:, : (length - 1) // 2] + written[:, 2::2]
    even = torch.cat([written[:, :1], later], dim=1)
    if length % 2:
        odd = torch.cat([odd, torch.zeros_like(even[:, :1])], dim=1)
    return torch.stack([even, odd], dim=2).flatten(1, 2)[:, :length]


def _outer(key: Tensor, value: Tensor) -> Tensor:
    return key[..., :, None] * value[..., None, :]
