"""The score of a run in the unit of a published table."""

from collections.abc import Mapping
from statistics import fmean

from linbench.reproduction.schema import PublishedTable, Unit
from linbench.results.schema.cells import CellResult
from linbench.results.scores import above_chance

SCORED = ("ok", "diverged")
"""The ways to end with a score."""

METRICS: Mapping[Unit, str] = {"sequence": "sequence", "macro": "macro_accuracy"}
"""The metrics that units beside accuracy ask for."""


def score(table: PublishedTable, column: str, result: CellResult) -> float | None:
    """Return a result's score in the table's unit, 0 to 100; None if nothing of the kind was measured.

    Args:
        table: the published table.
        column: the heading of the column, which says which of the tests.
        result: of a run.

    A run that diverged scores as a guess, and has no whole sequence right.
    """
    if result["status"] not in SCORED:
        return None
    whole = [(result["chance"], result["metrics"])]
    tests = [(test["chance"], test["metrics"]) for test in result["tests"]] if "tests" in result else whole
    of = table.columns[column].of
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
