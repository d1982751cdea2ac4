"""Accuracies of guesses that know the facts of a sequence, but not which fact is asked for."""

from functools import cache
from math import exp, lgamma, log, log1p

import torch
from torch import Tensor

from linbench.tasks.random import inverse_powers

__all__ = [
    "NEGLIGIBLE",
    "add_ball",
    "binomial_probabilities",
    "boxes_holding",
    "most_common_of_rest",
    "most_common_share",
    "most_written_share",
    "nth_draw_probabilities",
    "occupied_boxes",
    "poisson_at_mean",
    "poisson_probability",
    "unit_circle",
]

NEGLIGIBLE = 1e-9
"""A probability that is small enough to leave out."""

STEP = 0.4
"""Step of the sum that stands for the integral of `nth_draw_probabilities`."""


@cache
def most_common_share(facts: int, values: int) -> float:
    """Return the expected share of facts that have the most common value, for facts with uniform values.

    It is the sum over m of the probability that some value has more than m facts. If the facts of each value
    were Poisson with mean facts / values, they would be independent. The probability that no value has more
    than m and that all together have `facts` facts is then a coefficient of a power of one value's
    polynomial: an integral over the unit circle.
    """
    mean = facts / values
    most = torch.arange(min(facts, int(mean + 12 * mean**0.5) + 24), dtype=torch.float64)
    circle = unit_circle(facts)[:, None]
    up_to = (circle**most * poisson_probability(most, mean)).cumsum(dim=1)
    none_above = (up_to**values * circle**-facts).mean(dim=0).real / poisson_at_mean(facts)
    return float((1 - none_above).clamp(0, 1).sum()) / facts


@cache
def most_common_of_rest(facts: int, *, share: float, values: int) -> float:
    """Return `most_common_share` of the facts that are left.

    The fact that is asked for is left, and each other one with probability `share`.
    """
    if facts * share < NEGLIGIBLE:
        return 1.0
    return sum(
        p * most_common_share(1 + others, values)
        for others, p in enumerate(binomial_probabilities(facts - 1, share))
        if p > NEGLIGIBLE
    )


@cache
def binomial_probabilities(count: int, share: float) -> list[float]:
    """Return the probabilities that of `count` independent events of probability `share` 0, 1, ... happen."""
    if share == 1:
        return [0.0] * count + [1.0]
    odds, none = log(share) - log1p(-share), lgamma(count + 1) + count * log1p(-share)
    return [exp(none + n * odds - lgamma(n + 1) - lgamma(count - n + 1)) for n in range(count + 1)]


@cache
def occupied_boxes(balls: int, boxes: int) -> list[float]:
    """Return the probabilities that randomly thrown balls occupy 0, 1, ... boxes."""
    share = torch.nn.functional.pad(torch.ones(1, dtype=torch.float64), (0, min(balls, boxes)))
    for _ in range(balls):
        share = add_ball(share, boxes)
    found: list[float] = share.tolist()
    return found


def add_ball(occupied: Tensor, boxes: int, *, share: float = 1.0) -> Tensor:
    """Return the probabilities that 0, 1, ... boxes are occupied after one more ball.

    Args:
        occupied: the probabilities before.
        boxes: number of boxes.
        share: probability that the ball is thrown at all.
    """
    new = occupied * share * (1 - torch.arange(len(occupied), dtype=torch.float64) / boxes)
    return occupied - new + torch.nn.functional.pad(new, (1, 0))[:-1]


