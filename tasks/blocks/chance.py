"""How often a guess is right that knows which facts there are, but not which of them is asked for."""

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
"""A probability that changes nothing."""

STEP = 0.4


@cache
def most_common_share(facts: int, values: int) -> float:
    """Of so many facts, each with a value drawn evenly, the share that has the commonest one, in expectation.

    The sum over m of the probability that some value has more than m facts. Were the facts of each value
    Poisson, with mean facts / values, they would be
    independent: no value has more than m, and all together have as many facts as there are, with the
        probability that is a coefficient of a power of
    one value's polynomial, an integral over the unit circle.
    """
    mean = facts / values
    most = torch.arange(min(facts, int(mean + 12 * mean**0.5) + 24), dtype=torch.float64)
    circle = unit_circle(facts)[:, None]
    up_to = (circle**most * poisson_probability(most, mean)).cumsum(dim=1)
    none_above = (up_to**values * circle**-facts).mean(dim=0).real / poisson_at_mean(facts)
    return float((1 - none_above).clamp(0, 1).sum()) / facts


@cache
def most_common_of_rest(facts: int, *, share: float, values: int) -> float:
    """As `most_common_share`, of those facts that are left: the one that is asked for, and each of the others with
    the probability `share`."""
    if facts * share < NEGLIGIBLE:
        return 1.0
    return sum(
        p * most_common_share(1 + others, values)
        for others, p in enumerate(binomial_probabilities(facts - 1, share))
        if p > NEGLIGIBLE
    )


@cache
def binomial_probabilities(count: int, share: float) -> list[float]:
    """The probabilities that of `count` independent events, each with the probability `share`, 0, 1, ...
    happen."""
    if share == 1:
        return [0.0] * count + [1.0]
    odds, none = log(share) - log1p(-share), lgamma(count + 1) + count * log1p(-share)
    return [exp(none + n * odds - lgamma(n + 1) - lgamma(count - n + 1)) for n in range(count + 1)]


@cache
def occupied_boxes(balls: int, boxes: int) -> list[float]:
    """The probabilities that balls thrown into boxes at random lie in 0, 1, ... of them."""
    share = torch.nn.functional.pad(torch.ones(1, dtype=torch.float64), (0, min(balls, boxes)))
    for _ in range(balls):
        share = add_ball(share, boxes)
    found: list[float] = share.tolist()
    return found


def add_ball(occupied: Tensor, boxes: int, *, share: float = 1.0) -> Tensor:
    """The probabilities that 0, 1, ... boxes are occupied after one more ball, which is thrown with the
    probability `share`."""
    new = occupied * share * (1 - torch.arange(len(occupied), dtype=torch.float64) / boxes)
    return occupied - new + torch.nn.functional.pad(new, (1, 0))[:-1]


@cache
def boxes_holding(count: int, balls: int, boxes: int) -> list[float]:
    """The probabilities that of balls thrown into boxes at random just `count` lie in 0, 1, ... of the boxes;
    as in `most_common_share`."""
    if not balls:
        return [1.0]
    mean = balls / boxes
    one = exp(count * log(mean) - mean - lgamma(count + 1))
    circle = unit_circle(balls)
    others = ((mean * (circle - 1)).exp() - one * circle**count) / (1 - one)
    found = []
    for n, p in enumerate(binomial_probabilities(boxes, one)[: balls // count + 1]):
        share = (
            float((others ** (boxes - n) * circle ** (count * n - balls)).mean().real)
            if p > NEGLIGIBLE**2
            else 0.0
        )
        found.append(max(0.0, p * share / poisson_at_mean(balls)))
    return found


@cache
def most_written_share(keys: int, values: int, writes: int) -> float:
    """Of so many writes, each to any of the keys, where each key has a value drawn evenly: the share that
    falls to the keys of the value that gets most of them, in expectation. As in `most_common_share`, but for each
    value there are two numbers, of its keys and of the writes to these."""
    each, there = (
        writes / keys,
        torch.arange(int(keys / values + 12 * (keys / values) ** 0.5) + 24, dtype=torch.float64),
    )
    of_keys = unit_circle(keys)[:, None] ** there * poisson_probability(there, keys / values)
    of_writes = unit_circle(writes * (1 + each))
    up_to, expected, most = torch.zeros(len(of_keys), len(of_writes), dtype=torch.complex128), 0.0, 0
    back = unit_circle(keys)[:, None] ** -keys * of_writes**-writes
    while True:
        so_many = (torch.special.xlogy(most, each * there) - each * there - lgamma(most + 1)).exp()
        up_to = up_to + (of_keys @ so_many.to(up_to.dtype))[:, None] * of_writes**most
        more = 1 - float((up_to**values * back).mean().real) / poisson_at_mean(keys) / poisson_at_mean(writes)
        if more < NEGLIGIBLE:
            return expected / writes
        expected, most = expected + min(1.0, more), most + 1


def unit_circle(spread: float) -> Tensor:
    """Points of the unit circle, enough to integrate over where numbers of that variance are told apart."""
    points = int(10 * spread**0.5) + 64
    angle = 2 * torch.pi * torch.arange(points, dtype=torch.float64) / points
    return torch.polar(torch.ones_like(angle), angle)


def poisson_probability(count: Tensor, mean: float) -> Tensor:
    """The probabilities of these Poisson numbers."""
    return (count * log(mean) - mean - torch.lgamma(count + 1)).exp()


def poisson_at_mean(count: int) -> float:
    """The probability that a Poisson number is its mean."""
    return exp(count * log(count) - count - lgamma(count + 1))


@cache
def nth_draw_probabilities(count: int, *, of: int, power_a: float) -> Tensor:
    """[of, count] float64, the probability that slot i is the n-th draw of `power_law_slots`.

    A slot of weight w comes at an exponential time, of density w exp(-w t), and is the n-th draw if just n -
    1 others came before. Of these each has come by t or not, independently: how many have is what the product
    of all their polynomials says, here without the slot's own. In y, where t = log(1 + exp y)^2, the
    integrand is smooth, no narrower for late draws than for early ones, and vanishes at both ends, so that a
    sum over even steps is the integral.
    """
    weights = 1 / torch.tensor(inverse_powers(of, round(power_a - 1, 12)), dtype=torch.float64)
    weights = weights / weights.sum()
    found = torch.zeros(of, count, dtype=torch.float64)
    for y in torch.arange(log(NEGLIGIBLE) / 2, (40 / float(weights.min())) ** 0.5, STEP, dtype=torch.float64):
        root = torch.nn.functional.softplus(y)
        stays = torch.exp(-weights * root**2)
        came = 1 - stays
        mean, spread = float(came.sum()), float((came * stays).sum().sqrt())
        # that so few have come does not happen in 10^12 cases; nor that it is `points` more
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
