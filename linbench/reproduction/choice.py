"""The choice among settings and seeds that a published table makes, and the runs that it takes.

Where the paper shows one seed of its best setting, the first seed chooses here too. All other seeds then run
at the chosen setting alone, which takes about half of the runs.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from linbench.experiments.cell import Cell
from linbench.reproduction.schema import FIRST_SEED_CHOOSES, PublishedTable
from linbench.reproduction.scores import score
from linbench.reproduction.table import each_cell_once
from linbench.results.schema.cells import CellResult
from linbench.results.scores import validation_accuracy

Find = Callable[[Cell], CellResult | None]
"""A look-up of the result of a cell on some kind of device."""

Settings = Sequence[Sequence[Cell]]
"""The settings of one printed value, each with the cells of all seeds."""


def choosing(table: PublishedTable, settings: Settings) -> list[Cell]:
    """Return the runs that choose among settings: the first seeds, or all of them."""
    if table.select in FIRST_SEED_CHOOSES:
        return [seeds[0] for seeds in settings]
    return [cell for seeds in settings for cell in seeds]


def needed(table: PublishedTable, column: str, settings: Settings, find: Find) -> list[Cell]:
    """Return the runs that a printed value takes.

    Until the runs that choose are finished, seeds of the first setting stand for those of the chosen one. If
    one of these runs has no score, nothing else is needed.

    Args:
        table: the published table.
        column: the heading of the value's column.
        settings: of the value.
        find: a look-up of results.
    """
    first = choosing(table, settings)
    if any(find(cell) is None for cell in first):
        chosen = settings[0]
    elif (place := _chosen(table, column, settings, find)) is None:
        chosen = []
    else:
        chosen = settings[place]
    return each_cell_once([*first, *chosen])


def choose(
    table: PublishedTable, column: str, settings: Settings, find: Find
) -> tuple[Sequence[float], float] | None:
    """Return the scores of all seeds at the chosen setting, and the number that the paper would print.

    Args: those of `needed`, whose runs are finished.

    Returns: None if one of them has no score.
    """
    place = _chosen(table, column, settings, find)
    scores = None if place is None else _scores(table, column, settings[place], find)
    if scores is None:
        return None
    if table.select == "best rate":
        return scores, scores[0]
    if table.select in ("best", "best seed"):
        return scores, _best(table)(scores)
    return scores, fmean(scores)


def _chosen(table: PublishedTable, column: str, settings: Settings, find: Find) -> int | None:
    """Return the number of the chosen setting, of equals the first; None if a run has no score."""
    scores = [_scores(table, column, choosing(table, [seeds]), find) for seeds in settings]
    known = [each for each in scores if each is not None]
    if len(known) < len(scores):
        return None
    if table.select == "best validation":
        firsts = [find(seeds[0]) for seeds in settings]
        validated = [(result and validation_accuracy(result)) or 0.0 for result in firsts]
        return validated.index(max(validated))
    best = _best(table)
    numbers = [best(each) if table.select == "best" else fmean(each) for each in known]
    return numbers.index(best(numbers))


def _best(table: PublishedTable) -> Callable[[Sequence[float]], float]:
    return min if table.unit == "error" else max


def _scores(table: PublishedTable, column: str, cells: Sequence[Cell], find: Find) -> list[float] | None:
    """Return the scores of runs; None if one has none."""
    results = [find(cell) for cell in cells]
    scores = [result and score(table, column, result) for result in results]
    known = [each for each in scores if each is not None]
    return known if len(known) == len(cells) else None
