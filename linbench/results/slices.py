"""Scores by slice of the test, added up over tests."""

from collections.abc import Sequence
from typing import Any

from linbench.results.schema.cells import CellResult


def slices(result: CellResult) -> dict[str, Any]:
    """Return the slices of a result's test, those of several tests added up.

    Returns:
        by the name of each slice: its values that occur (`at`), and for every metric `sum` and `weight` at
        each.
    """
    tests = result.get("tests")
    if not tests:
        return dict(result["slices"])
    names = dict.fromkeys(name for test in tests for name in test["slices"])
    return {
        name: _added([test["slices"][name] for test in tests if name in test["slices"]]) for name in names
    }


def _added(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one slice of several tests with the sums and weights of all."""
    at = sorted({value for part in parts for value in part["at"]})
    metrics = dict.fromkeys(name for part in parts for name in part if name != "at")
    added: dict[str, Any] = {"at": at}
    for metric in metrics:
        sums, weights = dict.fromkeys(at, 0.0), dict.fromkeys(at, 0.0)
        for part in parts:
            if metric not in part:
                continue
            for value, number, weight in zip(
                part["at"], part[metric]["sum"], part[metric]["weight"], strict=True
            ):
                sums[value] += number
                weights[value] += weight
        added[metric] = {"sum": list(sums.values()), "weight": list(weights.values())}
    return added
