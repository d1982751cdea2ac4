"""Stored speeds of layers as tables."""

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from linbench.report.style.wording import GROWTH, NOTES, ROOFLINE, TIMING, TITLES, Words, three_digits
from linbench.report.tables import kernel_forms as forms
from linbench.report.tables.comparison import commits
from linbench.results.record import Result
from linbench.results.roofline import roofline
from linbench.results.speed_labels import AS_CALLED, HOW, OURS
from linbench.results.speeds import Series, Speeds, speeds, tokens


def tables(results: Iterable[Result]) -> list[Words]:
    """One for every quantity of what may be compared: a row for each layer, a column for each length."""
    results, found = list(results), []
    for these in speeds(results):
        if these.question == "memory":
            found += [_memory(these, "Peak of training, MiB", ("sides", OURS, "peak_bytes"), 2**20, "peak")]
            found += [_memory(these, "State of one sequence, KiB", ("state", "bytes"), 2**10, "state")]
        else:
            # what could not be timed says why
            found += [_timed(these, timing) for timing in these.timings or [AS_CALLED]]
    return [*(words for words in found if not words.frame.empty), *map(forms.table, forms.ladders(results))]


def _timed(these: Speeds, timing: str) -> Words:
    alone = these.question == "decode" and these.load == "one sequence"
    unit, value = (
        ("microseconds a token", _microseconds) if alone else ("thousand tokens per second", _thousands)
    )
    rows, numbers = [], []
    for series in these.series:
        growth, of_lengths = (
            series.growth(timing),
            {length: _numbers(series, length, timing) for length in sorted(series.results)},
        )
        longest = of_lengths[max(of_lengths)]
        numbers += [{**one, "growth": growth} for one in of_lengths.values()]
        rows.append(
            {
                "layer": series.name,
                **{f"{length:,}": _cell(series, length, timing, value) for length in these.lengths},
                "growth": "–" if growth is None else f"{growth:z.2f}",
                "kFLOP a token": _digits(longest["flops_per_token"], 1e3),
                "bytes a token": _digits(longest["bytes_per_token"], 1),
                "roofline": "–" if longest["roofline"] is None else f"{longest['roofline']:.0%}",
                "first call, s": _first(one["first_call_seconds"] for one in of_lengths.values()),
                "notes": _notes(series),
            }
        )
    about = (
        f"{NOTES[these.question]} {TIMING[timing]} Medians of {unit}, ± half of what lies between the fifths."
        f" {GROWTH} {ROOFLINE}"
    )
    title = f"{TITLES[these.question]}, {unit}, {HOW[timing]}: {these.about}"
    return Words(
        title, pd.DataFrame(rows), _caption(these, about), these.slug(timing.replace("_", "-")), numbers
    )


def _numbers(series: Series, length: int, timing: str) -> dict[str, Any]:
    """Of a layer at a length; what a token costs and how soon ours was called for the first time is no
    peer's."""
    result, rate, ours = series.results[length], series.rate(length, timing), series.side == OURS
    old = series.outdated(length)
    cost = (result["cost"] or {}) if ours else {}
    return {
        "layer": series.name,
        "length": length,
        **dict(zip(("tokens_per_second", "low", "high"), rate or (None,) * 3, strict=True)),
        **{
            f"{what}_per_token": cost[what] / tokens(result) if cost.get(what) is not None else None
            for what in ("flops", "bytes")
        },
        "roofline": roofline(result, series.side, timing) if ours and not old else None,
        "first_call_seconds": result["first_call"] if ours and not old else None,
        "notes": "; ".join(_said(series, length)),
    }


def _memory(these: Speeds, title: str, pick: tuple[str, ...], unit: int, slug: str) -> Words:
    rows, numbers = [], []
    for series in these.series:
        known = series.numbers(pick)
        numbers += [
            {
                "layer": series.name,
                "length": length,
                f"{slug}_bytes": known.get(length),
                "notes": "; ".join(_said(series, length)),
            }
            for length in sorted(series.results)
        ]
        cells = {f"{length:,}": _digits(known.get(length), unit) for length in these.lengths}
        rows.append({"layer": series.name, **cells, "notes": _notes(series)})
    return Words(
        f"{title}: {these.about}",
        pd.DataFrame(rows),
        _caption(these, NOTES["memory"]),
        these.slug(slug),
        numbers,
    )


def _cell(series: Series, length: int, timing: str, value: Callable[[float], str]) -> str:
    rate = series.rate(length, timing)
    return "–" if rate is None else f"{value(rate.median)} ± {rate.spread:.0%}"


def _digits(value: float | None, unit: float) -> str:
    return "–" if value is None else three_digits(value / unit)


def _thousands(rate: float) -> str:
    return three_digits(rate / 1e3)


def _microseconds(rate: float) -> str:
    return three_digits(1e6 / rate)


def _first(seconds: Iterable[float | None]) -> str:
    longest = max((found for found in seconds if found is not None), default=None)
    return "–" if longest is None else f"{longest:.2f}"


def _notes(series: Series) -> str:
    """What went wrong or was in doubt, with the lengths where it was."""
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
    """The same of one length."""
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
        if length in series.apart and "reason" not in side
        else []
    )
    return [*words, *apart, *(side[name] for name in ("reason", "note") if name in side)]


def _caption(these: Speeds, about: str) -> str:
    return f"{about} {commits(these.results)}."
