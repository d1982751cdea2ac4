"""Tokens to learn: of each run, of the seeds of a variant, and beside other variants.

A run has learned when its validation accuracy first reaches a threshold. It is looked at on a grid of tokens,
so that the time lies between two looks; a run that never reached it is censored. The variants of a comparison
must be looked at on one grid, which a larger budget goes on with but makes no finer.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from linbench.results.comparison import Comparison, Row, broken_laws
from linbench.results.record import DIVERGED, FINAL
from linbench.results.schema.cells import CellResult
from linbench.results.scores import LEARNED, tokens_trained, validation_levels
from linbench.results.statistics import holm
from linbench.results.survival import Median, Time, log_rank, median

FEWEST = 2
"""The fewest seeds of a variant that is compared with others."""


def threshold(result: CellResult) -> float:
    """Return the validation accuracy from which on a run has learned.

    It lies `LEARNED` of the way from chance to the optimum, so that it means as much where chance is one half
    as where it is nearly nothing: 0.95 for parity, 0.901 for recall among 128 values. It is never above the
    accuracy at which the protocol stops a run, which nobody could tell from having learned more.
    """
    lowest, highest = validation_levels(result)
    stop_at = result["cell"]["protocol"]["settings"].get("stop_at")
    return min(lowest + LEARNED * (highest - lowest), 1.0 if stop_at is None else stop_at)


def learning_time(result: CellResult, accuracy: float | None = None) -> Time | None:
    """Return the tokens that a run took to learn; None if nothing was measured.

    A run that has not learned is censored at the tokens that it was trained with. One that diverged never
    learns, whatever it had reached before: it could not have gone on, and must not leave the group early. No
    more does a ladder that ended flat.

    Args:
        result: of a cell.
        accuracy: from which on it has learned; default: its `threshold`.
    """
    if result["status"] == DIVERGED:
        return Time(math.inf, math.inf)
    if result["status"] not in FINAL or not result["curve"]:
        return None
    enough = threshold(result) if accuracy is None else accuracy
    after = 0.0
    for tokens, reached in _looks(result):
        if reached >= enough:
            return Time(after, float(tokens))
        after = float(tokens)
    flat = "ladder" in result and result["ladder"]["ended"] == "flat"
    return Time(math.inf if flat else after, math.inf)


def _looks(result: CellResult) -> list[tuple[int, float]]:
    """Return the tokens and the validation accuracy of every look.

    A ladder was also looked at where the learning rate of its lower rungs had fallen, which is not in the
    curve of the last. Else a run whose ladder ended there would seem faster than one that had got as far.
    """
    looks: dict[int, float] = {}
    rungs = result["ladder"]["rungs"] if "ladder" in result else []
    for point in (*result["curve"], *rungs):
        if point["accuracy"] is not None:
            looks[point["tokens"]] = max(point["accuracy"], looks.get(point["tokens"], -math.inf))
    return sorted(looks.items())


def learning_times(row: Row) -> tuple[Time, ...]:
    """Return the learning times of the seeds of a variant that measured something."""
    return tuple(time for result in row.results if (time := learning_time(result)) is not None)


def can_be_shown(comparison: Comparison) -> bool:
    """Return whether any variant of a comparison has enough seeds, and any run has learned."""
    times = [learning_times(row) for row in comparison.rows]
    return max(map(len, times)) >= FEWEST and any(time.happened for own in times for time in own)


class Learning(NamedTuple):
    """The speed at which a variant of a comparison learns.

    Attributes:
        row: the variant.
        times: of its seeds that measured something.
        median: over these; None if there are none.
        p: of the log-rank test against the reference, by Holm's method; None if it was not compared.
        reference: whether the others of its width are compared with it.
    """

    row: Row
    times: tuple[Time, ...]
    median: Median | None
    p: float | None = None
    reference: bool = False

    @property
    def learned(self) -> int:
        """The number of seeds that learned."""
        return sum(time.happened for time in self.times)

    @property
    def comparable(self) -> bool:
        """True if it has enough seeds, and keeps the laws of layers."""
        return len(self.times) >= FEWEST and not broken_laws(self.row.results)


def largest_budget(comparison: Comparison) -> int:
    """Return the largest number of tokens that any run of a comparison was trained with; 0 if none was."""
    return max(map(tokens_trained, comparison.results), default=0)


def learning(comparison: Comparison, baseline: str | None = None) -> list[Learning]:
    """Return how soon each variant of a comparison learns, in its order; only equal widths are compared.

    Args:
        comparison: the variants.
        baseline: the label of the variant that the others are compared with, each of them one test for Holm's
            method. Default: the fastest of each width. As that is chosen after looking, all pairs are tests
            then; with the other variants alone, ten equal ones with eight seeds each would be called
            different in 8 % of draws (measured on 600).

    Raises ValueError: the baseline is no variant of the comparison that can be compared.
    """
    found = [_learning(row) for row in comparison.rows]
    if baseline is None:
        references = _fastest(found, largest_budget(comparison))
    else:
        references = {i for i, one in enumerate(found) if one.row.label == baseline and one.comparable}
        if not references:
            raise ValueError(f"{baseline} is no variant with {FEWEST} seeds in {comparison.title}")
    pairs = [pair for pair in _pairs(found) if baseline is None or references & set(pair)]
    ps = holm([log_rank(found[i].times, found[j].times) for i, j in pairs])
    for (i, j), p in zip(pairs, ps, strict=True):
        for one, other in ((i, j), (j, i)):
            if other in references:
                found[one] = found[one]._replace(p=p)
    return [one._replace(reference=i in references) for i, one in enumerate(found)]


def count_pairs(found: Sequence[Learning]) -> int:
    """Return the number of pairs of variants that can be compared."""
    return len(_pairs(found))


def _learning(row: Row) -> Learning:
    times = learning_times(row)
    return Learning(row, times, median(times) if times else None)


def _pairs(found: Sequence[Learning]) -> list[tuple[int, int]]:
    """Return the places of all pairs that can be compared: of one width, with enough seeds."""
    return [
        (i, j)
        for (i, one), (j, other) in combinations(enumerate(found), 2)
        if one.comparable and other.comparable and one.row.width == other.row.width
    ]


def slowness(times: Sequence[Time], budget: float) -> tuple[float, float]:
    """Return what variants are put in order by, the fastest first: the median, then the mean.

    In the mean a seed that never learned takes the budget. Without any times both are infinite.
    """
    if not times:
        return (math.inf, math.inf)
    return median(times).time, fmean(min(time.by, budget) for time in times)


def _fastest(found: Sequence[Learning], budget: float) -> set[int]:
    """Return the place of the fastest variant of each width."""
    best: dict[int, tuple[tuple[float, float], int]] = {}
    for i, one in enumerate(found):
        if one.comparable:
            own = (slowness(one.times, budget), i)
            best[one.row.width] = min(best.get(one.row.width, own), own)
    return {i for _, i in best.values()}
