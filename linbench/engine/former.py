"""Stored results at learning rates that the present rule of a search, or a former one, has chosen.

The former rules stand in `experiments/protocols.yaml`, each with the settings that it had in place of
today's. A result that was found by one of them is marked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from linbench.engine.ladder import final_result
from linbench.engine.lr_search import with_chosen_rates
from linbench.experiments.cell import Cell
from linbench.experiments.former_searches import describe_former_marks, former_rules
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.record import EDGE, UNTRIED
from linbench.results.schema.cells import CellResult

LookUp = Callable[[Cell], CellResult | None]
"""A look-up of a cell's stored result; None if there is none."""


def describe_former_rules(results: Sequence[CellResult]) -> list[str]:
    """Return a phrase for each former rule that chose the learning rate of a result."""
    marks = {mark for result in results for mark in result["marks"]}
    return [*describe_former_marks(marks).values()]


def results_at_chosen_rates(
    cells: Sequence[Cell], look_up: LookUp, search: SearchSettings
) -> dict[str, CellResult]:
    """Return the stored results of cells at their models' learning rates, by the ids of the cells.

    All results of a model are by one rule: the search as asked for, unless a former rule finds more of them.

    Raises UserError: a seed to be reported is a tuning seed.
    """
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.search_key, []).append(cell)
    best: dict[str, dict[str, CellResult]] = {model: {} for model in by_model}
    for mark, rule in _rules(search):
        incomplete = {model: group for model, group in by_model.items() if len(best[model]) < len(group)}
        searched = with_chosen_rates([*chain.from_iterable(incomplete.values())], look_up, rule)
        for model, group in incomplete.items():
            results = {
                cell.id: final_result(searched[cell.id], look_up) for cell in group if cell.id in searched
            }
            present = _with_mark(results, mark)
            if len(present) > len(best[model]):
                best[model] = present
    return {name: result for results in best.values() for name, result in results.items()}


def settled_by_former_rules(
    cells: Sequence[Cell], look_up: LookUp, search: SearchSettings | None
) -> dict[str, CellResult]:
    """Return the results, by cell id, of models that have all of theirs by a former rule.

    There is nothing to run for these models.
    """
    if search is None:
        return {}
    results = results_at_chosen_rates(cells, look_up, search)
    unsettled = {
        cell.search_key
        for cell in cells
        if cell.id not in results or not describe_former_rules([results[cell.id]])
    }
    return {cell.id: results[cell.id] for cell in cells if cell.search_key not in unsettled}


def cells_to_run(cells: Sequence[Cell], results: Mapping[str, CellResult]) -> list[Cell]:
    """Return the cells that are to be run.

    These are the cells without a result and, of the same models, those whose result was found by a former
    rule: all results of a model must be by one rule.
    """
    incomplete = {cell.search_key for cell in cells if cell.id not in results}
    return [
        cell
        for cell in cells
        if cell.id not in results
        or (cell.search_key in incomplete and describe_former_rules([results[cell.id]]))
    ]


def joining(cells: Sequence[Cell], results: Mapping[str, CellResult]) -> dict[str, Cell]:
    """Return further cells of models whose learning rate a former rule chose, at that rate, by their own ids.

    To search anew would set aside all results of the model. Models are left out whose rate is in doubt, as it
    was the first or last of those tried, or next to one that failed.

    Args:
        results: what `results_at_chosen_rates` returns for the cells.
    """
    rates: dict[str, float] = {}
    doubtful = set[str]()
    for cell in cells:
        if cell.id in results and describe_former_rules([results[cell.id]]):
            rates[cell.search_key] = results[cell.id]["cell"]["protocol"]["settings"]["lr"]
            if {EDGE, UNTRIED} & set(results[cell.id]["marks"]):
                doubtful.add(cell.search_key)
    return {
        cell.id: replace(cell, protocol=cell.protocol.model_copy(update={"lr": rates[key]}))
        for cell in cells
        if cell.id not in results and (key := cell.search_key) in rates.keys() - doubtful
    }


def _rules(search: SearchSettings) -> list[tuple[str, SearchSettings]]:
    """Return the search as asked for, without a mark, then what former rules make of it, with theirs."""
    former = [(rule.mark, rule.instead_of(search)) for rule in former_rules()]
    return [("", search), *((mark, settings) for mark, settings in former if settings is not None)]


def _with_mark(results: Mapping[str, CellResult | None], mark: str) -> dict[str, CellResult]:
    """Return the results that are there, with the mark if there is one."""
    present = {name: result for name, result in results.items() if result is not None}
    if not mark:
        return present
    return {name: {**result, "marks": [*result["marks"], mark]} for name, result in present.items()}
