"""Profiles: what each variant remembers, overwrites, filters and tracks, how soon it learns, how fast it is.

Each facet is one number for a variant with an interval, from the best evidence that a store has for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from linbench.experiments.registry import shipped
from linbench.results.capacity import LEVELS, Ranks, capacities
from linbench.results.comparison import Comparison, Row
from linbench.results.layer_speeds import QUESTIONS, layer_key, select_speeds
from linbench.results.learning_time import can_be_shown, learning
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance, accuracies_by_test, accuracy
from linbench.results.slices import slices
from linbench.results.speeds import Speeds
from linbench.results.statistics import share_interval
from linbench.results.submission import is_marked

FORM = "controlled"
"""The form whose results are shown: the recurrence alone differs."""

TRACKED = 0.9
"""The accuracy above chance, scaled to 1, at which a length counts as tracked."""

SPEED_LENGTH = 4096
"""The length at which layers are compared in speed, if it was measured."""


class Estimate(NamedTuple):
    """A number with its interval; an end may be infinite. None as an end: there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The interval, or the number twice."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high


class Facet(NamedTuple):
    """One quantity of many variants.

    Attributes:
        key: its name for programs.
        variables: how many variables are overwritten, which tells facets of old values apart; else None.
        comparison: whose results it is made of; None for speeds.
        speeds: the words for what was timed, and on which device; empty for trained models.
        estimates: by the label of the variant.
        more_is_better: whether large numbers are good.
        least: the least number that the tests can tell; what is lower is shown as below it.
    """

    key: str
    comparison: Comparison | None
    speeds: str
    estimates: Mapping[str, Estimate]
    more_is_better: bool
    least: float = 0.0
    variables: int | None = None

    @property
    def ordered(self) -> list[str]:
        """The labels, the best estimate first, equal ones by name."""
        sign = -1 if self.more_is_better else 1
        return sorted(self.estimates, key=lambda label: (sign * self.estimates[label].value, label))

    def ranks(self, label: str) -> Ranks | None:
        """Return the ranks that a variant may have by the intervals of all; None if it has no number."""
        if label not in self.estimates:
            return None
        sign = 1 if self.more_is_better else -1
        own = sorted(sign * end for end in self.estimates[label].ends)
        others = [
            sorted(sign * end for end in one.ends) for name, one in self.estimates.items() if name != label
        ]
        surely_better = sum(low > own[1] for low, _ in others)
        surely_worse = sum(high < own[0] for _, high in others)
        return Ranks(1 + surely_better, 1 + len(others) - surely_worse)


def facets(comparisons: Sequence[Comparison], speeds: Iterable[Speeds]) -> list[Facet]:
    """Return the facets that stored results have, in the order remember, learn, overwrite, filter, track.

    Of several comparisons that ask for a quantity the one that tells most counts.
    """
    return [own[0] for own in facets_by_quantity(comparisons, speeds)]


def facets_by_quantity(comparisons: Sequence[Comparison], speeds: Iterable[Speeds]) -> list[list[Facet]]:
    """Return the facets of each quantity, one for each comparison that asks for it, what tells most first."""
    controlled = [comparison for comparison in comparisons if comparison.form == FORM]
    found = [
        _of_quantity("capacity", controlled, _capacity, more_is_better=True),
        _of_quantity("tokens", controlled, _tokens_to_learn, more_is_better=False, task="mqar"),
        *_old_values(controlled),
        _of_quantity("noise", controlled, _hardest_test, more_is_better=True, task="noise_recall"),
        _of_quantity("parity", controlled, _tracked, more_is_better=True, task="parity"),
        _of_quantity("group", controlled, _tracked, more_is_better=True, task="group_word"),
        *([one] for one in _speeds(controlled, list(speeds))),
    ]
    return [own for own in found if own]


def accuracy_facet(comparisons: Iterable[Comparison], task: str) -> Facet | None:
    """Return the facet of plain accuracy in a task, the mean over all tests; None if it was not measured."""
    controlled = [comparison for comparison in comparisons if comparison.form == FORM]
    return _facet("accuracy", controlled, _mean_accuracy, more_is_better=True, task=task)


def plain_accuracy(comparison: Comparison) -> Facet | None:
    """Return the facet of plain accuracy of a comparison in any form; None if nothing was measured."""
    return _facet("accuracy", [comparison], _mean_accuracy, more_is_better=True)


Measure = Callable[[Comparison], dict[str, Estimate]]


def _facet(
    key: str, comparisons: Sequence[Comparison], measure: Measure, *, more_is_better: bool, task: str = ""
) -> Facet | None:
    """Return the facet of the comparison that tells most."""
    found = _of_quantity(key, comparisons, measure, more_is_better=more_is_better, task=task)
    return found[0] if found else None


def _of_quantity(
    key: str, comparisons: Sequence[Comparison], measure: Measure, *, more_is_better: bool, task: str = ""
) -> list[Facet]:
    """Return a facet for each comparison.

    Ladders come before single budgets, then what has variants of most generations, then most variants.
    """
    found = []
    for comparison in comparisons:
        estimates = measure(comparison) if not task or comparison.task == task else {}
        if estimates:
            least = _least_capacity(comparison) if measure is _capacity else 0.0
            order = (comparison.until_learned, len(_generations(estimates)), len(estimates))
            found.append((order, Facet(key, comparison, "", estimates, more_is_better, least)))
    return [facet for _, facet in sorted(found, key=lambda one: one[0], reverse=True)]


