"""Stored results at the learning rate that a search finds: the search as asked, or where that has not been
run, the one by which they were chosen in their day.

The former rules stand in `experiments/protocols.yaml`, each with what it had in place of today's. A result
that was found by one of them is marked.
"""

from collections.abc import Callable, Mapping, Sequence

from linbench.engine.lr_search import at_chosen_rates, model_of
from linbench.experiments.cell import Cell
from linbench.experiments.former_searches import formers
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.record import Result

Found = Callable[[Cell], Result | None]
"""The stored result of a cell; None: there is none."""


def says(results: Sequence[Result]) -> list[str]:
    """Return in words by which former rules the learning rates of these results were chosen, each once."""
    marks = {mark for result in results for mark in result["marks"]}
    return [rule.says for rule in formers() if rule.mark in marks]


def results_at_chosen_rates(cells: Sequence[Cell], found: Found, asked: SearchSettings) -> dict[str, Result]:
    """Return by the ids of `cells` the results that are `found` at their models' learning rates.

    All results of a model are by one rule: the search as asked, unless a former one finds more of them.
    Raises UserError: a seed to be reported is a tuning seed.
    """
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(model_of(cell), []).append(cell)
    chosen: dict[str, dict[str, Result]] = {model: {} for model in by_model}
    for mark, search in _rules(asked):
        left = {model: own for model, own in by_model.items() if len(chosen[model]) < len(own)}
        at = at_chosen_rates([cell for own in left.values() for cell in own], found, search)
        for model, own in left.items():
            results = _marked({cell.id: found(at[cell.id]) for cell in own if cell.id in at}, mark)
            if len(results) > len(chosen[model]):
                chosen[model] = results
    return {name: result for own in chosen.values() for name, result in own.items()}


def settled(cells: Sequence[Cell], found: Found, asked: SearchSettings | None) -> dict[str, Result]:
    """Return by the ids of `cells` the results of those models that have all of theirs by a former rule:
    there is nothing to run for them."""
    if asked is None:
        return {}
    results = results_at_chosen_rates(cells, found, asked)
    waiting = {model_of(cell) for cell in cells if cell.id not in results or not says([results[cell.id]])}
    return {cell.id: results[cell.id] for cell in cells if model_of(cell) not in waiting}


def to_run(cells: Sequence[Cell], results: Mapping[str, Result]) -> list[Cell]:
    """Return those of `cells` that have no result, and of the same models those whose result a former rule
    found: all of a model is run by one rule."""
    short = {model_of(cell) for cell in cells if cell.id not in results}
    return [
        cell
        for cell in cells
        if cell.id not in results or (model_of(cell) in short and says([results[cell.id]]))
    ]


def _rules(asked: SearchSettings) -> list[tuple[str, SearchSettings]]:
    """The search as asked, without a mark, then what former rules make of it."""
    others = [(rule.mark, search) for rule in formers() if (search := rule.instead_of(asked)) is not None]
    return [("", asked), *others]


def _marked(results: Mapping[str, Result | None], mark: str) -> dict[str, Result]:
    """Those that are there, with the mark if there is one."""
    there = {name: result for name, result in results.items() if result is not None}
    return (
        {name: {**result, "marks": [*result["marks"], mark]} for name, result in there.items()}
        if mark
        else there
    )
