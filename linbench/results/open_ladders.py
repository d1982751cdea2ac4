"""Ladders of training that have not ended: cells that are still to be trained with larger budgets."""

from collections.abc import Iterable

from linbench.common.hashing import digest
from linbench.common.settings import without
from linbench.results.record import doublings_of
from linbench.results.schema.cells import CellResult
from linbench.results.undertrained import mark


def highest_rungs(results: Iterable[CellResult]) -> list[CellResult]:
    """Return the highest rung of each ladder that has not ended, marked as undertrained.

    Without them a table of an unfinished sweep would show only the seeds that learned soonest.
    """
    highest: dict[str, CellResult] = {}
    ended: set[str] = set()
    for result in results:
        if "ladder" in result:
            ended.add(ladder_key(result))
        elif result["purpose"] == "rung":
            key = ladder_key(result)
            highest[key] = max(highest.get(key, result), result, key=doublings_of)
    return [mark(result, True) for key, result in highest.items() if key not in ended]


def ladder_key(result: CellResult) -> str:
    """Return what the rungs of a ladder have in common."""
    cell = result["cell"]
    protocol = without(cell["protocol"]["settings"], {"doublings"})
    return digest({**cell, "protocol": protocol, "label": result["label"]})