def _generations(labels: Iterable[str]) -> set[str]:
    """Return the generations of the shipped variants among some labels."""
    known = shipped("model").entries
    names = {label.partition("[")[0] for label in labels if not is_marked(label)}
    return {known[name].cls.generation for name in names if name in known}


def _old_values(comparisons: Sequence[Comparison]) -> list[list[Facet]]:
    """Return the facets for each number of variables that are overwritten, the smallest first."""
    by_count: dict[int | None, list[Comparison]] = {}
    for comparison in comparisons:
        if comparison.task == "variable_overwrite":
            by_count.setdefault(_variables(comparison), []).append(comparison)
    counts = sorted(by_count, key=lambda count: count or 0)
    found = [
        (count, _of_quantity("stale", by_count[count], _stale, more_is_better=False)) for count in counts
    ]
    return [[facet._replace(variables=n) for facet in own] for n, own in found]


def _variables(comparison: Comparison) -> int | None:
    """Return how many variables the last test has; None if that is not known."""
    task = comparison.results[0]["cell"]["task"]
    settings = task["test"][-1]["settings"] if task.get("test") else task["settings"]
    variables = settings.get("variables")
    return variables if isinstance(variables, int) else None


def _capacity(comparison: Comparison) -> dict[str, Estimate]:
    """Return pairs at 90 % per thousand recurrent floats."""
    found = {}
    for one in capacities(comparison):
        if one.recurrent_floats is None:
            continue
        held = one.held(LEVELS[0])
        ends = [one.per_thousand(end) for end in held]
        if ends[0] is not None:
            found[_label(one.row)] = Estimate(ends[0], *ends[1:])
    return found


def _least_capacity(comparison: Comparison) -> float:
    """Return what the fewest pairs are for each thousand floats, in the variant with the most floats."""
    return min(one.per_thousand(one.pairs[0]) or math.inf for one in capacities(comparison))


def _tokens_to_learn(comparison: Comparison) -> dict[str, Estimate]:
    """Return the median number of tokens until a seed has learned.

    There are none unless half of the variants learn, and seeds enough for an interval.
    """
    if not can_be_shown(comparison):
        return {}
    medians = {_label(one.row): one.median for one in learning(comparison) if one.median}
    finite = sum(math.isfinite(one.time) for one in medians.values())
    if 2 * finite < len(medians) or all(math.isinf(one.high) for one in medians.values()):
        return {}
    return {label: Estimate(*one) for label, one in medians.items()}


def _stale(comparison: Comparison) -> dict[str, Estimate]:
    """Return the share of answers that are an older value, after the most overwrites."""

    def share(result: CellResult) -> float | None:
        slice_ = slices(result).get("overwrites")
        if not slice_ or "stale" not in slice_ or not slice_["at"]:
            return None
        last = slice_["at"].index(max(slice_["at"]))
        weight = slice_["stale"]["weight"][last]
        return slice_["stale"]["sum"][last] / weight if weight else None

    return _over_seeds(comparison, share)


def _hardest_test(comparison: Comparison) -> dict[str, Estimate]:
    """Return the accuracy in the last test."""

    def last(result: CellResult) -> float | None:
        accuracies = accuracies_by_test(result)
        return accuracies[-1] if accuracies else None

    return _over_seeds(comparison, last)


def _mean_accuracy(comparison: Comparison) -> dict[str, Estimate]:
    """Return the accuracy on the test split, over all tests."""
    return _over_seeds(comparison, accuracy)


def _over_seeds(comparison: Comparison, measure: Callable[[CellResult], float | None]) -> dict[str, Estimate]:
    """Return the mean over seeds of a share, with its interval by Student's t."""
    found = {}
    for row in comparison.rows:
        values = [value for result in row.results if (value := measure(result)) is not None]
        if values:
            found[_label(row)] = Estimate(fmean(values), *(share_interval(values) or ()))
    return found


def _tracked(comparison: Comparison) -> dict[str, Estimate]:
    """Return the longest tested length up to which all are tracked: median, lowest and highest seed."""
    found = {}
    for row in comparison.rows:
        lengths = sorted(length for result in row.results if (length := tracked_length(result)) is not None)
        if lengths:
            found[_label(row)] = Estimate(lengths[(len(lengths) - 1) // 2], lengths[0], lengths[-1])
    return found


def tracked_length(result: CellResult) -> float | None:
    """Return the longest tested length up to which accuracy is high; 0 if it never is."""
    accuracies = accuracies_by_test(result)
    if accuracies is None:
        return None
    tests = sorted(zip(result["tests"], accuracies, strict=True), key=lambda test: test[0]["seq_len"])
    tracked = 0
    for test, reached in tests:
        if above_chance(reached, test["chance"]) < TRACKED:
            break
        tracked = test["seq_len"]
    return float(tracked)


def _speeds(comparisons: Sequence[Comparison], measured: Sequence[Speeds]) -> list[Facet]:
    """Return training and decoding speed of the layers of the comparison with most measured layers."""
    found = []
    for question in QUESTIONS:
        choices = []
        for comparison in comparisons:
            labels = {layer: _label(row) for row in comparison.rows if (layer := layer_key(row.results[0]))}
            chosen = select_speeds(measured, question, labels, length=SPEED_LENGTH)
            if chosen and chosen.rates:
                estimates = {labels[layer]: Estimate(*rate) for layer, rate in chosen.rates.items()}
                choices.append((len(estimates), chosen.full_description, estimates))
        if choices:
            _, words, estimates = max(choices, key=lambda one: one[0])
            found.append(Facet(question, None, words, estimates, True))
    return found


def _label(row: Row) -> str:
    """Return the label of a variant without the settings in which rows of one comparison differ."""
    return row.results[0]["label"]
