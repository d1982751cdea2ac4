"""Capacity: the pairs that a variant holds, from its recall at several numbers of pairs.

Recall is accuracy scaled so that chance is 0 and a perfect score 1, as chance differs with the pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from linbench.common.hashing import stable_key
from linbench.common.numbers import whole_number
from linbench.results.comparison import Comparison, Row
from linbench.results.falling_curve import (
    Crossing,
    Numbers,
    crossing,
    crossing_loads,
    middle,
    resampled_means,
    tail,
)
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance, accuracies_by_test

PAIRS = "kv_pairs"
"""The setting of recall tasks that says how many pairs there are."""

LEVELS = (0.9, 0.5)
"""The recalls down to which pairs count as held; variants are sorted by the first."""

LEARNED_FROM = LEVELS[1]
"""The recall of the fewest pairs from which on a seed has learned the task at all."""

SEEDS = 5
"""The seeds that an interval asks for."""

SEEDS_WHERE_TWO_VALUED = 10
"""The seeds that it asks for where some have learned and others have not: their share needs more of them."""


@dataclass(frozen=True, eq=False)
class Capacity:
    """A variant's recall at several numbers of pairs, over seeds.

    Args:
        row: the variant.
        pairs: the numbers of pairs, rising.
        recalls: [S, K] of each seed that measured something, at each number of pairs. Runs that diverged have
            recall 0.
        ids: of the results, by which the draws of the bootstrap are chosen.
    """

    row: Row
    pairs: tuple[int, ...]
    recalls: Numbers
    ids: tuple[str, ...]

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(self.recalls)

    @cached_property
    def learned(self) -> list[bool]:
        """True for each seed that recalls the fewest pairs."""
        return [bool(recall >= LEARNED_FROM) for recall in self.recalls[:, 0]]

    @property
    def two_valued(self) -> bool:
        """True if some seeds have learned the task and others have not."""
        return 0 < sum(self.learned) < self.seeds

    @property
    def missing_seeds(self) -> int:
        """The number of seeds that the interval needs and does not have."""
        return max(0, (SEEDS_WHERE_TWO_VALUED if self.two_valued else SEEDS) - self.seeds)

    @property
    def recurrent_floats(self) -> int | None:
        """The floats that the recurrence carries, all layers; None where it has none, or has a cache."""
        return None if self.row.size["state_cache"] else self.row.size["state_recurrent"] or None

    def held(self, level: float) -> Crossing:
        """Return the pairs at which mean recall falls to a level."""
        return crossing(self.recalls, self._loads, level, draws=self._means)

    def held_by_learned(self, level: float) -> Crossing | None:
        """Return the pairs held by the seeds that have learned; None where all have, or none."""
        if not self.two_valued:
            return None
        recalls = self.recalls[np.array(self.learned)]
        return crossing(recalls, self._loads, level, draws=resampled_means(recalls, self._key))

    def per_thousand(self, pairs: float | None) -> float | None:
        """Return pairs for each thousand recurrent floats."""
        floats = self.recurrent_floats
        return None if floats is None or pairs is None else 1000 * pairs / floats

    def drawn_range(self, level: float) -> tuple[Numbers, Numbers]:
        """Return the least and greatest pairs per thousand floats [DRAWS] that each draw allows.

        They differ where the draw holds more than the most pairs that were tested, or fewer than the fewest.
        """
        assert self.recurrent_floats
        held = crossing_loads(self._means, self._loads, level)
        least = np.minimum(held, self.pairs[-1])
        greatest = np.where(held == 0, self.pairs[0], held)
        return 1000 * least / self.recurrent_floats, 1000 * greatest / self.recurrent_floats

    def sort_key(self) -> tuple[float, ...]:
        """Return a key by which the most pairs per thousand floats come first, and unknown sizes last."""
        held = [min(self.held(level).load, self.pairs[-1]) for level in LEVELS]
        floats = self.recurrent_floats
        return (0, *(-pairs / floats for pairs in held)) if floats else (1, *(-pairs for pairs in held))

    @cached_property
    def _loads(self) -> Numbers:
        return np.array(self.pairs, dtype=np.float64)

    @cached_property
    def _key(self) -> int:
        return stable_key("capacity", *sorted(self.ids))

    @cached_property
    def _means(self) -> Numbers:
        return resampled_means(self.recalls, self._key)


class Ranks(NamedTuple):
    """The range of ranks that a variant may have, 1 being the best."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best} to {self.worst}"


