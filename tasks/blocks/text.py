"""Random filler words: some far more frequent than others, or each depending on the words before it."""

from decimal import Context, Decimal
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.tasks.random import Stream, constant

__all__ = ["cumulative_powers", "markov", "zipf"]

_DECIMAL = Context(prec=30)


def zipf(stream: Stream, count: int, *, words: int, exponent: float) -> Tensor:
    """Draw numbers [B, count] below `words`, number i with probability proportional to (i + 1)^-exponent."""
    device = stream.key.device
    table = constant(cumulative_powers(words, exponent), device)
    return torch.searchsorted(table, stream.bits(count), right=True)


def markov(stream: Stream, count: int, *, words: int, exponent: float) -> Tensor:
    """Return numbers [B, count] below `words` from a Markov chain of order 2.

    Each is the sum of the two before it and of a new one from `zipf`, modulo `words`. So any two words have a
    likeliest successor of their own, while in the long run all words are equally frequent; they are from the
    start, since the first two are uniform. What a draw adds to the word n steps later is the Fibonacci number
    F(n + 1) times the draw, and sums over twice as many draws are computed from sums over half of them.
    """
    start = stream.child("start").integers(2, below=words)
    new = zipf(stream.child("new"), count, words=words, exponent=exponent)
    x = torch.cat([start, new[:, 2:]], dim=1)[:, :count]
    shadow = torch.zeros_like(x)  # as x, but with F(n) for F(n + 1)
    reach, a, b = 1, 1, 1  # draws summed up, F(reach), F(reach + 1)
    while reach < count:
        x_then, shadow_then = (F.pad(y, (reach, 0))[:, :count] for y in (x, shadow))
        x = (x + b * x_then + a * shadow_then) % words
        shadow = (shadow + a * x_then + (b - a) * shadow_then) % words
        reach, a, b = 2 * reach, a * (2 * b - a) % words, (a * a + b * b) % words
    return x


@cache
def cumulative_powers(count: int, exponent: float) -> tuple[int, ...]:
    """Return the sums of i^-exponent over i = 1 ... n, n = 1 ... count, scaled to end at 2^32.

    The integers are computed alike on every machine.
    """
    power = -Decimal(repr(exponent))
    sums, total = [], Decimal(0)
    for i in range(1, count + 1):
        total = _DECIMAL.add(total, _DECIMAL.multiply(Decimal(i).ln(_DECIMAL), power).exp(_DECIMAL))
        sums.append(total)
    return tuple(
        int(_DECIMAL.divide(_DECIMAL.multiply(x, Decimal(1 << 32)), total).to_integral_value()) for x in sums
    )
