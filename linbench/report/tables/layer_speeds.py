"""Tables of stored speeds and sizes of layers, by the length of a sequence."""

from collections.abc import Callable, Iterable
from typing import Any

from linbench.report.style.wording import GROWTH, NOTES, ROOFLINE, TIMING, TITLES, commits, three_digits
from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.report.tables import TableKind, kernel_forms
from linbench.results.roofline import roofline
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.speed_labels import AS_CALLED, OURS, TIMING_LABELS
from linbench.results.speeds import Series, Speeds, peak_bytes, speeds, state_bytes, tokens


def tables(results: Iterable[SpeedResult]) -> list[Table]:
    """Return a table for every question that may be compared, and one for every kernel with several forms.

    A table has a row for each layer and a column for each length.
    """
    results, found = list(results), list[Table]()
    for these in speeds(results):
        if these.question == "memory":
            found.append(_memory(these, "Peak of training, MiB", peak_bytes, 2**20, "peak"))
            found.append(_memory(these, "State of one sequence, KiB", state_bytes, 2**10, "state"))
        else:
            # where nothing could be timed, a table says why
            found += [_timed(these, timing) for timing in these.timings or [AS_CALLED]]
    return [
        *(table for table in found if table.rows),
        *(kernel_forms.table(forms) for forms in kernel_forms.form_speedups(results)),
    ]


TABLES = TableKind("layer speeds", lambda data: tables(data.speeds), order=30, source="speeds")


def _timed(these: Speeds, timing: str) -> Table:
    """Return the table of one question and way of timing."""
    alone = these.question == "decode" and these.load == "one sequence"
    unit = "microseconds a token" if alone else "thousand tokens per second"
    in_unit = _microseconds if alone else _thousands
    rows, records = [], Records()
    for series in these.series:
        growth = series.growth(timing)
        by_length = {length: _record(series, length, timing) for length in sorted(series.results)}
        longest = by_length[max(by_length)]
        share = longest["roofline"]
        records += [{**one, "growth": growth} for one in by_length.values()]
        rows.append(
            (
                Cell(series.name),
                *(_rate(series, length, timing, in_unit) for length in these.lengths),
                NO_VALUE if growth is None else Cell(f"{growth:z.2f}", growth),
                _digits(longest["flops_per_token"], 1e3),
                _digits(longest["bytes_per_token"], 1),
                NO_VALUE if share is None else Cell(f"{share:.0%}", share),
                _first_call(one["first_call_seconds"] for one in by_length.values()),
                Cell(_notes(series)),
            )
        )
    about = (
        f"{NOTES[these.question]} {TIMING[timing]} Medians in {unit}, ± half the distance from the slowest"
        f" fifth of the calls to the fastest. {GROWTH} {ROOFLINE}"
    )
    extra = ["growth", "kFLOP a token", "bytes a token", "roofline", "first call, s"]
    return Table(
        f"{TITLES[these.question]}, {unit}, {TIMING_LABELS[timing]}: {these.about}",
        (LAYER, *(Column(f"{length:,}") for length in these.lengths), *map(Column, extra), REMARKS),
        tuple(rows),
        _caption(these, about),
        these.slug(timing.replace("_", "-")),
        records=records,
    )


LAYER = Column("layer", numeric=False)
REMARKS = Column("notes", numeric=False, hide_empty=True)


def _record(series: Series, length: int, timing: str) -> dict[str, Any]:
    """Return the record of a layer at a length. A peer has neither cost nor first call."""
    result, rate, ours = series.results[length], series.rate(length, timing), series.side == OURS
    old = series.outdated(length)
    cost = result["cost"] if ours else None
    flops, moved = (cost["flops"], cost["bytes"]) if cost else (None, None)
    return {
        "layer": series.name,
        "length": length,
        **dict(zip(("tokens_per_second", "low", "high"), rate or (None,) * 3, strict=True)),
        "flops_per_token": None if flops is None else flops / tokens(result),
        "bytes_per_token": None if moved is None else moved / tokens(result),
        "roofline": roofline(result, series.side, timing) if ours and not old else None,
        "first_call_seconds": result["first_call"] if ours and not old else None,
        "notes": "; ".join(_said(series, length)),
    }


def _memory(
    these: Speeds, title: str, pick: Callable[[SpeedResult], float | None], unit: int, name: str
) -> Table:
    """Return a table of bytes.

    Args:
        these: the measurements.
        title: of the table.
        pick: returns the bytes of a result.
        unit: how many bytes a unit of the title has.
        name: of the quantity, for files and records.
    """
    rows, records = [], Records()
    for series in these.series:
        known = series.numbers(pick)
        records += [
            {
                "layer": series.name,
                "length": length,
                f"{name}_bytes": known.get(length),
                "notes": "; ".join(_said(series, length)),
            }
            for length in sorted(series.results)
        ]
        sizes = [_digits(known.get(length), unit) for length in these.lengths]
        rows.append((Cell(series.name), *sizes, Cell(_notes(series))))
    return Table(
        f"{title}: {these.about}",
        (LAYER, *(Column(f"{length:,}") for length in these.lengths), REMARKS),
        tuple(rows),
        _caption(these, NOTES["memory"]),
        these.slug(name),
        records=records,
    )


def _rate(series: Series, length: int, timing: str, in_unit: Callable[[float], str]) -> Cell:
    rate = series.rate(length, timing)
    return NO_VALUE if rate is None else Cell(f"{in_unit(rate.median)} ± {rate.spread:.0%}", rate.median)


def _digits(value: float | None, unit: float) -> Cell:
    return NO_VALUE if value is None else Cell(three_digits(value / unit), value)


def _thousands(rate: float) -> str:
    return three_digits(rate / 1e3)


def _microseconds(rate: float) -> str:
    return three_digits(1e6 / rate)


def _first_call(seconds: Iterable[float | None]) -> Cell:
    """Return the longest first call."""
    longest = max((found for found in seconds if found is not None), default=None)
    return NO_VALUE if longest is None else Cell(f"{longest:.2f}", longest)


def _notes(series: Series) -> str:
    """Return what went wrong or is in doubt, with the lengths where that is so."""
    said: dict[str, list[int]] = {}
    for length in series.results:
        for word in _said(series, length):
            said.setdefault(word, []).append(length)
    every = len(series.results)
    return "; ".join(
        word if len(at) == every else f"{word} at {', '.join(f'{length:,}' for length in at)}"
        for word, at in said.items()
    )


def _said(series: Series, length: int) -> list[str]:
    """Return what went wrong or is in doubt at one length."""
    result = series.results[length]
    side = result["sides"].get(series.side, {})
    old = series.outdated(length)
    words = (
        [*([old] if old else []), *result["marks"]]
        if result["status"] == "ok"
        else [f"{result['status']}: {result['reason']}"]
    )
    apart = (
        [f"ours of another run, {commits([result])}"]
        if length in series.separate_runs and "reason" not in side
        else []
    )
    return [*words, *apart, *(side[name] for name in ("reason", "note") if name in side)]


def _caption(these: Speeds, about: str) -> str:
    return f"{about} Code: {commits(these.results)}."
