"""The same recurrence a chunk at a time: matrix products inside a chunk, one state handed from chunk to chunk.

The algebra is that of DeltaNet's parallel form (2406.06484) with the decay of Gated DeltaNet (2412.06464).
With G the decay summed up from the start of the chunk, and D_ij = exp(G_i - G_j) for i >= j, 0 above:

    writes  = U - W S          U, W = (I + stril(beta K K^T . D))^-1 beta [V, e^G K]     (delta rule)
    writes  = V                                                                          (sum)
    O       = e^G Q S + (Q K^T . D) writes
    S      <- e^{G_C} S + (e^{G_C - G} K)^T writes

The inverse is a forward substitution: repeated squaring loses everything when keys are near-parallel and beta is near 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state.update import Delta, Update

CHUNK = 64


def chunkwise(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, update: Update, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Arguments and results as in `reference`."""
    length = q.shape[1]
    chunk = min(CHUNK, length)
    q, k, v = (_split(x, chunk) for x in (q, k, v))
    beta = _split(update.beta[..., None], chunk) if isinstance(update, Delta) else None
    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    if log_decay is None:
        within, from_start, to_end, whole = causal.to(q.dtype), None, None, None
    else:
        total = _split(log_decay[..., None], chunk).cumsum(dim=-2)  # G [B, H, N, C, 1]
        # masked before exp: above the diagonal the difference is positive and could overflow, and inf * 0 is NaN in backward
        within = (total - total.mT).masked_fill(~causal, float("-inf")).exp()
        from_start, to_end, whole = total.exp(), (total[..., -1:, :] - total).exp(), total[..., -1:, :].exp()
    scores = (q @ k.mT) * within
    decayed_keys = _times(k, to_end)
    overlap = None if beta is None else ((beta * k) @ k.mT) * within

    if state is None and q.shape[2] == 1:  # nothing came before, so nothing is recalled: half the work of a short sequence
        writes = v if overlap is None or beta is None else _substitute(overlap, beta * v)[0]
        return _join(scores @ writes, length), (decayed_keys.mT @ writes)[:, :, 0]

    u, w = v, None
    if overlap is not None and beta is not None:
        u, w = _substitute(overlap, beta * v, beta * _times(k, from_start))
    state = v.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]) if state is None else state
    states, parts = [], []
    for n in range(q.shape[2]):
        states.append(state)
        parts.append(u[:, :, n] if w is None else u[:, :, n] - w[:, :, n] @ state)
        kept = state if whole is None else whole[:, :, n] * state
        state = kept + decayed_keys[:, :, n].mT @ parts[-1]
    recalled = _times(q, from_start) @ torch.stack(states, dim=2)
    return _join(recalled + scores @ torch.stack(parts, dim=2), length), state


def _split(x: Tensor, chunk: int) -> Tensor:
    """[B, T, H, D] -> [B, H, N, C, D]. Zeros at the end write nothing and decay nothing, so the final state stands."""
    x = x.transpose(1, 2)
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk))
    return x.reshape(*x.shape[:2], -1, chunk, x.shape[-1])


def _join(x: Tensor, length: int) -> Tensor:
    """[B, H, N, C, D] -> [B, T, H, D], without what `_split` added."""
    return x.flatten(2, 3)[:, :, :length].transpose(1, 2)


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor


def _substitute(lower: Tensor, *right: Tensor) -> tuple[Tensor, ...]:
    """(I + stril(lower))^-1 applied to each of `right` by forward substitution; what `lower` [..., C, C] has elsewhere is ignored."""
    solved = torch.linalg.solve_triangular(lower, torch.cat(right, dim=-1), upper=False, unitriangular=True)
    return torch.split(solved, [x.shape[-1] for x in right], dim=-1)
