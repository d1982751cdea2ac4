"""Decay inside a chunk, in torch: between two tokens, from the chunk's start, to its end.

Sums of log decays are differences of running sums in float64: after a token that forgets all, in float32, the difference would keep
nothing of the small decays that follow. With a decay for every row of the state the sum over rows has the decay inside it, and
exp(G_i) exp(-G_j) overflows; so pairs (i, j) are taken by the power of two s for which i lies in the later and j in the earlier
half of the same 2s tokens, and both factors reach from their token to the middle between the halves: neither exceeds one.
"""

import math

import torch
from torch import Tensor


class NoDecay:
    """Everything stays."""

    def scores(self, x: Tensor, y: Tensor, *, before: bool) -> Tensor:
        """x, y [..., C, K] -> x_i . y_j [..., C, C] for the j that i sees: up to itself, or only earlier ones when it reads `before`."""
        return (x @ y.mT).tril(-int(before))

    def from_start(self, x: Tensor, *, before: bool) -> Tensor:
        """What of the state that the chunk starts with is left when x_i reads it."""
        return x

    def to_end(self, y: Tensor) -> Tensor:
        """What of a write with key y_j is left at the end of the chunk."""
        return y

    def whole(self, state: Tensor, chunk: int) -> Tensor:
        """What of `state` [..., K, V] is left after chunk number `chunk`."""
        return state


class ScalarDecay(NoDecay):
    """One decay per head and token: log_decay [..., C, 1]."""

    def __init__(self, log_decay: Tensor) -> None:
        self.dtype = log_decay.dtype
        self.sums = log_decay.double().cumsum(dim=-2)  # up to and with each token of the chunk
        self.before_sums = self.sums - log_decay
        self._within: dict[bool, Tensor] = {}

    def scores(self, x: Tensor, y: Tensor, *, before: bool) -> Tensor:
        """As `NoDecay.scores`, with what has decayed since j when i reads, i's own decay included unless it reads `before` it."""
        if before not in self._within:
            between = (self._sums(before) - self.sums.mT).to(self.dtype)
            # above the diagonal the difference is positive and could overflow; at -inf, and where it makes denormal numbers, exp is slow
            between = between.tril(-int(before)).clamp(min=math.log(torch.finfo(self.dtype).tiny))
            self._within[before] = between.exp().tril(-int(before))
        return (x @ y.mT) * self._within[before]

    def from_start(self, x: Tensor, *, before: bool) -> Tensor:
        """As `NoDecay.from_start`."""
        return x * self._sums(before).to(self.dtype).exp()

    def to_end(self, y: Tensor) -> Tensor:
        """As `NoDecay.to_end`."""
        return y * (self.sums[..., -1:, :] - self.sums).to(self.dtype).exp()

    def whole(self, state: Tensor, chunk: int) -> Tensor:
        """As `NoDecay.whole`."""
        return self.sums[:, :, chunk, -1, :, None].to(self.dtype).exp() * state

    def _sums(self, before: bool) -> Tensor:
        return self.before_sums if before else self.sums


class VectorDecay(ScalarDecay):
    """One decay per head, token and row of the state: log_decay [..., C, K]; C is a power of two."""

    def scores(self, x: Tensor, y: Tensor, *, before: bool) -> Tensor:
        """As `NoDecay.scores`."""
        reading = self._sums(before)
        own = x.new_zeros(x.shape[:-1]) if before else (x * y).sum(dim=-1)
        scores = own[..., None, None]  # [..., C / s, s, s], s = 1
        while (half := scores.shape[-1]) < x.shape[-2]:
            (_, later_x), (_, later_sums) = _halves(x, half), _halves(reading, half)
            (earlier_y, _), (earlier_sums, _) = _halves(y, half), _halves(self.sums, half)
            middle = earlier_sums[..., -1:, :]
            across = (later_x * (later_sums - middle).to(self.dtype).exp()) @ (earlier_y * (middle - earlier_sums).to(self.dtype).exp()).mT
            first, second = scores[..., ::2, :, :], scores[..., 1::2, :, :]
            scores = torch.cat([torch.cat([first, torch.zeros_like(across)], dim=-1), torch.cat([across, second], dim=-1)], dim=-2)
        return scores.squeeze(-3)


def decay_of(log_decay: Tensor | None) -> NoDecay:
    """From log decays by chunk: None, [..., C, 1] or [..., C, K]."""
    if log_decay is None:
        return NoDecay()
    return ScalarDecay(log_decay) if log_decay.shape[-1] == 1 else VectorDecay(log_decay)


def _halves(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """[..., C, K] -> two of [..., C / 2 half, half, K]."""
    pairs = x.reshape(*x.shape[:-2], -1, 2, half, x.shape[-1])
    return pairs[..., 0, :, :], pairs[..., 1, :, :]
