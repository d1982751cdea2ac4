"""The recurrence a chunk at a time: matrix products inside a chunk, one state passed from chunk to chunk.

The algebra is that of DeltaNet's parallel form (2406.06484) with the decay of Gated DeltaNet (2412.06464) and
KDA (2510.26692). Let A_xy be the scores x_i . y_j with what has decayed from j to i, and e^G what has decayed
since the chunk's start:

    writes  z = X (u + e^G r S)     X = -(I + A_ry)^-1
            z = v                   for a sum
    O       = e^G q S + sum over keys and writes of A_qy z
    S      <- e^{G_C} S + sum over keys and writes of (e^{G_C - G} y)^T z

The delta rule erases with p: r = beta p, u = -beta v, written under y = k. A low-rank update has r = -a, u =
A_rk v, written under y = b, beside v under k.

The inverse is a forward substitution: repeated squaring loses everything when keys are near-parallel and beta
is near 2. Gradients go the same way back: from chunk to chunk those of S and of what r reads, X^T dz; all
else for all chunks at once.
"""

import operator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state.decay import (
    Between,
    NoDecay,
    Pairs,
    Reader,
    ScalarDecay,
    Through,
    across,
    blocks,
    sum_of_products,
)
from linbench.kernels.matrix_state.recurrence import Recurrence
from linbench.kernels.matrix_state.row_decay import VectorDecay
from linbench.kernels.operators import apply_function, call_undifferentiated, vmap_rule

CHUNK, ALONE = 32, 64
"""Tokens of a chunk; and the most tokens that are taken as one chunk, which passes no state on.

Both were chosen, not measured.
"""


def chunkwise(recurrence: Recurrence) -> tuple[Tensor, Tensor]:
    """Return o and the final state, as `reference`."""
    q, k, v, log_decay, update, read, _, scale, state, _, _ = recurrence.promoted().unroll_steps()
    length = operator.index(q.shape[1])  # of a traced call, too: a program is for one number of chunks
    chunk = CHUNK if length > ALONE else 1 << (length - 1).bit_length()
    chunks = (
        None if x is None else _split(x if x.dim() == 4 else x[..., None], chunk)
        for x in (q, k, v, log_decay, *update.tensors)
    )
    o, last, *_ = apply_function(
        Chunkwise,
        *chunks,
        None if state is None else state.flatten(0, 1),
        scale,
        read == "before",
        update.reads_before,
    )
    o, last = (x.unflatten(0, (len(v), -1)) for x in (o, last))
    return recurrence.outputs(o.flatten(2, 3)[:, :, :length].transpose(1, 2)), last


