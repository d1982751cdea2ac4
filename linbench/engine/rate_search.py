"""The search for a model's learning rate, by one rule for every model.

All models have the same grid of half decades, which is refined by quarter decades around the best rate. The
rate is chosen by validation on tuning seeds; results are reported on other seeds. Where a protocol has rungs,
rates are tried on them, too, by successive halving (arXiv 1502.07943): what is best at the lowest budget need
not be best with twice that. It ends as soon as the best rate has learned enough to be told from the others
(docs/decisions/0015-rungs-of-searches.md).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from linbench.engine.schedule import stable_steps
from linbench.engine.trunk import can_go_on
from linbench.experiments.cell import Cell, Purpose, mean_optimum
from linbench.experiments.learning_rates import HALF_DECADE, SearchSettings, learning_rate
from linbench.results.record import EDGE, UNTRIED
from linbench.results.rungs import NEAR_OPTIMUM
from linbench.results.schema.cells import CellResult
from linbench.results.schema.cells import Search as SearchSummary
from linbench.results.scores import (
    tokens_trained,
    validation_accuracy,
    validation_levels,
    validation_loss,
)

FEWEST_CLIMBERS = 2
"""The fewest rates that climb to a rung: of one alone nothing could be chosen."""

ENOUGH = 0.5
"""The share of the way from chance to the optimum that is enough to judge rates that were tried on two rungs.

Below it, seeds that have not begun to learn may choose the rate. Decision 15.
"""


class RateScore(NamedTuple):
    """The score of a learning rate on the tuning seeds."""

    trained: bool
    """True if no seed diverged.

    A rate with a diverged seed stands below all others: its accuracy counts as chance, which may be more than
    others have learned so far.
    """
    accuracy: float
    """Mean validation accuracy."""
    loss: float
    """Mean validation loss."""

    @classmethod
    def of(cls, results: Sequence[CellResult]) -> "RateScore | None":
        """Return the score of a rate's results; None if one of them has no accuracy."""
        accuracies = [validation_accuracy(result) for result in results]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        if len(known) < len(results):
            return None
        trained = all(result["status"] == "ok" for result in results)
        return cls(trained, fmean(known), fmean(map(validation_loss, results)))

    def rank(self, ties: str) -> tuple[float, ...]:
        """Return what rates are compared by: the greater the better.

        Args:
            ties: how ties are broken; "loss" adds the loss.
        """
        return (self.trained, self.accuracy, *((-self.loss,) if ties == "loss" else ()))


