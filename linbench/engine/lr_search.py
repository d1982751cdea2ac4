"""Running cells at learning rates that searches find.

All models are searched side by side, each as far as its results lead, by one rule (`engine.rate_search`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from linbench.common.errors import HopelessError, UserError
from linbench.common.laws import parse_laws
from linbench.engine.executors.base import OpenExecutor
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.jobs import plugin_sources
from linbench.engine.ladder import Ladders, final_result
from linbench.engine.probe import Marks
from linbench.engine.progress import Progress
from linbench.engine.rate_search import Search
from linbench.engine.runner import is_final, run_cells
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import (
    SearchSettings,
    default_search,
)
from linbench.results.record import EDGE, UNTRIED
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store


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
    with_searches = [(cell, searches[cell.search_key]) for cell in {cell.id: cell for cell in cells}.values()]
    reports: dict[str, Cell] = {}
    annotated: dict[str, CellResult] = {}
    ladders = Ladders(store)

    def next_cells(results: Mapping[str, CellResult]) -> Iterator[Cell]:
        """Yield new cells to score rates and new ones at the best rates; annotate results that are there."""
        for search in searches.values():
            while search.pending and all(trial.id in results for trial in search.pending):
                search.record(results)
                yield from search.pending
                if not search.pending:
                    for tuned in search.lowest_rungs:
                        ladders.trunks.delete(tuned)
        for cell, search in with_searches:
            if search.pending or search.failed or cell.id in annotated:
                continue
            report = reports[cell.id] = reports.get(cell.id) or search.at_best(cell)
            yield from ladders.climb(report, results)
            if report.id in ladders.ended:
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
        search = searches[cell.search_key]
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
    owners = [(cell, searches[cell.search_key]) for cell in cells]
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
    one_of_each = {cell.search_key: cell for cell in cells}
    return {key: Search(cell, settings) for key, cell in one_of_each.items()}


def _annotate(result: CellResult, search: Search, store: Store) -> CellResult:
    """Return the result with what was tried, and keep it so in the store."""
    marks = [mark for mark in result["marks"] if mark not in (EDGE, UNTRIED)] + search.marks
    annotated: CellResult = {**result, "marks": marks, "search": search.summary()}
    if annotated != result:
        store.put(annotated)
    return annotated