def _split(x: Tensor, chunk: int) -> Tensor:
    """Cut [B, T, H, D] into [B H, N, C, D].

    Zeros at the end write nothing and decay nothing, so the final state stands.
    """
    x = x.transpose(1, 2)
    if missing := -x.shape[2] % chunk:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(-1, x.shape[2] // chunk, chunk, x.shape[-1])


class Chunks(NamedTuple):
    """The arguments of a recurrence by chunk, M = B H sequences of N chunks.

    q, k, b, and p (for a low-rank update, a) [M, N, C, K], v [M, N, C, V], log_decay [M, N, C, 1 or K], beta
    [M, N, C, 1], state [M, K, V]. The delta rule has a beta, and a p unless it erases with k; a low-rank
    update has p and b.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    beta: Tensor | None
    p: Tensor | None
    b: Tensor | None
    state: Tensor | None
    scale: float
    q_before: bool
    p_before: bool

    @property
    def solves(self) -> bool:
        """True if writes depend on the state."""
        return self.beta is not None or self.b is not None

    @property
    def eraser(self) -> Tensor:
        """The key p of the equations, or a."""
        return self.k if self.p is None else self.p

    def decay(self, between: Between = (None, None)) -> NoDecay:
        """Return the decay.

        Args:
            between: what an earlier one computed of it, if there was one.
        """
        if self.log_decay is None:
            return NoDecay()
        return (
            ScalarDecay(self.log_decay, between)
            if self.log_decay.shape[-1] == 1
            else VectorDecay(self.log_decay)
        )

    def readers(self) -> list[Reader]:
        """Return q and, if there is one, r."""
        readers = [Reader(self.q, self.q_before, own=not self.q_before)]
        if self.solves:
            readers.append(
                Reader(
                    -self.eraser if self.beta is None else self.beta * self.eraser, self.p_before, own=False
                )
            )
        return readers

    def keys(self) -> list[Tensor]:
        """Return the keys of `written`."""
        return [self.k] if self.b is None else [self.b, self.k]

    def written(self, z: Tensor | None) -> list[Tensor]:
        """Return z, v or both."""
        plain = [] if self.beta is not None else [self.v]
        return plain if z is None else [z, *plain]


class Saved(NamedTuple):
    """Tensors that backward needs of forward.

    The states that chunks start with [M, N, K, V], z and X if there are any, what is left `between` tokens,
    and the scores.
    """

    states: Tensor | None
    z: Tensor | None
    inverse: Tensor | None
    between: Between
    scores: Pairs


def forward(given: Chunks) -> tuple[Tensor, Tensor, Saved]:
    """Return o [M, N, C, V], the final state [M, K, V], and what backward needs."""
    decay, readers, keys = given.decay(), given.readers(), given.keys()
    scores = decay.scores(readers, keys)
    inverse = _inverse(scores[1][0]) if given.solves else None
    last, states, z = _walk(given, decay, readers, keys, scores, inverse)
    o = sum_of_products(scores[0], given.written(z))
    if states is not None:
        o = sum_of_products([decay.from_start(given.q, before=given.q_before)], [states], o)
    return o.mul_(given.scale), last, Saved(states, z, inverse, decay.between, scores)


def _walk(
    given: Chunks,
    decay: NoDecay,
    readers: list[Reader],
    keys: list[Tensor],
    scores: Pairs,
    inverse: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Go from chunk to chunk: return the final state, the states before, and z if it is not v."""
    u = (
        given.v
        if inverse is None
        else scores[1][1] @ given.v
        if given.beta is None
        else -given.beta * given.v
    )
    count, state = given.q.shape[1], given.state
    from_nothing = count == 1 and state is None  # nothing to recall: half the work of a short sequence
    starts = [] if from_nothing else [decay.from_start(x, before=before) for x, before, _ in readers[1:]]
    ends = [decay.to_end(y) for y in keys]
    states, writes = [], []
    for n in range(count):
        states.append(state)
        z = u[:, n]
        if inverse is not None:
            z = inverse[:, n] @ (z if state is None else torch.baddbmm(z, starts[0][:, n], state))
            writes.append(z)
        gained = ends[0][:, n].mT @ z
        if given.b is not None:
            gained.baddbmm_(ends[1][:, n].mT, given.v[:, n])
        state = gained if state is None else gained.add_(decay.whole(state, n))
    assert state is not None  # there is a chunk
    return state, None if from_nothing else _stacked(states), None if inverse is None else _joined(writes)


def backward(given: Chunks, saved: Saved, do: Tensor, dlast: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return gradients of q, k, v, log_decay, beta, p, b and the state from those of o and the final state.

    Each is None if there is none.
    """
    states, z, _, between, scores = saved
    decay, readers, keys, written = given.decay(between), given.readers(), given.keys(), given.written(z)
    do = torch.mul(do, given.scale, out=torch.empty_like(do, memory_format=torch.contiguous_format))
    dz = scores[0][0].mT @ do
    dstate, dstates, seen = _walk_back(given, decay, readers, keys, saved.inverse, do, dz, dlast)

    read = [do] if seen is None else [do, seen]  # gradients of what readers read
    dv = dz
    if given.beta is not None:
        dv = -given.beta * read[1]
    elif given.b is not None:
        dv = sum_of_products([row[1].mT for row in scores], read)
    through: Through = [None for _ in readers], [None for _ in keys]
    if states is not None:
        for i, (_, before, _) in enumerate(readers):
            dx = read[i] @ states.mT
            through[0][i] = decay.from_start(dx, before=before, out=dx)
    if dstates is not None:
        for j, y in enumerate(written):
            dy = y @ dstates.mT
            through[1][j] = decay.to_end(dy, out=dy)
        if given.beta is None:
            dv = sum_of_products([decay.to_end(given.k)], [dstates], dv)
    dscores = [[dx @ y.mT for y in written] for dx in read]
    dreaders, dkeys, dlog_decay = decay.gradients(readers, keys, scores, dscores, through, states, dstates)

    dk, dbeta, dp, db = dkeys[-1], None, None, None
    if given.b is not None:
        dp, db = -dreaders[1], dkeys[0]
    elif given.beta is not None:
        dbeta = (given.eraser * dreaders[1]).sum(dim=-1, keepdim=True) - (given.v * read[1]).sum(
            dim=-1, keepdim=True
        )
        if given.p is None:
            dk.addcmul_(given.beta, dreaders[1])
        else:
            dp = dreaders[1].mul_(given.beta)
    return dreaders[0], dk, dv, dlog_decay, dbeta, dp, db, dstate


def _walk_back(
    given: Chunks,
    decay: NoDecay,
    readers: list[Reader],
    keys: list[Tensor],
    inverse: Tensor | None,
    do: Tensor,
    dz: Tensor,
    dlast: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Go back from chunk to chunk.

    Returns: gradients of the initial state, of the states after chunks, and of what r reads.
    """
    count, dstate = given.q.shape[1], dlast
    starts = (
        [decay.from_start(x, before=before) for x, before, _ in readers]
        if count > 1 or given.state is not None
        else []
    )
    ends = [decay.to_end(keys[0])] if count > 1 or dlast is not None else []
    dstates, seen = [], []
    for n in reversed(range(count)):
        dstates.append(dstate)
        if inverse is not None:
            seen.append(
                inverse[:, n].mT
                @ (dz[:, n] if dstate is None else torch.baddbmm(dz[:, n], ends[0][:, n], dstate))
            )
        if n or given.state is not None:
            dread = starts[0][:, n].mT @ do[:, n]
            if inverse is not None:
                dread.baddbmm_(starts[1][:, n].mT, seen[-1])
            dstate = dread if dstate is None else dread.add_(decay.whole(dstate, n))
    first = None if given.state is None else dstate
    return first, _stacked(dstates[::-1]) if ends else None, None if inverse is None else _joined(seen[::-1])


class Chunkwise(torch.autograd.Function):
    """The autograd function of `forward`, from the fields of `Chunks`; it returns those of `Saved`, too."""

    @staticmethod
    def forward(*args: Any) -> Any:
        """Return `forward` of the arguments."""
        o, last, saved = forward(Chunks(*args))
        return o, last, *saved[:3], *saved.between, *(x for row in saved.scores for x in row)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep all arguments and results."""
        *tensors, ctx.scale, ctx.q_before, ctx.p_before = inputs
        ctx.mark_non_differentiable(*(x for x in output[2:] if x is not None))
        ctx.save_for_backward(*tensors, *output[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, do: Tensor | None, dlast: Tensor | None, *_: Any) -> Any:
        """Return `backward` of what was kept."""
        saved = ctx.saved_tensors  # read once: a checkpoint hands it out no more often
        given, made = saved[:8], saved[8:]
        do = torch.zeros_like(given[2]) if do is None else do
        return (
            *call_undifferentiated(
                _backward, do, dlast, *given, ctx.scale, ctx.q_before, ctx.p_before, *made
            ),
            None,
            None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Compute with replicas as more sequences."""
        return vmap_rule(Chunkwise.apply, info, in_dims, *args)


def _backward(do: Tensor, dlast: Tensor | None, *args: Any) -> Any:
    """Return `backward` of what `Chunkwise` was given, and made beside o and the final state."""
    given, (states, z, inverse, *between), scores = Chunks(*args[:11]), args[11:16], args[16:]
    rows = [[*scores[i : i + len(given.keys())]] for i in range(0, len(scores), len(given.keys()))]
    return backward(given, Saved(states, z, inverse, (between[0], between[1]), rows), do, dlast)


def _inverse(lower: Tensor) -> Tensor:
    """Return -(I + lower)^-1 for entries below the diagonal, by forward substitution.

    It is done in small blocks, then Y_21 = Y_22 lower_21 Y_11 joins these.
    """
    half = lower.shape[-1] // 2
    if half < 16:
        ones = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).neg_()
        solved: Tensor = torch.linalg.solve_triangular(
            lower, ones.expand_as(lower), upper=False, unitriangular=True
        )
        return solved
    known = _inverse(blocks(lower, half))
    inverse = lower.new_zeros(lower.shape)
    blocks(inverse, half).copy_(known)
    across(inverse, half).copy_(known[..., 1:, :, :] @ across(lower, half) @ known[..., :1, :, :])
    return inverse


def _stacked(states: list[Tensor | None]) -> Tensor:
    """Stack [M, K, V] of every chunk, of which there is at least one, to [M, N, K, V]; None is zero."""
    like = next(x for x in states if x is not None)
    return torch.stack([torch.zeros_like(like) if x is None else x for x in states], dim=1)


def _joined(chunks: list[Tensor]) -> Tensor:
    """Stack [M, ...] of every chunk to [M, N, ...], without a copy if there is one."""
    return torch.stack(chunks, dim=1) if len(chunks) > 1 else chunks[0][:, None]
