"""The same recurrence a chunk at a time: matrix products inside a chunk, one state handed from chunk to chunk.

The algebra is that of DeltaNet's parallel form (2406.06484) with the decay of Gated DeltaNet (2412.06464) and KDA (2510.26692). Let
A_xy be the scores x_i . y_j with what has decayed from j to i, and e^G what has decayed since the chunk's start:

    writes  z = U - W S         (I + A_pk) [U, W] = beta [v, e^G p]          delta rule, erasing with p, written with key k
                                (I - A_ab) [U, W] = [A_ak v, -e^G a]         low rank, written with key b, beside v with key k
                z = v                                                        sum
    O       = e^G q S + sum over keys and writes of A_qk z
    S      <- e^{G_C} S + sum over keys and writes of (e^{G_C - G} k)^T z

The inverse is a forward substitution: repeated squaring loses everything when keys are near-parallel and beta is near 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state.decay import NoDecay, decay_of
from linbench.kernels.matrix_state.problem import Problem
from linbench.kernels.matrix_state.update import Delta, LowRank, Update

CHUNK = 64


def chunkwise(problem: Problem) -> tuple[Tensor, Tensor]:
    """Results as in `reference`."""
    q, k, v, log_decay, update, read, _, scale, state = problem.promoted().unrolled()
    length = q.shape[1]
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    q, k, v = (_split(x, chunk) for x in (q, k, v))
    gates = log_decay[..., None] if log_decay is not None and log_decay.dim() == 3 else log_decay
    decay = decay_of(None if gates is None else _split(gates, chunk))
    before = read == "before"
    from_nothing = state is None and q.shape[2] == 1  # nothing to recall: half the work of a short sequence

    solved = _writes(k, v, update, decay, chunk, recall=not from_nothing)
    plain = v if solved is None or isinstance(update, LowRank) else None
    key = _split(update.b, chunk) if isinstance(update, LowRank) else k
    scores = decay.scores(q, k, before=before)
    solved_scores = scores if key is k else decay.scores(q, key, before=before)
    last_plain, last_solved = decay.to_end(k), decay.to_end(key)

    if state is None:
        state = v.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    states, writes = [], []
    for n in range(q.shape[2]):
        states.append(state)
        state = state if from_nothing else decay.whole(state, n)
        if solved is not None:
            u, w = solved
            writes.append(u[:, :, n] if w is None else u[:, :, n] - w[:, :, n] @ states[-1])
            state = state + last_solved[:, :, n].mT @ writes[-1]
        if plain is not None:
            state = state + last_plain[:, :, n].mT @ plain[:, :, n]
    parts = [] if from_nothing else [decay.from_start(q, before=before) @ torch.stack(states, dim=2)]
    if solved is not None:
        parts.append(solved_scores @ torch.stack(writes, dim=2))
    if plain is not None:
        parts.append(scores @ plain)
    return problem.outputs(_join(scale * sum(parts[1:], start=parts[0]), problem.v.shape[1])), state


def _writes(k: Tensor, v: Tensor, update: Update, decay: NoDecay, chunk: int, *, recall: bool) -> tuple[Tensor, Tensor | None] | None:
    """U and W of the writes that depend on the state, W only if there is something to `recall`; None where no write does."""
    if isinstance(update, Delta):
        before = update.reads == "undecayed"
        p = k if update.erase_key is None else _split(update.erase_key, chunk)
        beta = _split(update.beta[..., None], chunk)
        u, w = beta * v, beta * decay.from_start(p, before=before)
        lower = decay.scores(beta * p, k, before=before)
    elif isinstance(update, LowRank):
        a, b = _split(update.a, chunk), _split(update.b, chunk)
        u, w = decay.scores(a, k, before=True) @ v, -decay.from_start(a, before=True)
        lower = -decay.scores(a, b, before=True)
    else:
        return None
    # forward substitution, which does not read the diagonal
    solved = torch.linalg.solve_triangular(lower, torch.cat([u, w], dim=-1) if recall else u, upper=False, unitriangular=True)
    if not recall:
        return solved, None
    u, w = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    return u, w


def _split(x: Tensor, chunk: int) -> Tensor:
    """[B, T, H, D] -> [B, H, N, C, D]. Zeros at the end write nothing and decay nothing, so the final state stands."""
    x = x.transpose(1, 2)
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk))
    return x.reshape(*x.shape[:2], -1, chunk, x.shape[-1])


def _join(x: Tensor, length: int) -> Tensor:
    """[B, H, N, C, D] -> [B, T, H, D], without what `_split` added."""
    return x.flatten(2, 3)[:, :, :length].transpose(1, 2)
