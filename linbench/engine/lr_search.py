"""The learning rate of every model by one rule: the same grid for all, chosen on tuning seeds by validation,
reported on others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

from linbench.common.errors import HopelessError, UserError
from linbench.common.hashing import digest
from linbench.common.laws import allowed
from linbench.engine.executors.base import OpenExecutor
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.jobs import plugin_sources
from linbench.engine.probe import Marks
from linbench.engine.progress import Progress
from linbench.engine.runner import run_cells, stands
from linbench.experiments.cell import Cell, Purpose
from linbench.experiments.learning_rates import SearchSettings, default_search, learning_rate
from linbench.results.record import EDGE, UNTRIED, Result
from linbench.results.scores import validation_accuracy, validation_loss
from linbench.results.store import Store


class Trial(NamedTuple):
    """What the tuning seeds say of a learning rate."""

    trained: bool
    """None of them diverged: such a rate stands below all others, as chance may be more than what others have
    learned so far."""
    accuracy: float
    """Mean validation accuracy."""
    loss: float
    """Mean validation loss."""

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Trial | None":
        """None where one of them has no number."""
        accuracies = [accuracy for result in results if (accuracy := validation_accuracy(result)) is not None]
        if len(accuracies) < len(results):
            return None
        return cls(
            all(result["status"] == "ok" for result in results),
            fmean(accuracies),
            fmean(map(validation_loss, results)),
        )

    def rank(self, ties: str) -> tuple[float, ...]:
        """Return what rates are compared by, the greater the better; where ties are broken by the loss, that
        too."""
        return (self.trained, self.accuracy, *((-self.loss,) if ties == "loss" else ()))


@dataclass
class Search:
    """Of one model, whatever the seed: what became of every half decade tried; None: there is no number to
    judge it by."""

    cell: Cell
    settings: SearchSettings
    tried: dict[int, Trial | None] = field(default_factory=dict)
    trials: dict[int, list[Cell]] = field(init=False)
    """What to run now, by half decade."""

    def __post_init__(self) -> None:
        self._go_on()

    @property
    def hopeless(self) -> bool:
        """Whether no rate that was tried has a number."""
        return not any(self.tried.values())

    @property
    def best(self) -> int:
        """The half decade that did best, of those with a number; of equals as `ties` has it."""
        ranks = {n: trial.rank(self.settings.ties) for n, trial in sorted(self.tried.items()) if trial}
        equals = [n for n, rank in ranks.items() if rank == max(ranks.values())]
        return equals[(len(equals) - (self.settings.ties == "loss")) // 2]

    @property
    def on_edge(self) -> bool:
        """Whether the best is the first or last of those tried."""
        return self.best in (min(self.tried), max(self.tried))

    @property
    def marks(self) -> list[str]:
        """What keeps a result at the best out of every verdict."""
        return [
            mark
            for mark, applies in ((EDGE, self.on_edge), (UNTRIED, None in self.tried.values()))
            if applies
        ]

    @property
    def next(self) -> list[int]:
        """What to try now: the grid, then one rate more beyond the edge that the best lies on, and so on;
        nothing when done."""
        if not self.tried:
            return self.settings.grid
        if (
            self.hopeless
            or not self.on_edge
            or len(self.tried) >= self.settings.rates + self.settings.extensions
        ):
            return []
        return [self.best - 1 if self.best == min(self.tried) else self.best + 1]

    def at(self, half_decades: int, seeds: Sequence[int], purpose: Purpose) -> list[Cell]:
        """The model's cells at a learning rate."""
        protocol = self.cell.protocol.model_copy(update={"lr": learning_rate(half_decades)})
        return [replace(self.cell, protocol=protocol, seed=seed, purpose=purpose) for seed in seeds]

    @property
    def wanted(self) -> list[Cell]:
        """What to run now, to be judged by; nothing when done."""
        return [cell for cells in self.trials.values() for cell in cells]

    def learn(self, results: Mapping[str, Result]) -> None:
        """What became of the cells that were wanted, by their ids."""
        self.tried |= {n: Trial.of([results[cell.id] for cell in cells]) for n, cells in self.trials.items()}
        self._go_on()

    def _go_on(self) -> None:
        self.trials = {n: self.at(n, self.settings.seeds, "tuning") for n in self.next}

    def reported(self, cell: Cell) -> Cell:
        """A cell of the model at the best rate."""
        return self.at(self.best, [cell.seed], "report")[0]

    def summary(self) -> dict[str, Any]:
        """For the results that are reported."""
        accuracies = [[learning_rate(n), trial and trial.accuracy] for n, trial in sorted(self.tried.items())]
        return {
            "accuracies": accuracies,
            "seeds": list(self.settings.seeds),
            "best": learning_rate(self.best),
            "edge": self.on_edge,
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
) -> list[Result]:
    """The results of `cells`, each at the learning rate that its model's search finds, whatever rate the cell
    has.

    All models are searched side by side, each as far as its results lead. The reported ones say what was
    tried, and are marked `lr_edge` where the best rate is the first or last of all tried, `lr_untried` where
    one of its runs failed, which is never the best.

    Raises UserError: a seed to be reported is a tuning seed, or a layer breaks a law that `allow` does not
    name; HopelessError, when all others are run: no rate of a model could be tried. StorageError: results
    cannot be kept.
    """
    searches = _searches(cells, settings or default_search())
    asked = [(cell, searches[model_of(cell)]) for cell in {cell.id: cell for cell in cells}.values()]
    reports: dict[str, Cell] = {}
    told: dict[str, Result] = {}

    def following(results: Mapping[str, Result]) -> Iterator[Cell]:
        """What a search says of a report is kept with it at once."""
        for cell, search in asked:
            if search.wanted and all(each.id in results for each in search.wanted):
                search.learn(results)
            if search.wanted:
                yield from search.wanted
            elif not search.hopeless:
                report = reports[cell.id] = reports.get(cell.id) or search.reported(cell)
                if report.id in results and cell.id not in told:
                    told[cell.id] = _told(results[report.id], search, store)
                yield report

    # before any of the others is trained, whatever of their searches is stored
    if not_shipped := [cell for cell in cells if plugin_sources(cell)]:
        _, left = ahead(
            not_shipped,
            (lambda name: None) if again else store.get,
            settings or default_search(),
            retry=retry,
        )
        Marks(allowed(allow), executor.timeout).probe([cell for cell in not_shipped if cell.id in left])
    first = [cell for search in searches.values() for cell in search.wanted]
    run_cells(
        first,
        store,
        progress,
        executor=executor,
        again=again,
        retry=retry,
        stack=stack,
        then=following,
        allow=allow,
    )
    if hopeless := dict.fromkeys(search.cell.model.label for search in searches.values() if search.hopeless):
        raise HopelessError(
            f"no learning rate of {', '.join(hopeless)} can be chosen: none has a number from every tuning"
            " seed; see why its runs ended as they did."
        )
    return [told[cell.id] for cell, _ in asked]


