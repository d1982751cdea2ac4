"""The search for learning rates, by one rule for every model.

All models have the same grid of half decades, which is refined by quarter decades around the best rate. The
rate is chosen by validation on tuning seeds; results are reported on other seeds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from linbench.common.errors import HopelessError, UserError
from linbench.common.hashing import digest
from linbench.common.laws import parse_laws
from linbench.engine.executors.base import OpenExecutor
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.jobs import plugin_sources
from linbench.engine.ladder import Ladders, final_result
from linbench.engine.probe import Marks
from linbench.engine.progress import Progress
from linbench.engine.runner import is_final, run_cells
from linbench.experiments.cell import Cell, Purpose
from linbench.experiments.learning_rates import (
    HALF_DECADE,
    SearchSettings,
    default_search,
    learning_rate,
)
from linbench.results.record import EDGE, UNTRIED
from linbench.results.schema.cells import CellResult
from linbench.results.schema.cells import Search as SearchSummary
from linbench.results.scores import tokens_trained, validation_accuracy, validation_loss
from linbench.results.store import Store


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
    trials: dict[int, list[Cell]] = field(init=False)
    """Cells to run now, by rate."""
    runs: int = field(init=False, default=0)
    """The runs of all rates that were tried."""
    tokens: int = field(init=False, default=0)
    """The tokens that these were trained on."""

    def __post_init__(self) -> None:
        self._plan_trials()

    @property
    def failed(self) -> bool:
        """True if no rate that was tried has a score."""
        return not any(self.tried.values())

    @property
    def best(self) -> int:
        """The rate with the best score; among equals the one that `ties` of the settings says."""
        return self._best_of(self.tried)

    def _best_of(self, rates: Iterable[int]) -> int:
        scores = {n: score for n in sorted(rates) if (score := self.tried[n])}
        ranks = {n: score.rank(self.settings.ties) for n, score in scores.items()}
        equals = [n for n, rank in ranks.items() if rank == max(ranks.values())]
        return equals[(len(equals) - (self.settings.ties == "loss")) // 2]

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

    @property
    def next(self) -> list[int]:
        """The rates to try now; none if the search is over.

        First comes the grid, then one rate at a time beyond the edge that the best rate lies on, then the
        neighbours of the best rate a quarter decade away.
        """
        if not self.tried:
            return self.settings.grid
        if self.failed:
            return []
        on_grid = [n for n in self.tried if n % HALF_DECADE == 0]
        best, lowest, highest = self._best_of(on_grid), min(on_grid), max(on_grid)
        if lowest < best < highest:
            neighbours = (best - 1, best + 1) if self.settings.refine else ()
            return [n for n in neighbours if n not in self.tried]
        if len(on_grid) >= self._most_on_grid:
            return []
        return [lowest - HALF_DECADE if best == lowest else highest + HALF_DECADE]

    @property
    def most_to_come(self) -> int:
        """The most cells that the search may add to those that are pending, as far as is known."""
        if not self.trials or any(n % HALF_DECADE for n in self.trials):
            return 0
        extensions = self._most_on_grid - len(self.tried) - len(self.trials)
        return (extensions + 2 * self.settings.refine) * len(self.settings.seeds)

    @property
    def _most_on_grid(self) -> int:
        return self.settings.rates + self.settings.extensions

    def at(self, n: int, seeds: Sequence[int], purpose: Purpose) -> list[Cell]:
        """Return the model's cells of some seeds at a learning rate."""
        rungs = self.cell.protocol.rungs if purpose == "report" else 1
        protocol = self.cell.protocol.model_copy(update={"lr": learning_rate(n), "rungs": rungs})
        return [replace(self.cell, protocol=protocol, seed=seed, purpose=purpose) for seed in seeds]

    @property
    def pending(self) -> list[Cell]:
        """Cells to run now to score rates; none if the search is over."""
        return [cell for cells in self.trials.values() for cell in cells]

    def record(self, results: Mapping[str, CellResult]) -> None:
        """Take up the results, by id, of the cells that were pending."""
        for n, cells in self.trials.items():
            of_rate = [results[cell.id] for cell in cells]
            self.tried[n] = RateScore.of(of_rate)
            self.runs += len(of_rate)
            self.tokens += sum(map(tokens_trained, of_rate))
        self._plan_trials()

    def _plan_trials(self) -> None:
        self.trials = {n: self.at(n, self.settings.seeds, "tuning") for n in self.next}

    def at_best(self, cell: Cell) -> Cell:
        """Return a cell of the model at the best rate."""
        return self.at(self.best, [cell.seed], "report")[0]

    def summary(self) -> SearchSummary:
        """Return the field `search` of results: rates with accuracies, tuning seeds, choice and cost."""
        scores = sorted(self.tried.items())
        return {
            "accuracies": [[learning_rate(n), score and score.accuracy] for n, score in scores],
            "seeds": list(self.settings.seeds),
            "best": learning_rate(self.best),
            "edge": self.on_edge,
            "runs": self.runs,
            "tokens": self.tokens,
        }