@cache
def boxes_holding(count: int, balls: int, boxes: int) -> list[float]:
    """Return the probabilities that 0, 1, ... boxes hold exactly `count` of the randomly thrown balls.

    Computed as in `most_common_share`.
    """
    if not balls:
        return [1.0]
    mean = balls / boxes
    one = exp(count * log(mean) - mean - lgamma(count + 1))
    circle = unit_circle(balls)
    others = ((mean * (circle - 1)).exp() - one * circle**count) / (1 - one)
    found = []
    for n, p in enumerate(binomial_probabilities(boxes, one)[: balls // count + 1]):
        share = 0.0
        if p > NEGLIGIBLE**2:
            share = float((others ** (boxes - n) * circle ** (count * n - balls)).mean().real)
        found.append(max(0.0, p * share / poisson_at_mean(balls)))
    return found


@cache
def most_written_share(keys: int, values: int, writes: int) -> float:
    """Return the expected share of writes that fall to the value with the most writes.

    Each write is to a uniform key, and each key has a uniform value. Computed as in `most_common_share`, with
    two numbers for each value: its keys, and the writes to them.
    """
    each = writes / keys
    # counts of keys up to 12 standard deviations above the mean; more have no probability to speak of
    there = torch.arange(int(keys / values + 12 * (keys / values) ** 0.5) + 24, dtype=torch.float64)
    of_keys = unit_circle(keys)[:, None] ** there * poisson_probability(there, keys / values)
    of_writes = unit_circle(writes * (1 + each))
    up_to = torch.zeros(len(of_keys), len(of_writes), dtype=torch.complex128)
    expected, most = 0.0, 0
    back = unit_circle(keys)[:, None] ** -keys * of_writes**-writes
    while True:
        so_many = (torch.special.xlogy(most, each * there) - each * there - lgamma(most + 1)).exp()
        up_to = up_to + (of_keys @ so_many.to(up_to.dtype))[:, None] * of_writes**most
        more = 1 - float((up_to**values * back).mean().real) / poisson_at_mean(keys) / poisson_at_mean(writes)
        if more < NEGLIGIBLE:
            return expected / writes
        expected, most = expected + min(1.0, more), most + 1


def unit_circle(spread: float) -> Tensor:
    """Return points of the unit circle, enough to integrate polynomials with that variance of exponents."""
    points = int(10 * spread**0.5) + 64
    angle = 2 * torch.pi * torch.arange(points, dtype=torch.float64) / points
    return torch.polar(torch.ones_like(angle), angle)


def poisson_probability(count: Tensor, mean: float) -> Tensor:
    """Return the probability of each count."""
    return (count * log(mean) - mean - torch.lgamma(count + 1)).exp()


def poisson_at_mean(count: int) -> float:
    """Return the probability that a Poisson number equals its mean."""
    return exp(count * log(count) - count - lgamma(count + 1))


@cache
def nth_draw_probabilities(count: int, *, of: int, power_a: float) -> Tensor:
    """Return the probability [of, count] that slot i is the n-th draw of `power_law_slots`, in float64.

    A slot of weight w comes at an exponential time with density w exp(-w t), and is the n-th draw if exactly
    n - 1 others came before. Each of these has come by time t or not, independently: the product of all their
    polynomials, without the slot's own, has the probabilities of how many have come. In y, where t = log(1 +
    exp y)^2, the integrand is smooth, not narrower for late draws than for early ones, and vanishes at both
    ends, so that a sum over even steps is the integral.
    """
    weights = 1 / torch.tensor(inverse_powers(of, round(power_a - 1, 12)), dtype=torch.float64)
    weights = weights / weights.sum()
    found = torch.zeros(of, count, dtype=torch.float64)
    for y in torch.arange(log(NEGLIGIBLE) / 2, (40 / float(weights.min())) ** 0.5, STEP, dtype=torch.float64):
        root = torch.nn.functional.softplus(y)
        stays = torch.exp(-weights * root**2)
        came = 1 - stays
        mean, spread = float(came.sum()), float((came * stays).sum().sqrt())
        # fewer than `first`, or `points` more than that, have a probability below 10^-12
        first = max(0, int(mean - 8 * spread - 20))
        if first >= count:
            break
        points = 2 * int(8 * spread + 20) + 1  # odd: at -1 a polynomial may vanish
        angle = 2 * torch.pi / points * torch.arange(points // 2 + 1, dtype=torch.float64)
        each = came[:, None] * torch.polar(torch.ones_like(angle), -angle) + stays[:, None]
        others = torch.fft.irfft(each.prod(dim=0) / each, n=points)
        n = torch.arange(first, min(count, first + points))
        found[:, n] += others[:, n % points] * (weights * stays * 2 * root * y.sigmoid() * STEP)[:, None]
    return found
