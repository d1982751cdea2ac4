"""Table of docs/results.md: what softmax attentions recall and track, from the suite `softmax`."""

from statistics import fmean

from linbench.results.comparison import Comparison, Row
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracies_by_test
from tests.pages.fact import short
from tests.results.packed import packed

SEEDS = 5
"""The seeds of the suite. Only a model that has all of them in a cell stands in the table."""

MARK = " *"
"""Mark of a mean of seeds of which one can still go on."""

CELLS = {
    "flip_flop": (("flip-flop", 0), ("sparse", 1), ("dense", 2)),
    "mqar": (("pairs in 256", 0), ("in 1,024", 1)),
    "counter": (("counters in 256", 0), ("counters in 1,024", 1)),
    "variable_overwrite": (("the value before", 0),),
    "group_word": (("words of 16", 0),),
}
"""Columns of the table by task: a heading, and which of the cell's tests it shows."""


def cells() -> list[Comparison]:
    """Return the comparisons of the suite; models that differ in more than their scores have their own."""
    found = packed("softmax/softmax")
    of_tasks = ([one for one in found if one.task == task] for task in CELLS)
    return [max(some, key=lambda one: len(one.rows)) for some in of_tasks if some]


def table() -> str:
    """Return models by tests: mean accuracies, marked where training could still go on."""
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for cell in cells():
        for heading, number in CELLS[cell.task]:
            depths = sorted({_layers(row) for row in cell.rows})
            for depth in depths:
                name = heading if len(depths) == 1 else f"{heading}, {depth} layer{'s' * (depth > 1)}"
                columns.append(name)
                for row in cell.rows:
                    if len(row.results) == SEEDS and _layers(row) == depth:
                        rows.setdefault(row.label.partition(" (layers ")[0], {})[name] = _shown(row, number)
    lines = [["model", *columns], ["---"] * (len(columns) + 1)]
    for model, scores in sorted(rows.items()):
        lines.append([f"`{model}`", *(scores.get(name, "–") for name in columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def of_one_alone(model: str) -> list[str]:
    """Return what `table` would show of a model that stands in comparisons of its own, without marks."""
    alone = [one for one in packed("softmax/softmax") if one.rows[0].label.partition(" (layers ")[0] == model]
    of_tasks = ([one for one in alone if one.task == task] for task in CELLS)
    rows = [
        (row, number)
        for some in of_tasks
        for one in some
        for _, number in CELLS[one.task]
        for row in sorted(one.rows, key=_layers)
    ]
    return [_shown(row, number).removesuffix(MARK) for row, number in rows]


def _layers(row: Row) -> int:
    """Return how many layers the models of a row have."""
    found: int = row.results[0]["cell"]["model"]["backbone"]["settings"]["layers"]
    return found


def _shown(row: Row, number: int) -> str:
    """Return the mean accuracy of one of a cell's tests, marked if a seed's ladder has not ended."""
    scores = [_score(result, number) for result in row.results]
    going_on = any("ladder" not in result for result in row.results)
    return short(fmean(scores), 3) + (MARK if going_on else "")


def _score(result: CellResult, number: int) -> float:
    """Return the accuracy of a test; a cell with one test has that alone."""
    found = accuracies_by_test(result) if "tests" in result else [result["metrics"]["accuracy"]]
    assert found is not None
    return found[number]