@dataclass
class Search:
    """The search for one model's learning rate, whatever the seed.

    Rates are numbered in quarter decades. A rate that was tried has a score, or None if it has no number to
    be judged by.
    """

    cell: Cell
    settings: SearchSettings
    tried: dict[int, RateScore | None] = field(default_factory=dict)
    """The scores of rates, each on the highest rung that it was tried on."""
    rung: int = field(init=False, default=0)
    """The rung that rates are tried on now."""
    rung_of: dict[int, int] = field(init=False, default_factory=dict)
    """The highest rung that a rate was tried on, where that is not the lowest."""
    trials: dict[int, list[Cell]] = field(init=False)
    """Cells to run now, by rate."""
    runs: int = field(init=False, default=0)
    """The runs of all rates that were tried."""
    tokens: int = field(init=False, default=0)
    """The tokens that these were trained on, where a rung goes on from the one below."""
    judged: set[int] = field(init=False, default_factory=set)
    """The rates that need no higher rung.

    They are at the optimum with every seed, or have learned `ENOUGH` on a rung above the lowest.
    """

    def __post_init__(self) -> None:
        self._plan_trials()

    @property
    def failed(self) -> bool:
        """True if no rate that was tried has a score."""
        return not any(self.tried.values())

    @property
    def best(self) -> int:
        """The rate with the best score on the highest rung; of equals the one that `ties` says."""
        return self._best_of(self.tried)

    def _best_of(self, rates: Iterable[int]) -> int:
        ranks = self._ranks(rates)
        equals = [n for n, rank in ranks.items() if rank == max(ranks.values())]
        return equals[(len(equals) - (self.settings.ties == "loss")) // 2]

    def _ranks(self, rates: Iterable[int]) -> dict[int, tuple[float, ...]]:
        """Return what rates are compared by, of those that have a score on the highest rung of any."""
        scores = {n: score for n in sorted(rates) if (score := self.tried[n])}
        highest = max(self.rung_of.get(n, 0) for n in scores)
        return {
            n: score.rank(self.settings.ties)
            for n, score in scores.items()
            if self.rung_of.get(n, 0) == highest
        }

    @property
    def on_edge(self) -> bool:
        """True if the best is the first or last of those tried."""
        return self.best in (min(self.tried), max(self.tried))

    @property
    def marks(self) -> list[str]:
        """Marks of a result at the best rate, which keep it out of every verdict."""
        edge = [EDGE] if self.on_edge else []
        untried = [UNTRIED] if None in self.tried.values() else []
        return edge + untried

    def _plan_trials(self) -> None:
        """Plan the rates to try now; none if the search is over.

        First comes the grid, then one rate at a time beyond the edge that the best rate lies on, then with
        `halving` the better half on the next rung, and so on until the best has learned enough; at last the
        neighbours of the best rate a quarter decade away.
        """
        rates: Iterable[int] = ()
        if not self.tried:
            rates = self.settings.grid
        elif not self.failed:
            rates = self._beyond_edge() or self._better_half() or self._neighbours()
        self.trials = {n: self.at(n, self.settings.seeds, "tuning") for n in rates}

    @property
    def _on_grid(self) -> list[int]:
        return [n for n in self.tried if n % HALF_DECADE == 0]

    def _beyond_edge(self) -> list[int]:
        """Return the next rate beyond the edge that the best of the grid lies on; none if it lies on none."""
        on_grid = self._on_grid
        best, lowest, highest = self._best_of(on_grid), min(on_grid), max(on_grid)
        if lowest < best < highest or len(on_grid) >= self._most_on_grid:
            return []
        return [lowest - HALF_DECADE if best == lowest else highest + HALF_DECADE]

    def _better_half(self) -> list[int]:
        """Return the rates that climb to the next rung; none if the best of them is known."""
        ranks = self._ranks(self._on_grid)
        count = self._climbers(len(ranks), self.rung)
        if not count or self._best_of(self._on_grid) in self.judged:
            return []
        self.rung += 1
        return sorted(sorted(ranks, key=lambda n: ranks[n], reverse=True)[:count])

    def _climbers(self, contenders: int, rung: int) -> int:
        """Return how many of so many rates on a rung climb to the next."""
        if not self.settings.halving or rung + 1 >= self.cell.protocol.rungs:
            return 0
        decided = contenders < FEWEST_CLIMBERS or (contenders == FEWEST_CLIMBERS and rung > 0)
        return 0 if decided else max(FEWEST_CLIMBERS, math.ceil(contenders / 2))

    def _neighbours(self) -> list[int]:
        """Return the neighbours of the best of the grid that are to be tried; none if it lies on an edge."""
        on_grid = self._on_grid
        best = self._best_of(on_grid)
        if not self.settings.refine or not min(on_grid) < best < max(on_grid):
            return []
        return [n for n in (best - 1, best + 1) if n not in self.tried]

    @property
    def most_to_come(self) -> int:
        """The most cells that the search may add to those that are pending, as far as is known."""
        if not self.trials or any(n % HALF_DECADE for n in self.trials):
            return 0
        extensions = self._most_on_grid - len({*self._on_grid, *self.trials})
        rates = extensions + 2 * self.settings.refine
        here = {n for n in self._on_grid if self.rung_of.get(n, 0) == self.rung}
        contenders, rung = len(here | self.trials.keys()) + extensions, self.rung
        while count := self._climbers(contenders, rung):
            # a rate beyond the edge may be found on any rung, and climb with the best
            rates += count + FEWEST_CLIMBERS * extensions
            contenders, rung = count, rung + 1
        return rates * len(self.settings.seeds)

    @property
    def _most_on_grid(self) -> int:
        return self.settings.rates + self.settings.extensions

    def at(self, n: int, seeds: Sequence[int], purpose: Purpose) -> list[Cell]:
        """Return the model's cells of some seeds at a learning rate, those for tuning on the present rung."""
        cell = self.cell if purpose == "report" else self.cell.rung(self.rung)
        protocol = cell.protocol.model_copy(update={"lr": learning_rate(n)})
        return [replace(cell, protocol=protocol, seed=seed, purpose=purpose) for seed in seeds]

    @property
    def pending(self) -> list[Cell]:
        """Cells to run now to score rates; none if the search is over."""
        return [cell for cells in self.trials.values() for cell in cells]

    @property
    def lowest_rungs(self) -> list[Cell]:
        """The cells of all rates that were tried, on the lowest rung."""
        return [
            replace(cell.rung(0), purpose="tuning")
            for n in self.tried
            for cell in self.at(n, self.settings.seeds, "report")
        ]

    def record(self, results: Mapping[str, CellResult]) -> None:
        """Take up the results, by id, of the cells that were pending."""
        for n, cells in self.trials.items():
            of_rate = [results[cell.id] for cell in cells]
            self.runs += len(of_rate)
            self.tokens += sum(map(tokens_trained, of_rate)) - self._trained_before(n) * len(of_rate)
            self.tried[n] = RateScore.of(of_rate)
            if self.rung:
                self.rung_of[n] = self.rung
            enough = self.rung and _share_learned(of_rate) >= ENOUGH
            if self.settings.halving and (enough or self._all_at_optimum(of_rate)):
                self.judged.add(n)
        self._plan_trials()

    def _trained_before(self, n: int) -> int:
        """Return the tokens of a cell on the present rung that were those of the rung below."""
        climbs = self.rung and n in self.tried and self.rung_of.get(n, 0) == self.rung - 1
        if not climbs or not can_go_on(self.cell):
            return 0
        return self.cell.curriculum.tokens(stable_steps(self.cell.rung(self.rung - 1)))

    def _all_at_optimum(self, results: Sequence[CellResult]) -> bool:
        scores = [validation_accuracy(result) for result in results]
        enough = NEAR_OPTIMUM * mean_optimum(self.cell.validated_on)
        return all(score is not None and score >= enough for score in scores)

    def at_best(self, cell: Cell) -> Cell:
        """Return a cell of the model at the best rate."""
        return self.at(self.best, [cell.seed], "report")[0]

    def summary(self) -> SearchSummary:
        """Return the field `search` of results: rates with accuracies, tuning seeds, choice and cost."""
        scores = sorted(self.tried.items())
        summary: SearchSummary = {
            "accuracies": [[learning_rate(n), score and score.accuracy] for n, score in scores],
            "seeds": list(self.settings.seeds),
            "best": learning_rate(self.best),
            "edge": self.on_edge,
            "runs": self.runs,
            "tokens": self.tokens,
        }
        if self.rung_of:
            summary["rungs"] = [self.rung_of.get(n, 0) for n, _ in scores]
        return summary


def _share_learned(results: Sequence[CellResult]) -> float:
    """Return the mean share of the way from chance to the optimum; 0 if a result has no accuracy."""
    shares = []
    for result in results:
        (chance, optimum), accuracy = validation_levels(result), validation_accuracy(result)
        shares.append(0.0 if accuracy is None else (accuracy - chance) / (optimum - chance))
    return fmean(shares)
