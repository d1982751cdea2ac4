"""Our score of a published value by the paper's own rule of choice, and whether it is the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from linbench.common.text import pluralize
from linbench.experiments.cell import Cell
from linbench.reproduction.printed import class_of
from linbench.reproduction.schema import NOT_VERIFIED, PublishedTable, Unit
from linbench.reproduction.table import PrintedCell, Reproduction, Runs
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance, validation_accuracy

Verdict = Literal["within", "outside", "not comparable"]

Find = Callable[[Cell], CellResult | None]
"""A look-up of the result of a cell on some kind of device."""


@dataclass(frozen=True)
class Outcome:
    """A published value beside ours.

    Attributes:
        cell: the printed value and where it stands.
        verdict: whether ours is within the tolerance.
        reason: why they cannot be compared, or a remark.
        ours: our score by the published rule of choice, in the table's unit; None if there is none.
        mean, low, high: our mean and range over seeds at the setting that was chosen.
        difference: ours less the printed value, 0 where a printed bound holds.
        left: runs that have no result yet.
    """

    cell: PrintedCell
    verdict: Verdict
    reason: str = ""
    ours: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    left: int = 0


def outcomes(table: Reproduction, runs: Runs, find: Find) -> list[Outcome]:
    """Return what became of every printed value.

    Args:
        table: the published table.
        runs: its runs, on any device.
        find: a look-up of results of one kind of device.
    """
    return [_outcome(table, cell, runs.get((cell.row, cell.column), []), find) for cell in table.printed]


def _outcome(table: Reproduction, cell: PrintedCell, runs: Sequence[Sequence[Cell]], find: Find) -> Outcome:
    if needs := table.needs(cell):
        return Outcome(cell, "not comparable", f"needs {needs}")
    found = [[find(run) for run in seeds] for seeds in runs]
    left = sum(result is None for seeds in found for result in seeds)
    if left:
        every = sum(map(len, found))
        reason = "not run yet" if left == every else f"{left} of {pluralize(every, 'run')} missing"
        return Outcome(cell, "not comparable", reason, left=left)
    finished = [[result for result in seeds if result is not None] for seeds in found]
    failed = [
        result["status"]
        for seeds in finished
        for result in seeds
        if _score(table.table, cell, result) is None
    ]
    if failed:
        return Outcome(cell, "not comparable", f"{pluralize(len(failed), 'run')} ended as {failed[0]}")
    return _judged(table.table, cell, finished)


def _judged(table: PublishedTable, cell: PrintedCell, runs: Sequence[Sequence[CellResult]]) -> Outcome:
    """Compare a value whose runs are all there."""
    scores = [[_score(table, cell, result) or 0.0 for result in seeds] for seeds in runs]
    better = -1.0 if table.unit == "error" else 1.0

    def best_mean(seeds: Sequence[float]) -> float:
        return better * fmean(seeds)

    if table.select == "best":
        chosen = max(scores, key=lambda seeds: max(better * score for score in seeds))
    elif table.select == "best rate":
        chosen = max(scores, key=lambda seeds: better * seeds[0])
    elif table.select == "best validation":
        validated = [fmean(validation_accuracy(result) or 0.0 for result in seeds) for seeds in runs]
        chosen = scores[max(range(len(scores)), key=validated.__getitem__)]
    else:
        chosen = max(scores, key=best_mean)
    if table.select in ("best", "best seed"):
        ours = better * max(better * score for score in chosen)
    else:
        ours = chosen[0] if table.select == "best rate" else fmean(chosen)
    difference = cell.printed.distance(ours)
    within = abs(difference) <= table.tolerance if cell.printed.number is not None else difference == 0
    verdict: Verdict = "within" if within else "outside"
    reason = ""
    if not within and table.trust in NOT_VERIFIED:
        verdict, reason = "not comparable", "the printed number is not verified"
    elif not within and cell.printed.number is not None and class_of(ours) == class_of(cell.printed.number):
        reason = f"both {class_of(ours)}" if class_of(ours) != "between" else ""
    return Outcome(cell, verdict, reason, ours, fmean(chosen), min(chosen), max(chosen), difference, 0)


def _score(table: PublishedTable, cell: PrintedCell, result: CellResult) -> float | None:
    """Return a result's score in the table's unit, 0 to 100; None if nothing was measured.

    A run that diverged scores as a guess.
    """
    if result["status"] not in ("ok", "diverged"):
        return None
    whole = [(result["chance"], result["metrics"])]
    tests = [(test["chance"], test["metrics"]) for test in result["tests"]] if "tests" in result else whole
    of = table.columns[cell.column].of
    chosen = tests if of is None else [tests[of]]
    if result["status"] == "diverged":
        chosen = [
            (chance, {"accuracy": chance, "sequence": 0.0, "macro_accuracy": chance}) for chance, _ in chosen
        ]
    return fmean(_in_unit(table.unit, chance, metrics) for chance, metrics in chosen)


def _in_unit(unit: Unit, chance: float, metrics: Mapping[str, float]) -> float:
    """Return the score of one test."""
    accuracy = metrics["accuracy"]
    scores: dict[Unit, float] = {
        "accuracy": accuracy,
        "scaled": above_chance(accuracy, chance),
        "sequence": metrics.get("sequence", 0.0),
        "macro": metrics.get("macro_accuracy", 0.0),
        "error": 1 - accuracy,
    }
    return 100 * scores[unit]
