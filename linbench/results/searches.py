"""Searches for learning rates: the score that chose a rate, how it holds on reported seeds, and the cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from linbench.common.hashing import canonical
from linbench.results.comparison import Row
from linbench.results.record import doublings_of, learning_rate_of, seed_of
from linbench.results.schema.cells import CellResult, Search
from linbench.results.scores import tokens_trained, validation_accuracy


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search for a model's learning rate.

    Both scores are the mean validation accuracy at the chosen rate and the budget that this was chosen with,
    so that nothing but the seeds differs.
    """

    model: str
    learning_rate: float
    tuning_score: float | None
    """The score of the tuning seeds, by which the rate was chosen."""
    reported_score: float | None
    """The score of the seeds that are reported; None if none of them measured anything."""
    tuning_seeds: tuple[int, ...]
    rates: int
    """The number of rates that were tried."""
    runs: int
    tokens: int | None
    """The tokens that all runs of the search were trained on; None if that is not known."""

    @property
    def optimism(self) -> float | None:
        """The tuning score less the reported score: what is won by the choice alone and lost again."""
        if self.tuning_score is None or self.reported_score is None:
            return None
        return self.tuning_score - self.reported_score


def search_outcomes(row: Row) -> list[SearchOutcome]:
    """Return the outcome of each search that chose the learning rate of a row; none if it was given.

    There are several if seeds were reported after searches on other seeds that found the same rate.
    """
    searches = {canonical(search): search for result in row.results if (search := result["search"])}
    return [_outcome(row, search) for search in searches.values()]


def _outcome(row: Row, search: Search) -> SearchOutcome:
    reported = [result for result in row.results if result["search"] == search]
    tried = {rate: score for rate, score in search["accuracies"] if rate is not None}
    rungs = dict(zip((rate for rate, _ in search["accuracies"]), search.get("rungs", ()), strict=False))
    rung = rungs.get(search["best"], 0)
    scores = [score for result in reported if (score := _score_on(result, rung)) is not None]
    return SearchOutcome(
        model=row.label,
        learning_rate=search["best"],
        tuning_score=tried.get(search["best"]),
        reported_score=fmean(scores) if scores else None,
        tuning_seeds=tuple(search["seeds"]),
        rates=len(tried),
        runs=search.get("runs", len(tried) * len(search["seeds"])),
        tokens=search.get("tokens", _tokens(row.tuning, tried, search["seeds"])),
    )


def _score_on(result: CellResult, rung: int) -> float | None:
    """Return final validation accuracy on a rung of a ladder, or on its last if it ended before."""
    if "ladder" not in result:
        return validation_accuracy(result)
    rungs = result["ladder"]["rungs"]
    return rungs[min(rung, len(rungs) - 1)]["accuracy"]


def highest_trials(row: Row) -> list[CellResult]:
    """Return the results that chose a row's learning rate, of each rate and seed that of the highest rung."""
    highest: dict[tuple[float, int], CellResult] = {}
    for result in row.tuning:
        run = learning_rate_of(result), seed_of(result)
        highest[run] = max(highest.get(run, result), result, key=doublings_of)
    return list(highest.values())


def _tokens(tuning: Iterable[CellResult], rates: Iterable[float], seeds: Iterable[int]) -> int | None:
    """Return the tokens of a search that did not record them, if the results of all its runs are there."""
    left = {(rate, seed) for rate in rates for seed in seeds}
    tokens = 0
    for result in tuning:
        run = learning_rate_of(result), seed_of(result)
        if run in left:
            left.remove(run)
            tokens += tokens_trained(result)
    return None if left else tokens
