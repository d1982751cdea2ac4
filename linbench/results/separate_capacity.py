"""Capacity where a model of its own was trained for each number of pairs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from linbench.common.hashing import canonical
from linbench.results.capacity import PAIRS, Capacity, clipped_recall, number_of_pairs
from linbench.results.comparable import comparable_key
from linbench.results.comparison import Comparison, Row
from linbench.results.record import learning_rate_of, seed_of
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracy

FEWEST = 3
"""The fewest numbers of pairs that make a capacity. Chosen: many folders hold a cell at two of them."""

SCALED = (PAIRS, "seq_len", "batch_size")
"""The settings in which the cells of one capacity may differ: longer sequences come in smaller batches."""


class SeparateCapacities(NamedTuple):
    """Comparisons that differ in the number of pairs, and the capacities of the variants that all have.

    comparisons: the fewest pairs first. found: the most pairs per thousand floats first.
    """

    comparisons: list[Comparison]
    found: list[Capacity]

    @property
    def pairs(self) -> list[int]:
        """The number of pairs of each comparison."""
        return [_pairs(comparison) for comparison in self.comparisons]


def separate_capacities(comparisons: Iterable[Comparison]) -> list[SeparateCapacities]:
    """Return the capacities over comparisons that differ in the number of pairs, and in what goes with it.

    Where two of them have as many pairs, no capacity is told: lengths or batches would decide it.
    """
    families: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        first = comparison.results[0]
        if not comparison.tests and _pairs(comparison):
            families.setdefault(comparable_key(first, ladder="ladder" in first, but=SCALED), []).append(
                comparison
            )
    groups = [_group(members) for members in families.values()]
    return [group for group in groups if group.found]


def _pairs(comparison: Comparison) -> int:
    """Return the number of pairs of a comparison; 0 if its task has none."""
    return number_of_pairs(comparison.results[0]["cell"]["task"]["settings"]) or 0


def _group(members: Sequence[Comparison]) -> SeparateCapacities:
    ordered = sorted(members, key=_pairs)
    pairs = tuple(map(_pairs, ordered))
    if len(pairs) < FEWEST or len(set(pairs)) < len(pairs):
        return SeparateCapacities(ordered, [])
    rows = [_rows_by_model(comparison) for comparison in ordered]
    shared = [key for key in rows[0] if all(key in own for own in rows)]
    found = [_capacity(pairs, [own[key] for own in rows]) for key in shared]
    return SeparateCapacities(ordered, sorted((one for one in found if one), key=Capacity.sort_key))


def _rows_by_model(comparison: Comparison) -> dict[str, Row]:
    """Return the rows of a comparison by `_model`, without those that share a key."""
    keys = [_model(row.results[0]) for row in comparison.rows]
    return {key: row for key, row in zip(keys, comparison.rows, strict=True) if keys.count(key) == 1}


def _model(result: CellResult) -> str:
    """Return a key of a variant. A learning rate that was searched for may differ with the pairs."""
    return canonical([result["cell"]["model"], None if result["search"] else learning_rate_of(result)])


def _capacity(pairs: tuple[int, ...], rows: Sequence[Row]) -> Capacity | None:
    """Return the capacity of a variant over the seeds that measured something at every number of pairs."""
    by_seed = [_recalls(row) for row in rows]
    seeds = [seed for seed in by_seed[0] if all(seed in own for own in by_seed)]
    if not seeds:
        return None
    results = [result for row in rows for result in row.results]
    recalls = np.array([[own[seed] for own in by_seed] for seed in seeds])
    row = Row(rows[0].label, tuple(results))
    return Capacity(row, pairs, recalls, tuple(result["id"] for result in results))


def _recalls(row: Row) -> Mapping[int, float]:
    return {
        seed_of(result): clipped_recall(score, result["chance"])
        for result in row.results
        if (score := accuracy(result)) is not None
    }
