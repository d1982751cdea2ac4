"""Scores by slice of the test, added up over tests."""

from collections.abc import Sequence
from typing import Any

from linbench.results.schema.cells import CellResult


def slices(result: CellResult) -> dict[str, Any]:
    """For every slice of the test the integers that occur (`at`), with sum and weight of every metric there;
    several tests are added up."""
    tests = result.get("tests")
    if not tests:
        found: dict[str, Any] = result["slices"]
        return found
    names = dict.fromkeys(name for test in tests for name in test["slices"])
    return {
        name: _added([test["slices"][name] for test in tests if name in test["slices"]]) for name in names
    }


def _added(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    at = sorted({value for part in parts for value in part["at"]})
    metrics = dict.fromkeys(name for part in parts for name in part if name != "at")
    found: dict[str, Any] = {"at": at}
    for metric in metrics:
        totals = {kind: dict.fromkeys(at, 0.0) for kind in ("sum", "weight")}
        for part in (part for part in parts if metric in part):
            for kind, total in totals.items():
                for value, number in zip(part["at"], part[metric][kind], strict=True):
                    total[value] += number
        found[metric] = {kind: list(total.values()) for kind, total in totals.items()}
    return found