def capacities(comparison: Comparison) -> list[Capacity]:
    """Return the capacity of each variant that measured something, the most per thousand floats first.

    None are returned unless each test has another number of pairs, and tests differ in nothing else but their
    length.
    """
    pairs = pairs_of_tests(comparison.results[0])
    found = [one for row in comparison.rows if (one := _capacity(row))] if pairs else []
    return sorted(found, key=Capacity.sort_key)


def pairs_of_tests(result: CellResult) -> list[int]:
    """Return the number of pairs of each test, in their order; none where tests differ in something else."""
    tests: list[Mapping[str, Any]] = [{**test["settings"]} for test in result["cell"]["task"].get("test", [])]
    counts = [count for test in tests if (count := number_of_pairs(test))]
    others = [
        {name: value for name, value in test.items() if name not in {PAIRS, "seq_len"}} for test in tests
    ]
    several = len(counts) == len(set(counts)) == len(tests) > 1
    return counts if several and all(other == others[0] for other in others) else []


def recall_curve(result: CellResult) -> list[tuple[int, float]] | None:
    """Return the numbers of pairs, rising, each with its recall; None if nothing was measured."""
    accuracies = accuracies_by_test(result)
    if accuracies is None:
        return None
    chances = [test["chance"] for test in result["tests"]]
    recalls = map(clipped_recall, accuracies, chances)
    return sorted(zip(pairs_of_tests(result), recalls, strict=True))


def clipped_recall(accuracy: float, chance: float) -> float:
    """Return accuracy above chance between -1 and 1: what lies beyond comes from no run, and has no mean."""
    return min(1.0, max(-1.0, above_chance(accuracy, chance)))


def number_of_pairs(settings: Mapping[str, Any]) -> int | None:
    """Return the number of pairs in the settings of a task; None if there is none."""
    count = settings.get(PAIRS)
    return whole_number(count, 1) if isinstance(count, int) else None


def _capacity(row: Row) -> Capacity | None:
    measured = [(result["id"], curve) for result in row.results if (curve := recall_curve(result))]
    if not measured:
        return None
    pairs = tuple(count for count, _ in measured[0][1])
    recalls = np.array([[recall for _, recall in curve] for _, curve in measured])
    return Capacity(row, pairs, recalls, tuple(name for name, _ in measured))


def rank_intervals(found: Sequence[Capacity], level: float) -> list[Ranks | None]:
    """Return the range of ranks that each variant takes in the bootstrap, by pairs per thousand floats.

    In a draw the rank of a variant lies between one more than the number of those that are surely better, and
    the number of those that are not surely worse: what holds all pairs that were tested has no order.
    Variants without a size, or with fewer than two seeds, have no rank and count for none.
    """
    ranked = [one for one in found if one.recurrent_floats and one.seeds > 1]
    if not ranked:
        return [None] * len(found)
    least, greatest = (
        np.array(bounds) for bounds in zip(*(one.drawn_range(level) for one in ranked), strict=True)
    )
    cut = tail(min(one.seeds for one in ranked))
    ranks = {}
    for place, one in enumerate(ranked):
        best = 1 + (least > greatest[place]).sum(axis=0)
        worst = (greatest >= least[place]).sum(axis=0)
        ranks[id(one)] = Ranks(int(middle(best, cut)[0]), int(middle(worst, cut)[1]))
    return [ranks.get(id(one)) for one in found]