def run_searched(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    settings: SearchSettings | None = None,
    executor: OpenExecutor = IN_PROCESS,
    again: bool = False,
    retry: bool = True,
    stack: int | None = None,
    allow: Iterable[str] = (),
) -> list[CellResult]:
    """Run cells at the learning rates that searches find, and return their results in order.

    The learning rates that the cells have are ignored. All models are searched side by side, each as far as
    its results lead. Reported results say what was tried. They are marked `lr_edge` if the best rate is the
    first or last of all tried, and `lr_untried` if a run of some rate failed; such a rate is never the best.

    Args:
        settings: the grid, seeds and extensions of the searches; None for the default.
        cells, store, progress, executor, again, retry, stack, allow: as of `run_cells`.

    Raises UserError: a seed to be reported is a tuning seed, or a layer breaks a law that `allow` does not
    name; HopelessError, after all else was run: no rate of a model has a score; StorageError: results cannot
    be kept.
    """
    search_settings = settings or default_search()
    searches = _searches(cells, search_settings)
    with_searches = [(cell, searches[model_key(cell)]) for cell in {cell.id: cell for cell in cells}.values()]
    reports: dict[str, Cell] = {}
    annotated: dict[str, CellResult] = {}
    ladders = Ladders(store)

    def next_cells(results: Mapping[str, CellResult]) -> Iterator[Cell]:
        """Yield cells to score rates, then cells at the best rates; annotate results that are there."""
        for cell, search in with_searches:
            if search.pending and all(trial.id in results for trial in search.pending):
                search.record(results)
            if search.pending:
                yield from search.pending
            elif not search.failed:
                report = reports[cell.id] = reports.get(cell.id) or search.at_best(cell)
                yield from ladders.climb(report, results)
                if report.id in ladders.ended and cell.id not in annotated:
                    annotated[cell.id] = _annotate(ladders.ended[report.id], search, store)

    # a law that is broken is told before anything is trained, whatever of the searches is stored
    if from_plugins := [cell for cell in cells if plugin_sources(cell)]:
        stored = (lambda name: None) if again else store.get
        left = pending_cells(from_plugins, stored, search_settings, retry=retry).left
        Marks(parse_laws(allow), executor.timeout).probe([cell for cell in from_plugins if cell.id in left])
    run_cells(
        [cell for search in searches.values() for cell in search.pending],
        store,
        progress,
        executor=executor,
        again=again,
        retry=retry,
        stack=stack,
        next_cells=next_cells,
        allow=allow,
    )
    if failed := dict.fromkeys(search.cell.model.label for search in searches.values() if search.failed):
        raise HopelessError(
            f"no learning rate of {', '.join(failed)} can be chosen: none has a number from every tuning"
            " seed; see why its runs ended as they did."
        )
    return [annotated[cell.id] for cell, _ in with_searches]


class Pending(NamedTuple):
    """The cells that `run_searched` would run, as far as the results that are found lead."""

    tuning: list[Cell]
    """The cells that score learning rates, finished ones too."""
    left: set[str]
    """The ids of the cells left to run, of those that score rates and of those to be reported.

    One to be reported is left while its rate is not chosen or it has no result at that rate, but not if no
    rate can be chosen.
    """
    most_to_come: int
    """The most cells that searches may add to `tuning`."""