def ahead(
    cells: Sequence[Cell],
    stored: Callable[[str], Result | None],
    settings: SearchSettings | None,
    *,
    retry: bool,
) -> tuple[list[Cell], set[str]]:
    """The cells that learning rates are chosen by, as far as they are known, and the ids of what is left to
    run of them and of `cells`; `stored` gives the result of an id. Without a search there are none of the
    former.

    Raises UserError: as `foresee`.
    """

    def found(cell: Cell) -> Result | None:
        result = stored(cell.id)
        return result if stands(result, again=False, retry=retry) else None

    return (
        foresee(cells, found, settings) if settings else ([], {cell.id for cell in cells if not found(cell)})
    )


def foresee(
    cells: Sequence[Cell], found: Callable[[Cell], Result | None], settings: SearchSettings
) -> tuple[list[Cell], set[str]]:
    """What `run_searched` would run, as far as the results that are `found` lead: the cells that rates are
    chosen by, and the ids of what is left of them and of `cells`. One of `cells` is left while its rate is
    not chosen, or has no result at it; not if none can be chosen.

    Raises UserError: a seed to be reported is a tuning seed.
    """
    searches, tuning, left = _learned(cells, found, settings)
    for cell in cells:
        search = searches[model_of(cell)]
        if search.wanted or not (search.hopeless or found(search.reported(cell))):
            left.add(cell.id)
    return tuning, left


def at_chosen_rates(
    cells: Sequence[Cell], found: Callable[[Cell], Result | None], settings: SearchSettings
) -> dict[str, Cell]:
    """By its id each of `cells` at its model's rate, where the results that are `found` lead to one. Raises
    UserError: a seed to be reported is a tuning seed.
    """
    searches = _searches(cells, settings)
    for search in searches.values():
        _lead(search, found)
    return {
        cell.id: search.reported(cell)
        for cell in cells
        if not ((search := searches[model_of(cell)]).wanted or search.hopeless)
    }


def _lead(search: Search, found: Callable[[Cell], Result | None]) -> None:
    """Take a search as far as results lead. The last seed is looked for first: where a search is not there,
    that is the one that is missing."""
    while wanted := search.wanted:
        results: dict[str, Result] = {}
        for cell in reversed(wanted):
            result = found(cell)
            if result is None:
                return
            results[cell.id] = result
        search.learn(results)


def _learned(
    cells: Sequence[Cell], found: Callable[[Cell], Result | None], settings: SearchSettings
) -> tuple[dict[str, Search], list[Cell], set[str]]:
    """The searches as far as results lead, the cells that they are led by, and the ids of those that have
    none."""
    searches, tuning, left = _searches(cells, settings), list[Cell](), set[str]()
    for search in searches.values():
        while wanted := search.wanted:
            tuning += wanted
            results = {cell.id: result for cell in wanted if (result := found(cell))}
            if missing := {cell.id for cell in wanted} - results.keys():
                left |= missing
                break
            search.learn(results)
    return searches, tuning, left


def _searches(cells: Sequence[Cell], settings: SearchSettings) -> dict[str, Search]:
    """One for each model. Raises UserError: a seed to be reported is a tuning seed."""
    if tuning := sorted({cell.seed for cell in cells} & set(settings.seeds)):
        raise UserError(
            f"seed {tuning[0]} is a tuning seed ({', '.join(map(str, settings.seeds))}), which chooses the"
            " learning rate; report others."
        )
    return {model_of(cell): Search(cell, settings) for cell in cells}


def model_of(cell: Cell) -> str:
    """Return what a search is of: a digest of everything but the seed and the learning rate."""
    settings = cell.identity["protocol"]["settings"]
    return digest(
        {**cell.identity, "seed": None, "protocol": {**settings, "lr": None}, "label": cell.model.label}
    )


def _told(result: Result, search: Search, store: Store) -> Result:
    """The result with what was tried, in the store too."""
    marks = [mark for mark in result["marks"] if mark not in (EDGE, UNTRIED)] + search.marks
    told = {**result, "marks": marks, "search": search.summary()}
    if told != result:
        store.put(told)
    return told
