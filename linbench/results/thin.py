"""Results without what no stored page and no claim shows."""

from collections.abc import Collection, Sequence
from typing import Any

from linbench.results.open_ladders import highest_rungs
from linbench.results.record import is_cell
from linbench.results.result_text import result_text
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult

DIGITS = 6
"""Significant digits of scores and seconds in a thin pack."""

SLICE_DIGITS = 4
"""Significant digits of the sums of slices, which take most of the space. Tables and figures show three."""

UNREAD_SLICES = ("writes_between",)
"""Slices that no claim reads and no stored page shows; `doublings` tells nearly the same, by tokens."""

PASSED_DIGITS = 4
"""Significant digits of scores of runs that stand in no table of their own."""

LOSSES = ("loss", "nll", "mse")
"""The fields that points of a curve before its last lose.

Of learning rates of equal accuracy the one with the lower loss is taken.
"""

EXACT = "accuracy"
"""The field whose numbers stay as they are: thresholds and the choice of a learning rate depend on them."""


def thin_texts(results: Sequence[Result]) -> list[bytes]:
    """Return the texts of results in a thin pack. Ladders that have not ended keep their highest rung."""
    highest = {rung["id"] for rung in highest_rungs(filter(is_cell, results))}
    return [result_text(thinned(result, highest)) for result in results]


def thinned(result: Result, highest: Collection[str] = ()) -> Result:
    """Return a result as a thin pack holds it.

    Numbers are rounded to the digits that are shown, and `UNREAD_SLICES` are left out. Points of a curve keep
    their accuracy, and only the last its losses. Rungs that a ladder has passed, and runs that chose a
    learning rate, lose their slices (accuracy by position, distance and the like). Runs that chose a rate
    also lose all points of their curve but the last, and keep accuracy and losses alone, of each test the
    accuracy; a rung keeps these, since tables and claims may be drawn at its budget.

    Args:
        result: of any kind; that of a benchmark stays as it is.
        highest: the ids of rungs that are the highest of their ladder so far. They are shown as reported
            runs are, and lose nothing.
    """
    if not is_cell(result):
        return result
    thin = _with_shown_digits(result)
    if result["purpose"] == "report" or result["id"] in highest:
        return thin
    tuned = result["purpose"] == "tuning"
    thin = {**thin, "slices": {}, "metrics": _passed(thin["metrics"], (EXACT, *LOSSES) if tuned else ())}
    if "tests" in thin:
        thin["tests"] = [
            {**test, "slices": {}, "metrics": _passed(test["metrics"], (EXACT,) if tuned else ())}
            for test in thin["tests"]
        ]
    return {**thin, "curve": thin["curve"][-1:]} if tuned else thin


def _passed(metrics: Any, kept: Collection[str]) -> Any:
    """Return metrics of a run that stands in no table: those that are kept, all if none of these is there."""
    chosen = {name: value for name, value in metrics.items() if name in kept}
    return _rounded(chosen or metrics, PASSED_DIGITS)


def _with_shown_digits(result: CellResult) -> CellResult:
    curve = result["curve"]
    rounded: CellResult = {
        **result,
        "metrics": _rounded(result["metrics"]),
        "slices": _kept(result["slices"]),
        "curve": [*map(_without_losses, curve[:-1]), *_rounded(curve[-1:])],
        "seconds": _rounded(result["seconds"]),
    }
    if "tests" in rounded:
        rounded["tests"] = [
            {**test, "metrics": _rounded(test["metrics"]), "slices": _kept(test["slices"])}
            for test in rounded["tests"]
        ]
    return rounded


def _kept(slices: Any) -> Any:
    read = {name: slice_ for name, slice_ in slices.items() if name not in UNREAD_SLICES}
    return _rounded(read, SLICE_DIGITS)


def _without_losses(point: Any) -> Any:
    return {name: value for name, value in point.items() if name not in LOSSES}


def _rounded(value: Any, digits: int = DIGITS) -> Any:
    """Return a JSON value with its fractions rounded to significant digits, except those of `EXACT`."""
    if isinstance(value, dict):
        return {name: part if name == EXACT else _rounded(part, digits) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