def pending_cells(
    cells: Sequence[Cell],
    stored: Callable[[str], CellResult | None],
    settings: SearchSettings | None,
    *,
    retry: bool,
) -> Pending:
    """Return what is left to run for cells and for the searches for their learning rates.

    Args:
        cells: the cells to be reported.
        stored: a look-up of a stored result by its id.
        settings: the search for learning rates; None if there is none, and no cells score rates.
        retry: whether cells that failed are left to run.

    Raises UserError: a seed to be reported is a tuning seed.
    """

    def look_up(cell: Cell) -> CellResult | None:
        result = stored(cell.id)
        return result if is_final(result, again=False, retry=retry) else None

    if settings is None:
        return Pending([], {cell.id for cell in cells if not final_result(cell, look_up)}, 0)
    searches, tuning, unfinished = _follow_all(cells, look_up, settings)
    for cell in cells:
        search = searches[model_key(cell)]
        if search.pending or not (search.failed or final_result(search.at_best(cell), look_up)):
            unfinished.add(cell.id)
    return Pending(tuning, unfinished, sum(search.most_to_come for search in searches.values()))


def with_chosen_rates(
    cells: Sequence[Cell], look_up: Callable[[Cell], CellResult | None], settings: SearchSettings
) -> dict[str, Cell]:
    """Return cells at their models' learning rates, by the ids that they have now.

    Cells whose rate the results that are found do not choose are left out.

    Raises UserError: a seed to be reported is a tuning seed.
    """
    searches = _searches(cells, settings)
    for search in searches.values():
        _follow(search, look_up)
    owners = [(cell, searches[model_key(cell)]) for cell in cells]
    return {cell.id: search.at_best(cell) for cell, search in owners if not (search.pending or search.failed)}


def _follow(search: Search, look_up: Callable[[Cell], CellResult | None]) -> None:
    """Take a search as far as results lead.

    The last seed is looked for first: if a search was not run to its end, it is the one that is missing.
    """
    while pending := search.pending:
        results: dict[str, CellResult] = {}
        for cell in reversed(pending):
            result = look_up(cell)
            if result is None:
                return
            results[cell.id] = result
        search.record(results)


def _follow_all(
    cells: Sequence[Cell], look_up: Callable[[Cell], CellResult | None], settings: SearchSettings
) -> tuple[dict[str, Search], list[Cell], set[str]]:
    """Return the searches as far as results lead, all their cells, and the ids of those without a result."""
    searches = _searches(cells, settings)
    tuning: list[Cell] = []
    unfinished: set[str] = set()
    for search in searches.values():
        while pending := search.pending:
            tuning += pending
            results = {cell.id: result for cell in pending if (result := look_up(cell))}
            if missing := {cell.id for cell in pending} - results.keys():
                unfinished |= missing
                break
            search.record(results)
    return searches, tuning, unfinished


def _searches(cells: Sequence[Cell], settings: SearchSettings) -> dict[str, Search]:
    """Return a search for each model. Raises UserError: a seed to be reported is a tuning seed."""
    if tuning := sorted({cell.seed for cell in cells} & set(settings.seeds)):
        raise UserError(
            f"seed {tuning[0]} is a tuning seed ({', '.join(map(str, settings.seeds))}), which chooses the"
            " learning rate; report others."
        )
    return {model_key(cell): Search(cell, settings) for cell in cells}


def model_key(cell: Cell) -> str:
    """Return a digest of what cells that share a search have in common: all but seed and learning rate."""
    settings = cell.identity["protocol"]["settings"]
    return digest(
        {**cell.identity, "seed": None, "protocol": {**settings, "lr": None}, "label": cell.model.label}
    )


def _annotate(result: CellResult, search: Search, store: Store) -> CellResult:
    """Return the result with what was tried, and keep it so in the store."""
    marks = [mark for mark in result["marks"] if mark not in (EDGE, UNTRIED)] + search.marks
    annotated: CellResult = {**result, "marks": marks, "search": search.summary()}
    if annotated != result:
        store.put(annotated)
    return annotated
