"""Reliability of a task over seeds, and agreement of two orders of the same models.

The intraclass correlation is the share of the variance of single runs that lies between models; the rest lies
between seeds of one model. Kendall's tau compares two orders of the same models.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
"""The confidence of all intervals here."""

RELIABLE_FROM = 0.8
"""The intraclass correlation below which a task does not tell models apart well enough."""

FEWEST_MODELS = 5
"""The fewest models that either question can be asked of."""

DRAWS = 2000
"""The draws of a bootstrap."""


class Reliability(NamedTuple):
    """The intraclass correlation of a task's scores.

    Attributes:
        one: of a single run.
        low: the lower end of its interval.
        high: the upper end.
        of_mean: of the mean over as many seeds as the models have.
        models: the number of models.
        seeds: the seeds of a model, in the mean that the variance needs.
    """

    one: float
    low: float
    high: float
    of_mean: float
    models: int
    seeds: float

    @property
    def reliable(self) -> bool:
        """True if single runs tell models apart well enough."""
        return self.one >= RELIABLE_FROM


class Agreement(NamedTuple):
    """Kendall's tau-b of two orders of models: 1 for the same, -1 for the opposite, 0 for unrelated ones.

    Attributes:
        tau: the correlation.
        low: the lower end of its interval, by a bootstrap over models.
        high: the upper end.
        models: the number of models.
    """

    tau: float
    low: float
    high: float
    models: int


def reliability(scores: Sequence[Sequence[float]]) -> Reliability | None:
    """Return the intraclass correlation of scores, one row for each model and one score for each seed.

    It is ICC(1, 1) of a one-way analysis of variance, with its interval by F (Shrout and Fleiss 1979,
    doi:10.1037/0033-2909.86.2.420). Models with fewer than two seeds are left out. Where models differ in
    seeds, their number is the one that makes the mean squares unbiased.

    Returns: None for fewer models than `FEWEST_MODELS`, and where no score differs from another.
    """
    from scipy.special import fdtri  # where it is needed: scipy takes half a second to load

    rows = [np.asarray(row, dtype=float) for row in scores if len(row) > 1]
    if len(rows) < FEWEST_MODELS:
        return None
    counts = [len(row) for row in rows]
    models, runs = len(rows), sum(counts)
    whole = float(np.concatenate(rows).mean())
    between = sum(count * (float(row.mean()) - whole) ** 2 for count, row in zip(counts, rows, strict=True))
    within = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    between, within = between / (models - 1), within / (runs - models)
    seeds = (runs - sum(count**2 for count in counts) / runs) / (models - 1)
    if between == within == 0:
        return None

    def of_ratio(ratio: float) -> float:
        return 1.0 if math.isinf(ratio) else (ratio - 1) / (ratio + seeds - 1)

    ratio = between / within if within else math.inf
    tail = (1 - CONFIDENCE) / 2
    low = ratio / float(fdtri(models - 1, runs - models, 1 - tail))
    high = ratio * float(fdtri(runs - models, models - 1, 1 - tail))
    of_mean = max(0.0, 1 - 1 / ratio) if ratio else 0.0
    return Reliability(of_ratio(ratio), of_ratio(low), of_ratio(high), of_mean, models, seeds)


def tau(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Return Kendall's tau-b of the models that two sets of scores have in common.

    It counts ties (Kendall 1945, doi:10.2307/2332303).

    Args:
        first: scores by model.
        second: other scores by model.

    Returns: None for fewer common models than `FEWEST_MODELS`, and where either side knows no order of them.
    """
    signs = _signs(first, second)
    return None if signs is None else _tau(signs)


def agreement(first: Mapping[str, float], second: Mapping[str, float]) -> Agreement | None:
    """Return `tau` of the same arguments with its interval, by a bootstrap over models; None where it is."""
    signs = _signs(first, second)
    found = None if signs is None else _tau(signs)
    if signs is None or found is None:
        return None
    models = len(signs[0])
    weights = np.random.default_rng(0).multinomial(models, [1 / models] * models, size=DRAWS)
    low, high = np.nanquantile(_taus(signs, weights), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Agreement(found, float(low), float(high), models)


def _signs(first: Mapping[str, float], second: Mapping[str, float]) -> list[np.ndarray] | None:
    """Return for either side whether the first of two common models is better, worse or alike: 1, -1 or 0."""
    common = sorted(first.keys() & second.keys())
    if len(common) < FEWEST_MODELS:
        return None
    sides = [np.asarray([side[name] for name in common]) for side in (first, second)]
    return [np.asarray(np.sign(values[:, None] - values[None, :])) for values in sides]


def _tau(signs: Sequence[np.ndarray]) -> float | None:
    """Return tau-b of all models, each once; None if a side has them all alike."""
    found = float(_taus(signs, np.ones((1, len(signs[0]))))[0])
    return None if math.isnan(found) else found


def _taus(signs: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return tau-b for each draw of models; weights: how often a draw has each model. NaN: all are tied."""
    first, second = signs

    def pairs(of: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("di,ij,dj->d", weights, of, weights))

    with np.errstate(invalid="ignore"):  # of equal scores alone
        return np.asarray(pairs(first * second) / np.sqrt(pairs(abs(first)) * pairs(abs(second))))
