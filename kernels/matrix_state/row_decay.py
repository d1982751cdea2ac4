"""A decay for every row of the state, inside a chunk: scores have it inside their sum over rows.

The sum does not split into exp(G_i) and exp(-G_j): the second overflows. So pairs (i, j) are taken by the
power of two s for which i lies in the later and j in the earlier half of the same 2s tokens, and both factors
reach from their token to the middle between the halves: neither exceeds one.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from linbench.kernels.matrix_state.decay import (
    Pairs,
    Reader,
    ScalarDecay,
    Through,
    across,
    left_after,
    reading_sums,
    writing_sums,
)


class VectorDecay(ScalarDecay):
    """One decay per head, token and row of the state: log_decay [M, N, C, K]; C is a power of two."""

    def __init__(self, log_decay: Tensor) -> None:
        self.log_decay, self._factors = log_decay, {}
        *_, (_, sums, before, self._sums_after) = self._levels()
        self._sums = sums, before

    def _after(self) -> Tensor:
        return self._sums_after

    def _levels(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """Return, for s = 1, 2, 4 ... C, sums of log decays over blocks of s tokens [M, N, C, K].

        They are up to and with each token, before each, and after each.
        """
        sums, before, after = (
            self.log_decay.clone(),
            torch.zeros_like(self.log_decay),
            torch.zeros_like(self.log_decay),
        )
        half = 1
        yield half, sums, before, after
        while half < sums.shape[-2]:
            earlier, later = _halves(sums, half)
            _halves(after, half)[0].add_(later[..., -1:, :])
            _halves(before, half)[1].add_(earlier[..., -1:, :])
            later += earlier[..., -1:, :]
            half *= 2
            yield half, sums, before, after

    def _to_middle(self, readers: list[Reader]) -> Iterator[tuple[int, dict[bool, Tensor], Tensor]]:
        """Return, for s = 1, 2, 4 ... C / 2, what is left between a token and the middle of its 2s tokens.

        From the middle to the reading of a later one, and from an earlier one to it.
        """
        for half, sums, before, after in self._levels():
            if half < sums.shape[-2]:
                reading = {
                    which: left_after(_halves(before if which else sums, half)[1]) for _, which, _ in readers
                }
                yield half, reading, left_after(_halves(after, half)[0])

    def scores(self, readers: list[Reader], keys: list[Tensor]) -> Pairs:
        """Return scores, as `NoDecay.scores`."""
        scores = [[y.new_zeros(*y.shape[:-1], y.shape[-2]) for y in keys] for _ in readers]
        for (x, _, own), row in zip(readers, scores, strict=True):
            for y, score in zip(keys, row, strict=True):
                if own:
                    score.diagonal(dim1=-2, dim2=-1).copy_((x * y).sum(dim=-1))
        for half, reading, written in self._to_middle(readers):
            earlier = [_halves(y, half)[0] * written for y in keys]
            for (x, before, _), row in zip(readers, scores, strict=True):
                later = _halves(x, half)[1] * reading[before]
                for y, score in zip(earlier, row, strict=True):
                    across(score, half).copy_(later @ y.mT)
        return scores

    def _score_gradients(
        self, readers: list[Reader], keys: list[Tensor], scores: Pairs, dscores: Pairs, through: Through
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        gradient = torch.zeros_like(self.log_decay)
        dreaders = [
            torch.zeros_like(x) if dx is None else dx
            for (x, _, _), dx in zip(readers, through[0], strict=True)
        ]
        dkeys = [torch.zeros_like(y) if dy is None else dy for y, dy in zip(keys, through[1], strict=True)]
        for (x, _, own), dx, row in zip(readers, dreaders, dscores, strict=True):
            for y, dy, dscore in zip(keys, dkeys, row, strict=True):
                if own:
                    itself = dscore.diagonal(dim1=-2, dim2=-1)[..., None]
                    dx.addcmul_(itself, y)
                    dy.addcmul_(itself, x)
        for half, reading, written in self._to_middle(readers):
            earlier = [_halves(y, half)[0] * written for y in keys]
            dearlier = [torch.zeros_like(y) for y in earlier]
            for (x, before, _), dx, row in zip(readers, dreaders, dscores, strict=True):
                later = _halves(x, half)[1] * reading[before]
                dlater = torch.zeros_like(later)
                for y, dy, dscore in zip(earlier, dearlier, row, strict=True):
                    pairs = across(dscore, half)
                    dlater += pairs @ y
                    dy += pairs.mT @ later
                _halves(dx, half)[1].addcmul_(dlater, reading[before])
                _halves(gradient, half)[1].add_(reading_sums(later.mul_(dlater), before=before))
            for y, dy, total in zip(earlier, dearlier, dkeys, strict=True):
                _halves(total, half)[0].addcmul_(dy, written)
                _halves(gradient, half)[0].add_(writing_sums(y.mul_(dy)))
        return dreaders, dkeys, gradient

    def _by_token(self, products: Tensor) -> Tensor:
        return products


def _halves(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """View [..., C, K] as two of [..., C / 2 half, half, K]."""
    pairs = x.view(*x.shape[:-2], -1, 2, half, x.shape[-1])
    return pairs[..., 0, :, :], pairs[..., 1, :, :]
