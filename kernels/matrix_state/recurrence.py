"""A call of the recurrence, checked and brought into the form that every backend takes."""

from collections.abc import Hashable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state.update import Add, Delta, LowRank, Update

Read = Literal["after", "before"]

Tensors = tuple[
    Tensor,
    Tensor,
    Tensor,
    Tensor | None,
    Tensor | None,
    Tensor | None,
    Tensor | None,
    Tensor | None,
    Tensor | None,
]
"""Tensors of a call.

They are q, k, v, the decay, those of the update, the bonus and the initial state; None if there is none.
"""


class Recurrence(NamedTuple):
    """Arguments of a backend, with the meaning they have at the door, `matrix_state`.

    Args:
        q: [B, T, Hk, K].
        k: [B, steps T, Hk, K], as erase_key, a and b of the update.
        v: [B, steps T, H, V].
        log_decay: None, [B, T, H] or [B, T, H, K].
        update: its beta is [B, steps T, H].
        state: None or [B, H, K, V].
        bonus: [H, K], or None if the backend is not to add a token's own write: only Triton's kernels do, to
            sums whose rows decay apart, with one step per token.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor | None
    update: Update
    read: Read
    steps: int
    scale: float
    state: Tensor | None
    final: bool
    bonus: Tensor | None = None

    @property
    def vector_decay(self) -> bool:
        """True if every row of the state has a decay of its own."""
        return self.log_decay is not None and self.log_decay.dim() == 4

    @property
    def tensors(self) -> Tensors:
        """All tensors of the call."""
        return self.q, self.k, self.v, self.log_decay, *self.update.tensors, self.bonus, self.state

    def signature(self) -> Hashable:
        """Return a key of all that `check` looks at, of dtypes, and of where a gradient is asked for.

        Whatever holds by these for one recurrence holds for every other with the same signature.
        """
        q, k, v, log_decay, update, read, steps, scale, state, final, bonus = self
        given = q, k, v, log_decay, state, bonus, *(update if isinstance(update, tuple) else ())
        kinds = [(x.shape, x.dtype, x.device, x.requires_grad) if isinstance(x, Tensor) else x for x in given]
        return type(update), read, steps, scale, final, *kinds

    def slice_tokens(self, first: int, end: int) -> "Recurrence":
        """Return the tokens from `first` to before `end` of a checked recurrence."""
        writes = slice(self.steps * first, self.steps * end)
        update: Any = self.update
        return self._replace(
            q=self.q[:, first:end],
            k=self.k[:, writes],
            v=self.v[:, writes],
            log_decay=None if self.log_decay is None else self.log_decay[:, first:end],
            update=update._make(x[:, writes] if isinstance(x, Tensor) else x for x in update),
        )

    def pad_heads(self, keys: int, values: int) -> "Recurrence":
        """Append so many zeros to every key and every value of a checked recurrence.

        They change nothing of the rest.
        """

        def key(x: Tensor) -> Tensor:
            return F.pad(x, (0, keys))

        update = self.update
        if isinstance(update, Delta):
            update = update._replace(erase_key=None if update.erase_key is None else key(update.erase_key))
        elif isinstance(update, LowRank):
            update = LowRank(key(update.a), key(update.b))
        return self._replace(
            q=key(self.q),
            k=key(self.k),
            v=F.pad(self.v, (0, values)),
            log_decay=(
                key(self.log_decay) if self.log_decay is not None and self.vector_decay else self.log_decay
            ),
            update=update,
            state=None if self.state is None else F.pad(self.state, (0, values, 0, keys)),
            bonus=None if self.bonus is None else key(self.bonus),
        )

    def promoted(self) -> "Recurrence":
        """Return the recurrence in at least float32, with a key head for every value head.

        float64 stays float64.
        """
        dtype = at_least_float32(self.v.dtype)
        groups = self.v.shape[2] // self.k.shape[2]

        def key(x: Tensor) -> Tensor:
            return x.to(dtype).repeat_interleave(groups, dim=2) if groups > 1 else x.to(dtype)

        update = self.update
        if isinstance(update, Delta):
            erase_key = None if update.erase_key is None else key(update.erase_key)
            update = update._replace(beta=update.beta.to(dtype), erase_key=erase_key)
        elif isinstance(update, LowRank):
            update = LowRank(key(update.a), key(update.b))
        return self._replace(
            q=key(self.q),
            k=key(self.k),
            v=self.v.to(dtype),
            log_decay=None if self.log_decay is None else self.log_decay.to(dtype),
            update=update,
            state=None if self.state is None else self.state.to(dtype),
        )

    def unroll_steps(self) -> "Recurrence":
        """Return the recurrence with one step per token, over a sequence `steps` times as long.

        Decay comes with a token's first step, and reading with its last, or with the first if it reads before
        the update. Outputs of the other steps are zero and of no interest.
        """
        if self.steps == 1:
            return self
        first = (0, self.steps - 1)
        q = _among(self.q, first if self.read == "before" else first[::-1])
        return self._replace(
            q=q, log_decay=None if self.log_decay is None else _among(self.log_decay, first), steps=1
        )

    def outputs(self, o: Tensor) -> Tensor:
        """Pick the outputs of tokens from those of the unrolled sequence.

        [B, steps T, H, V] -> [B, T, H, V].
        """
        return o[:, (0 if self.read == "before" else self.steps - 1) :: self.steps] if self.steps > 1 else o


def _among(x: Tensor, zeros: tuple[int, int]) -> Tensor:
    """Put zeros around each token, so that [B, T, ...] becomes [B, steps T, ...]."""
    return F.pad(x[:, :, None], (0, 0) * (x.dim() - 2) + zeros).flatten(1, 2)


def part_sequences(
    cu_seqlens: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    update: Update,
    steps: int,
) -> tuple[Tensor, Update]:
    """Return the decay and the update with which sequences that lie one after another share no state.

    A sequence begins with a decay to nothing. An update that reads the state before the decay reads nothing
    there. Arguments are those of `matrix_state`.

    Raises ValueError: a batch of several, or `cu_seqlens` that are no [N + 1] whole numbers; on a CPU, too,
    if they do not rise from 0 to T. On a GPU to look at them would wait for it.
    """
    length = q.shape[1]
    whole = cu_seqlens.dim() == 1 and cu_seqlens.numel() > 1 and not cu_seqlens.is_floating_point()
    if len(q) != 1 or not whole:
        raise ValueError(
            "cu_seqlens are whole numbers [N + 1] for a batch of one, not"
            f" {cu_seqlens.dtype} {tuple(cu_seqlens.shape)} for a batch of {len(q)}"
        )
    if cu_seqlens.device.type == "cpu":
        places = cu_seqlens.tolist()
        if places[0] != 0 or places[-1] != length or any(x >= y for x, y in pairwise(places)):
            raise ValueError(f"cu_seqlens rise from 0 to T = {length}, not {places}")
    first = cu_seqlens[:-1].long().to(q.device)
    starts = torch.zeros(1, length, 1, dtype=torch.bool, device=q.device).index_fill(1, first, True)
    if log_decay is None:
        log_decay = q.new_zeros(1, length, v.shape[2], dtype=at_least_float32(q.dtype))
    log_decay = log_decay.masked_fill(starts[..., None] if log_decay.dim() == 4 else starts, -torch.inf)
    if update.reads_before:
        nothing = torch.zeros(1, steps * length, 1, 1, dtype=torch.bool, device=q.device)
        nothing = nothing.index_fill(1, steps * first, True)
        if isinstance(update, Delta):
            erase_key = k if update.erase_key is None else update.erase_key
            update = update._replace(erase_key=erase_key.masked_fill(nothing, 0.0))
        elif isinstance(update, LowRank):
            update = update._replace(a=update.a.masked_fill(nothing, 0.0))
    return log_decay, update


def check(recurrence: Recurrence) -> Recurrence:
    """Return the recurrence with its gates and its bonus expanded to full shape.

    Raises ValueError: something does not fit, which is named.
    """
    q, k, v, log_decay, update, read, steps, _, state, _, bonus = recurrence
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ValueError(
            "q, k and v have four dimensions [B, T, heads, dim], not"
            f" {[*map(tuple, (q.shape, k.shape, v.shape))]}"
        )
    (batch, length, key_heads, key_dim), (*tokens, heads, value_dim) = q.shape, v.shape
    if (
        steps < 1
        or k.shape != (batch, steps * length, key_heads, key_dim)
        or tokens != [batch, steps * length]
        or heads % key_heads
    ):
        shapes = [*map(tuple, (q.shape, k.shape, v.shape))]
        raise ValueError(
            "q [B, T, Hk, K], k [B, steps T, Hk, K] and v [B, steps T, H, V] with Hk dividing H and steps"
            f" {steps}, not {shapes}"
        )
    if length < 1:
        raise ValueError("matrix_state needs at least one token")
    if read not in ("after", "before"):
        raise ValueError(f"read must be after or before, not {read!r}")
    if bonus is not None:
        if read != "before" or not _broadcasts(bonus, (heads, key_dim)):
            raise ValueError(
                f"bonus must broadcast to [H, K] = {(heads, key_dim)} and goes with read='before', not"
                f" {tuple(bonus.shape)} with read={read!r}"
            )
        bonus = expanded(bonus, (heads, key_dim))
    if state is not None and state.shape != (batch, heads, key_dim, value_dim):
        raise ValueError(
            f"state must be [B, H, K, V] = {(batch, heads, key_dim, value_dim)}, not {tuple(state.shape)}"
        )
    if log_decay is not None:
        full = (batch, length, heads, key_dim) if log_decay.dim() == 4 else (batch, length, heads)
        log_decay = _gate("log_decay", log_decay, full, f" or [B, T, H, K] with K = {key_dim}")
    if isinstance(update, Delta):
        beta = _gate("beta", update.beta, (batch, steps * length, heads))
        update = update if beta is update.beta else update._replace(beta=beta)
        if update.reads not in ("decayed", "undecayed"):
            raise ValueError(f"Delta reads decayed or undecayed, not {update.reads!r}")
        if update.erase_key is not None:
            _like_k("erase_key", update.erase_key, k)
    elif isinstance(update, LowRank):
        _like_k("a", update.a, k)
        _like_k("b", update.b, k)
    elif not isinstance(update, Add):
        raise ValueError(f"update must be Add(), Delta(...) or LowRank(...), not {update!r}")
    unchanged = (
        log_decay is recurrence.log_decay and update is recurrence.update and bonus is recurrence.bonus
    )
    return recurrence if unchanged else recurrence._replace(log_decay=log_decay, update=update, bonus=bonus)


def _gate(name: str, gate: Tensor, full: tuple[int, ...], alternative: str = "") -> Tensor:
    if not _broadcasts(gate, full):
        raise ValueError(
            f"{name} must broadcast to [B, T, H] = {full[:3]}{alternative}, not {tuple(gate.shape)}"
        )
    return expanded(gate, full)


def expanded(x: Tensor, full: tuple[int, ...]) -> Tensor:
    """Return x in full shape, without a node in the graph if there is nothing to expand."""
    return x if x.shape == full else x.expand(full)


def _like_k(name: str, x: Tensor, k: Tensor) -> None:
    if x.shape != k.shape:
        raise ValueError(f"{name} must be shaped as k = {tuple(k.shape)}, not {tuple(x.shape)}")


def _broadcasts(x: Tensor, full: tuple[int, ...]) -> bool:
    sizes = zip(reversed(x.shape), reversed(full), strict=False)
    return x.shape == full or (x.dim() <= len(full) and all(size in (1, wanted) for size, wanted in sizes))
