"""Mean ranks of models over tasks, and whether tasks agree on any order at all.

Tasks are the blocks of a Friedman test, and models that differ by less than the critical difference of
Nemenyi's test are not told apart (Demšar 2006, jmlr.org/papers/v7/demsar06a.html).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from linbench.results.comparison import Comparison
from linbench.results.reliability import FEWEST_MODELS

CONFIDENCE = 0.95
"""The confidence with which all differences of mean ranks hold together."""

FEWEST_TASKS = 3
"""The fewest tasks that ranks are averaged over."""


class Ranks(NamedTuple):
    """The ranks of models in several tasks, 1 for the best.

    Attributes:
        by_task: for each task the rank of each model; models that are equal share the mean of their ranks.
        mean: the mean over tasks, the best model first.
        p: the probability of ranks that agree so much if tasks had nothing in common (Friedman's test in the
            form of Iman and Davenport).
        difference: the critical difference of two mean ranks.
    """

    by_task: Mapping[str, Mapping[str, float]]
    mean: Mapping[str, float]
    p: float
    difference: float

    @property
    def agree(self) -> bool:
        """True if tasks agree on some order."""
        return self.p < 1 - CONFIDENCE


def ranks_of(comparisons: Sequence[Comparison]) -> Ranks | None:
    """Return the ranks of the models that all tasks have in common; None for too few models or tasks.

    A cell counts if it has models enough, and cells of one task count as one: the mean of a model's ranks in
    them. A model at several sizes in a cell has the mean of its accuracies.
    """
    cells = [(each.task, scores) for each in comparisons if len(scores := _scores(each)) >= FEWEST_MODELS]
    if not cells:
        return None
    common = sorted(set.intersection(*(set(scores) for _, scores in cells)))
    by_cell: dict[str, list[list[float]]] = {}
    for task, scores in cells:
        by_cell.setdefault(task, []).append(_ranked([-scores[model] for model in common]))
    if len(common) < FEWEST_MODELS or len(by_cell) < FEWEST_TASKS:
        return None
    return ranks(
        {
            task: dict(zip(common, _ranked([fmean(own) for own in zip(*found, strict=True)]), strict=True))
            for task, found in by_cell.items()
        }
    )


def ranks(by_task: Mapping[str, Mapping[str, float]]) -> Ranks:
    """Return the mean of ranks over tasks, and the tests.

    Args:
        by_task: for each of several tasks the rank of each of several models, the same models in all.
    """
    from scipy.stats import f, studentized_range  # where needed: it takes half a second

    models = list(next(iter(by_task.values())))
    means = {model: fmean(own[model] for own in by_task.values()) for model in models}
    tasks, count = len(by_task), len(models)
    spread = sum(mean**2 for mean in means.values()) - count * (count + 1) ** 2 / 4
    square = 12 * tasks / (count * (count + 1)) * spread
    most = tasks * (count - 1)
    ratio = (tasks - 1) * square / (most - square) if square < most else float("inf")
    p = float(f.sf(ratio, count - 1, (count - 1) * (tasks - 1)))
    quantile = float(studentized_range.ppf(CONFIDENCE, count, float("inf"))) / 2**0.5
    difference = quantile * (count * (count + 1) / (6 * tasks)) ** 0.5
    return Ranks(by_task, dict(sorted(means.items(), key=lambda one: (one[1], one[0]))), p, difference)


def _scores(comparison: Comparison) -> dict[str, float]:
    """Return the mean accuracy of each model, over all of its rows."""
    means: dict[str, list[float]] = {}
    for row in comparison.rows:
        if row.mean is not None:
            means.setdefault(row.results[0]["label"], []).append(row.mean)
    return {label: fmean(own) for label, own in means.items()}


def _ranked(values: Sequence[float]) -> list[float]:
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(values)]
