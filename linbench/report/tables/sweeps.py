"""A table of whole suites: how fast they were run, and where the time of workers went."""

from collections.abc import Sequence

from linbench.report.style.wording import commits, three_digits
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind
from linbench.results.schema.benchmarks import SweepResult
from linbench.results.sweeps import REST, device_words, notes, shares, tokens_per_second

TEXTS = ("suite", "device", "notes")
"""Columns that hold text."""

_NOTE = (
    "'seconds' are wall-clock time from the command to the last result, with every search of a learning rate"
    " and every rung of a ladder; nothing was finished before. Tokens are those that were trained on, summed"
    " over cells; a rung that goes on from the one before counts what it trained itself, and of cells that"
    " train together one that is over counts until it leaves the others. Parts are shares of the time of all"
    " workers, which is their number times 'seconds'. 'building': until models stand on the device. 'first"
    " steps': kernels are compiled and a step is captured, on a GPU alone. 'training': all other steps."
    " 'evaluation': validation while training, and the test. 'rest': starting workers, waiting for work,"
    " reading and writing."
)


def sweep_tables(results: Sequence[SweepResult]) -> list[Table]:
    """Return one table of all suites that were measured; none if none was."""
    if not results:
        return []
    every = sorted(results, key=_order)
    totals: dict[str, float] = {}
    for result in every:
        for part, share in shares(result).items():
            totals[part] = totals.get(part, 0.0) + share
    parts = sorted(totals, key=lambda part: (part == REST, -totals[part]))
    rows = [_row(result, parts) for result in every]
    return [
        Table(
            "Whole suites, from the command to the last result",
            tuple(Column(name, numeric=name not in TEXTS, hide_empty=name == "notes") for name in rows[0]),
            tuple(tuple(row.values()) for row in rows),
            f"{_NOTE} Code: {commits(every)}.",
            "sweeps",
        )
    ]


TABLES = TableKind("sweeps", lambda data: sweep_tables(data.sweeps), order=45, source="speeds")


def _order(result: SweepResult) -> tuple[str, str, int, int, str]:
    bench = result["bench"]
    return result["label"], bench["device"], bench["devices"], bench["workers"], result["id"]


def _row(result: SweepResult, parts: Sequence[str]) -> dict[str, Cell]:
    spent, bench = result.get("spent"), result["bench"]
    row = {
        "suite": Cell(result["label"]),
        "device": Cell(device_words(result)),
        "workers": _count(bench["workers"]),
    }
    if spent:
        rate = tokens_per_second(spent) / 1e6
        row |= {
            "cells": _count(spent["cells"]),
            "seconds": Cell(three_digits(spent["seconds"]), spent["seconds"]),
            "M tokens": Cell(three_digits(spent["tokens"] / 1e6), spent["tokens"] / 1e6),
            "M tokens/s": Cell(three_digits(rate), rate),
            "each device": Cell(three_digits(rate / bench["devices"]), rate / bench["devices"]),
        }
    else:
        row |= dict.fromkeys(("cells", "seconds", "M tokens", "M tokens/s", "each device"), NO_VALUE)
    of_parts = shares(result)
    row |= {part: _percent(of_parts.get(part)) for part in parts}
    return row | {"notes": Cell(notes(result))}


def _count(number: int) -> Cell:
    return Cell(f"{number:,}", number)


def _percent(share: float | None) -> Cell:
    return NO_VALUE if share is None else Cell(f"{share:.0%}", share)
