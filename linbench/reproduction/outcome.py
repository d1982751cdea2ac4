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

SCORED = ("ok", "diverged")
"""The ways to end with a score."""

METRICS: Mapping[Unit, str] = {"sequence": "sequence", "macro": "macro_accuracy"}
"""The metrics that units beside accuracy ask for."""

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
        seeds: our scores of all seeds at the setting that was chosen.
        difference: ours less the printed value, 0 where a printed bound holds.
        left: runs that have no result yet.
    """

    cell: PrintedCell
    verdict: Verdict
    reason: str = ""
    ours: float | None = None
    seeds: tuple[float, ...] = ()
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
    scores = [[_score(table.table, cell, result) for result in seeds] for seeds in finished]
    known = [[score for score in seeds if score is not None] for seeds in scores]
    if known != scores:
        return Outcome(cell, "not comparable", _why_unscored(table.table, finished))
    chosen, ours = _choose(table.table, known, finished)
    return _compare(table.table, cell, chosen, ours)


def _why_unscored(table: PublishedTable, runs: Sequence[Sequence[CellResult]]) -> str:
    ended = [result["status"] for seeds in runs for result in seeds if result["status"] not in SCORED]
    if ended:
        return f"{pluralize(len(ended), 'run')} ended as {ended[0]}"
    return f"the task has no score of the unit {table.unit}"


def _choose(
    table: PublishedTable, scores: Sequence[Sequence[float]], runs: Sequence[Sequence[CellResult]]
) -> tuple[Sequence[float], float]:
    """Return all seeds at the setting that the paper would have chosen, and its number of them."""
    best: Callable[[Sequence[float]], float] = min if table.unit == "error" else max

    def best_by(number: Callable[[Sequence[float]], float]) -> Sequence[float]:
        numbers = [number(seeds) for seeds in scores]
        return scores[numbers.index(best(numbers))]

    if table.select == "best":
        return best_by(best), best([best(seeds) for seeds in scores])
    if table.select == "best rate":
        chosen = best_by(lambda seeds: seeds[0])
        return chosen, chosen[0]
    if table.select == "best validation":
        validated = [fmean(validation_accuracy(result) or 0.0 for result in seeds) for seeds in runs]
        chosen = scores[validated.index(max(validated))]
        return chosen, fmean(chosen)
    chosen = best_by(fmean)
    return chosen, best(chosen) if table.select == "best seed" else fmean(chosen)


def _compare(table: PublishedTable, cell: PrintedCell, chosen: Sequence[float], ours: float) -> Outcome:
    """Compare our number with the printed one; `chosen` are all seeds at its setting."""
    printed = cell.printed
    difference = printed.distance(ours)
    allowed = 0.0 if printed.number is None else table.tolerance
    verdict: Verdict = "within" if abs(difference) <= allowed else "outside"
    reason = ""
    if verdict == "outside" and table.trust in NOT_VERIFIED:
        verdict, reason = "not comparable", "the printed number is not verified"
    elif verdict == "outside" and printed.number is not None:
        both = {class_of(ours), class_of(printed.number)}
        reason = "" if len(both) > 1 or "between" in both else f"both {both.pop()}"
    return Outcome(cell, verdict, reason, ours, tuple(chosen), difference)


def _score(table: PublishedTable, cell: PrintedCell, result: CellResult) -> float | None:
    """Return a result's score in the table's unit, 0 to 100; None if nothing of the kind was measured.

    A run that diverged scores as a guess, and has no whole sequence right.
    """
    if result["status"] not in SCORED:
        return None
    whole = [(result["chance"], result["metrics"])]
    tests = [(test["chance"], test["metrics"]) for test in result["tests"]] if "tests" in result else whole
    of = table.columns[cell.column].of
    chosen = tests if of is None else [tests[of]]
    if result["status"] == "diverged":
        guesses = [{"accuracy": chance, "macro_accuracy": chance, "sequence": 0.0} for chance, _ in chosen]
        chosen = [(chance, guess) for (chance, _), guess in zip(chosen, guesses, strict=True)]
    scores = [_in_unit(table.unit, chance, metrics) for chance, metrics in chosen]
    known = [score for score in scores if score is not None]
    return fmean(known) if known == scores else None


def _in_unit(unit: Unit, chance: float, metrics: Mapping[str, float]) -> float | None:
    """Return the score of one test; None if it has none of the unit."""
    if unit in METRICS:
        score = metrics.get(METRICS[unit])
        return None if score is None else 100 * score
    accuracy = metrics["accuracy"]
    if unit == "scaled":
        return 100 * above_chance(accuracy, chance)
    return 100 * (1 - accuracy if unit == "error" else accuracy)
