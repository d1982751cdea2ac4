"""Table of profiles: a row for each variant, a column for each thing that was asked of it."""

import math
from collections.abc import Callable

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.style.wording import million_tokens, three_digits, training
from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.report.tables import TableKind
from linbench.results.profile import TRACKED, Estimate, Facet, facets
from linbench.results.speeds import speeds

FEWEST = 3
"""Facets that a table needs: with fewer the tables of the comparisons say all."""


def profile_tables(data: ReportData) -> list[Table]:
    """Return the table of profiles, if there are enough facets for one."""
    found = facets(data.comparisons, speeds(data.speeds))
    return [_table(found)] if len(found) >= FEWEST else []


TABLES = TableKind("profile", profile_tables, order=5, printed=False)


def _length(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.3f}"


def _speed(value: float) -> str:
    return three_digits(value / 1e6)


_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "capacity": ("pairs per 1,000 floats", three_digits),
    "tokens": ("tokens to learn", million_tokens),
    "stale": ("old values", _share),
    "noise": ("right in noise", _share),
    "parity": ("parity up to", _length),
    "group": ("group word up to", _length),
    "accuracy": ("accuracy", _share),
    "train": ("training, M tokens/s", _speed),
    "decode": ("decoding, M tokens/s", _speed),
}
"""The heading of each facet, and how its numbers are written."""

_MEANING = {
    "capacity": "pairs of mqar at 90 % recall for each thousand recurrent floats",
    "tokens": "median over seeds by Kaplan and Meier",
    "stale": "share of answers that are an older value, after the most overwrites",
    "noise": "accuracy with the most noise",
    "parity": f"the longest tested length up to which accuracy above chance is {TRACKED:g} or more: median"
    " over seeds, lowest and highest seed",
    "group": "the longest tested length of words over a group up to which accuracy above chance is"
    f" {TRACKED:g} or more: median over seeds, lowest and highest seed",
    "accuracy": "mean accuracy over seeds and tests",
    "train": "median and fifths of calls",
    "decode": "median and fifths of calls",
}


def _table(found: list[Facet]) -> Table:
    first = found[0].estimates
    others = {label for facet in found for label in facet.estimates if label not in first}
    labels = [*sorted(first, key=lambda label: -first[label].value), *sorted(others)]
    return Table(
        "Profiles: what each variant remembers, overwrites, filters and tracks, and how fast it is",
        (Column("model", numeric=False), *(Column(heading(facet)) for facet in found)),
        tuple((Cell(label), *(_cell(facet, label) for facet in found)) for label in labels),
        _caption(found),
        file_name("profiles"),
        records=_records(found, labels),
    )


def heading(facet: Facet) -> str:
    """Return what a facet measures, as the heading of a column."""
    name = _COLUMNS[facet.key][0]
    return name if facet.variables is None else f"{name} of {facet.variables} variables"


def _cell(facet: Facet, label: str) -> Cell:
    estimate, ranks = facet.estimates.get(label), facet.ranks(label)
    if estimate is None or ranks is None:
        return NO_VALUE
    return Cell(f"{words(facet, estimate)} ({ranks})", _finite(estimate.value))


def words(facet: Facet, estimate: Estimate) -> str:
    """Return the number of a variant with its interval, as a table has them."""
    write = _COLUMNS[facet.key][1]

    def number(value: float) -> str:
        if value < facet.least:
            return f"< {write(facet.least)}"
        return "never" if math.isinf(value) else write(value)

    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return number(estimate.value)
    ends = f"[{number(estimate.low)}, {number(estimate.high)}]"
    return f"{number(estimate.value)} {ends}"


def _caption(found: list[Facet]) -> str:
    parts = ["Brackets: 95 % interval; parentheses: the ranks that intervals leave open. –: not measured."]
    for facet in found:
        name = heading(facet)
        parts.append(f"{name[0].upper()}{name[1:]}: {meaning(facet)}. {setting(facet)}".strip())
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts)


def meaning(facet: Facet) -> str:
    """Return what the numbers of a facet are, without a period."""
    return _MEANING[facet.key]


def setting(facet: Facet) -> str:
    """Return how a facet was measured."""
    return facet.speeds or (training(facet.comparison) if facet.comparison else "")


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _records(found: list[Facet], labels: list[str]) -> Records:
    records: Records = []
    for label in labels:
        record: dict[str, object] = {"model": label}
        for facet in found:
            estimate, ranks = facet.estimates.get(label), facet.ranks(label)
            key = facet.key if facet.variables is None else f"{facet.key}_{facet.variables}"
            record |= {
                key: _finite(estimate.value) if estimate else None,
                f"{key}_low": _finite(estimate.low) if estimate else None,
                f"{key}_high": _finite(estimate.high) if estimate else None,
                f"{key}_rank_best": ranks and ranks.best,
                f"{key}_rank_worst": ranks and ranks.worst,
            }
        records.append(record)
    return records
