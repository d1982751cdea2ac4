"""Decay inside a chunk, in torch: between two tokens, from the chunk's start, to its end; and its gradient.

Sums of log decays are never differences of rounded float32 numbers: after a token that forgets all, these
would keep nothing of the small decays that follow. For the same reason the gradient of a log decay sums over
the pairs that it lies between, never over readers less writers.

Tensors are [M, N, C, ...]: the C tokens of chunk n of sequence m. Nothing here is differentiated: results may
be changed in place.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.decays import bounded


class Reader(NamedTuple):
    """Vectors x [M, N, C, K] that read the state.

    They read it `before` the decay of their token or after, and see its `own` token's write or only earlier
    ones.
    """

    x: Tensor
    before: bool
    own: bool


Pairs = list[list[Tensor]]
"""Matrices [M, N, C, C] for every reader and every key."""

Between = tuple[Tensor | None, Tensor | None]
"""The part of a write that is left when a token reads, [M, N, C, C]: after its decay, and before it.

None if no token reads so, or if one decay per token does not tell.
"""

Through = tuple[list[Tensor | None], list[Tensor | None]]
"""Gradients of readers and of keys through the states; None is zero."""


class NoDecay:
    """No decay at all.

    Methods that scale vectors write to `out` if it is given; gradients are scaled alike.
    """

    between: Between = (None, None)

    def scores(self, readers: list[Reader], keys: list[Tensor]) -> Pairs:
        """Return x_i . y_j with what has decayed since y_j was written, zero where x_i does not see it."""
        return [[self._left(x @ y.mT, before, own) for y in keys] for x, before, own in readers]

    def from_start(self, x: Tensor, *, before: bool, out: Tensor | None = None) -> Tensor:
        """Scale readers x_i by what is left, when they read, of the state that the chunk starts with."""
        return x

    def to_end(self, y: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Scale keys y_j by what is left of their writes at the end of the chunk."""
        return y

    def whole(self, state: Tensor, chunk: int) -> Tensor:
        """Return what is left of `state` [M, K, V] after chunk number `chunk`."""
        return state

    def gradients(
        self,
        readers: list[Reader],
        keys: list[Tensor],
        scores: Pairs,
        dscores: Pairs,
        through: Through,
        states: Tensor | None,
        following: Tensor | None,
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Return the gradients of readers, keys and the log decay.

        Args:
            states, following: [M, N, K, V], the states before chunks and the gradients of those after.

        They come from the gradients of the scores and, for readers and keys, from those `through` the states.
        Gradients that are given are overwritten.
        """
        return self._score_gradients(readers, keys, scores, dscores, through)

    def _score_gradients(
        self, readers: list[Reader], keys: list[Tensor], scores: Pairs, dscores: Pairs, through: Through
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Add what comes through the scores to the gradients of readers and keys."""
        pairs = [
            [self._left(dscore, before, own) for dscore in row]
            for (_, before, own), row in zip(readers, dscores, strict=True)
        ]
        dreaders = [sum_of_products(row, keys, dx) for row, dx in zip(pairs, through[0], strict=True)]
        dkeys = [
            sum_of_products([row[j].mT for row in pairs], [x for x, _, _ in readers], dy)
            for j, dy in enumerate(through[1])
        ]
        return dreaders, dkeys, None

    def _left(self, products: Tensor, before: bool, own: bool) -> Tensor:
        """Scale products x_i . y_j in place by what is left."""
        return products.tril_(0 if own else -1)


class ScalarDecay(NoDecay):
    """One decay per head and token: log_decay [M, N, C, 1]."""

    def __init__(self, log_decay: Tensor, between: Between) -> None:
        self.log_decay, self.between = log_decay, between
        each = bounded(log_decay).double()
        sums = each.cumsum(dim=-2)
        self._sums = sums, sums - each  # up to and with each token of the chunk, and before each
        self._factors: dict[str, Tensor] = {}

    def _after(self) -> Tensor:
        """Return the sums of log decays after each token of the chunk."""
        return self._sums[0][..., -1:, :] - self._sums[0]

    def _left(self, products: Tensor, before: bool, own: bool) -> Tensor:
        between = self.between[before]
        if between is None:
            (read, rest), (written, written_rest) = (
                _rounded(self._sums[which], products.dtype) for which in (before, False)
            )
            between = left_after((read - written.mT).add_(rest).sub_(written_rest.mT)).tril_(-int(before))
            self.between = (self.between[0], between) if before else (between, self.between[1])
        products *= between
        return products if own or before else products.tril_(-1)

    def from_start(self, x: Tensor, *, before: bool, out: Tensor | None = None) -> Tensor:
        """Scale readers, as `NoDecay.from_start`."""
        return torch.mul(x, self._factor(f"from start, {before}", lambda: self._sums[before]), out=out)

    def to_end(self, y: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Scale keys, as `NoDecay.to_end`."""
        return torch.mul(y, self._factor("to end", self._after), out=out)

    def whole(self, state: Tensor, chunk: int) -> Tensor:
        """Return what is left of a state, as `NoDecay.whole`."""
        return state * self._whole()[:, chunk].mT

    def _whole(self) -> Tensor:
        return self._factor("whole", lambda: self._sums[0][..., -1:, :])

    def _factor(self, name: str, sums: Callable[[], Tensor]) -> Tensor:
        if name not in self._factors:
            self._factors[name] = left_after(sums().to(self.log_decay.dtype))
        return self._factors[name]

    def gradients(
        self,
        readers: list[Reader],
        keys: list[Tensor],
        scores: Pairs,
        dscores: Pairs,
        through: Through,
        states: Tensor | None,
        following: Tensor | None,
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return gradients, as `NoDecay.gradients`.

        A decay lies before the readers from it on, after the writes before it, and between those of a chunk.
        """
        gradient = torch.zeros_like(self.log_decay)
        for (x, before, _), dx in zip(readers, through[0], strict=True):
            if dx is not None:
                gradient += reading_sums(self._by_token(x * dx), before=before)
        for y, dy in zip(keys, through[1], strict=True):
            if dy is not None:
                gradient += writing_sums(self._by_token(y * dy))
        if states is not None and following is not None:
            gradient += self._whole() * self._by_token(following.mul_(states).sum(dim=-1)[..., None, :])
        dreaders, dkeys, within = self._score_gradients(readers, keys, scores, dscores, through)
        return dreaders, dkeys, gradient.add_(within)

    def _score_gradients(
        self, readers: list[Reader], keys: list[Tensor], scores: Pairs, dscores: Pairs, through: Through
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        total: Tensor | None = None  # [..., i, j], with i the last whose decay lies between
        for (_, before, _), row, drow in zip(readers, scores, dscores, strict=True):
            for score, dscore in zip(row, drow, strict=True):
                if total is None or before:
                    products = shifted(score * dscore, -1) if before else score * dscore
                    total = products if total is None else total.add_(products)
                else:
                    total.addcmul_(score, dscore)
        assert total is not None
        dreaders, dkeys, _ = super()._score_gradients(readers, keys, scores, dscores, through)
        return dreaders, dkeys, shifted(total.cumsum(dim=-1).tril_(-1).sum(dim=-2)[..., None], 1)

    def _by_token(self, products: Tensor) -> Tensor:
        """Sum [..., K] over all rows that share a decay."""
        return products.sum(dim=-1, keepdim=True)


def sum_of_products(matrices: list[Tensor], others: list[Tensor], total: Tensor | None = None) -> Tensor:
    """Return the sum of products of pairs of matrices [M, N, ...].

    It is added to `total` in place if there is one.
    """
    for x, y in zip(matrices, others, strict=True):
        if total is None:
            total = x @ y
        else:
            total.flatten(0, 1).baddbmm_(x.flatten(0, 1), y.flatten(0, 1))
    assert total is not None
    return total


def left_after(x: Tensor) -> Tensor:
    """Return exp(min(x, 0)) for sums of log decays, and zero where that is next to nothing.

    exp is slow where it makes denormal numbers, and so is arithmetic with them.
    """
    tiny = torch.finfo(x.dtype).tiny
    return torch.threshold_(x.clamp(math.log(tiny), 0).exp_(), 2 * tiny, 0.0)


def _rounded(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return x rounded and what that lost.

    Differences of the two are as exact as in the wider type, and cheaper.
    """
    rounded = x.to(dtype)
    return rounded, (x - rounded).to(dtype)


def reading_sums(x: Tensor, *, before: bool) -> Tensor:
    """Sum x [..., C, K] over the readers that a token's decay lies before.

    These are those from it on, or if they read `before` decays those after it.
    """
    return (shifted(x, -1) if before else x).flip(-2).cumsum(dim=-2).flip(-2)


def writing_sums(x: Tensor) -> Tensor:
    """Sum over the writes that a token's decay lies after: those before it."""
    return shifted(x, 1).cumsum(dim=-2)


def shifted(x: Tensor, tokens: int) -> Tensor:
    """Move [..., C, K] to later tokens or, if negative, to earlier ones; zeros follow."""
    return F.pad(x, (0, 0, tokens, -tokens))


def blocks(x: Tensor, size: int) -> Tensor:
    """View the blocks on the diagonal of [..., C, C] as [..., C / size, size, size]."""
    count = x.shape[-1] // size
    return x.view(*x.shape[:-2], count, size, count, size).diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def across(x: Tensor, half: int) -> Tensor:
    """View [..., C, C] between later and earlier halves as [..., C / 2 half, half, half]."""
    return blocks(x, 2 * half)[..., half:, :half]
