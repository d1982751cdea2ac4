"""Stored speeds of layers as tables."""

from collections.abc import Callable, Iterable

import pandas as pd

from linbench.report import forms
from linbench.report.tables import commits
from linbench.report.words import GROWTH, NOTES, ROOFLINE, TIMING, TITLES, Words, three_digits
from linbench.speeds import HOW, OURS, Series, Speeds, roofline, speeds, tokens
from linbench.store import Result


def tables(results: Iterable[Result]) -> list[Words]:
    """One for every quantity of what may be compared: a row for each layer, a column for each length."""
    results, found = list(results), []
    for these in speeds(results):
        if these.question == "memory":
            found += [_memory(these, "Peak of training, MiB", ("sides", OURS, "peak_bytes"), 2**20, "peak")]
            found += [_memory(these, "State of one sequence, KiB", ("state", "bytes"), 2**10, "state")]
        else:
            found += [_timed(these, timing) for timing in these.timings]
    return [*(words for words in found if not words.frame.empty), *map(forms.table, forms.ladders(results))]


def _timed(these: Speeds, timing: str) -> Words:
    alone = these.question == "decode" and these.load == "one sequence"
    unit, value = ("microseconds a token", _microseconds) if alone else ("thousand tokens per second", _thousands)
    rows = []
    for series in these.series:
        cells = {f"{length:,}": _cell(series, length, timing, value) for length in these.lengths}
        growth = series.growth(timing)
        longest = series.results[max(series.results)]
        share = roofline(longest, series.side, timing)
        rows.append(
            {
                "layer": series.name,
                **cells,
                "growth": "–" if growth is None else f"{growth:z.2f}",
                "kFLOP a token": _per_token(series, longest, "flops", 1e3),
                "bytes a token": _per_token(series, longest, "bytes", 1),
                "roofline": "–" if share is None or series.side != OURS else f"{share:.0%}",
                "first call, s": _first(series),
                "notes": _notes(series),
            }
        )
    about = f"{NOTES[these.question]} {TIMING[timing]} Medians of {unit}, ± half of what lies between the fifths. {GROWTH} {ROOFLINE}"
    return Words(
        f"{TITLES[these.question]}, {unit}, {HOW[timing]}: {these.about}", pd.DataFrame(rows), _caption(these, about), these.slug(timing.replace("_", "-"))
    )


def _memory(these: Speeds, title: str, pick: tuple[str, ...], unit: int, slug: str) -> Words:
    rows = []
    for series in these.series:
        numbers = series.numbers(pick)
        cells = {f"{length:,}": three_digits(numbers[length] / unit) if length in numbers else "–" for length in these.lengths}
        rows.append({"layer": series.name, **cells, "notes": _notes(series)})
    return Words(f"{title}: {these.about}", pd.DataFrame(rows), _caption(these, NOTES["memory"]), these.slug(slug))


def _cell(series: Series, length: int, timing: str, value: Callable[[float], str]) -> str:
    rate = series.rate(length, timing)
    return "–" if rate is None else f"{value(rate.median)} ± {rate.spread:.0%}"


def _per_token(series: Series, result: Result, what: str, unit: float) -> str:
    known = (result["cost"] or {}).get(what)
    return "–" if known is None or series.side != OURS else three_digits(known / tokens(result) / unit)


def _thousands(rate: float) -> str:
    return three_digits(rate / 1e3)


def _microseconds(rate: float) -> str:
    return three_digits(1e6 / rate)


def _first(series: Series) -> str:
    seconds = [result["first_call"] for result in series.results.values() if result["first_call"] is not None]
    return f"{max(seconds):.2f}" if seconds and series.side == OURS else "–"


def _notes(series: Series) -> str:
    """What went wrong or was in doubt, with the lengths where it was."""
    said: dict[str, list[int]] = {}
    for length, result in series.results.items():
        side = result["sides"].get(series.side, {})
        words = [*result["marks"]] if result["status"] == "ok" else [f"{result['status']}: {result['reason']}"]
        apart = [f"ours of another run, {commits([result])}"] if length in series.apart and "reason" not in side else []
        for word in [*words, *apart, *(side[name] for name in ("reason", "note") if name in side)]:
            said.setdefault(word, []).append(length)
    every = len(series.results)
    return "; ".join(word if len(at) == every else f"{word} at {', '.join(f'{length:,}' for length in at)}" for word, at in said.items())


def _caption(these: Speeds, about: str) -> str:
    return f"{about} {commits(these.results)}."
