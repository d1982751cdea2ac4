"""Forms of one recurrence beside each other: how many times faster than token by token."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from linbench.report.style.wording import TIMING, Words
from linbench.report.tables.comparison import commits
from linbench.results.record import Result
from linbench.results.speed_labels import HOW, OURS
from linbench.results.speeds import Series, Speeds, speeds

SLOWEST = "reference"
"""The form that others are measured by."""

WORDS = {
    SLOWEST: "token by token",
    "scan": "parallel scan",
    "chunkwise": "chunkwise, torch",
    "triton": "chunkwise, Triton",
}


@dataclass(frozen=True)
class Ladder:
    """One layer's training step in several forms of its kernels: tokens per second by form, head dimension
    and length."""

    label: str
    about: str
    timing: str
    rates: Mapping[tuple[str, int], Mapping[int, float]]
    results: tuple[Result, ...]
    slug: str

    @property
    def forms(self) -> list[str]:
        """The slowest first."""
        found = {form for form, _ in self.rates}
        return [*(form for form in WORDS if form in found), *sorted(found - set(WORDS))]

    @property
    def words(self) -> dict[str, str]:
        """For readers."""
        return {form: WORDS.get(form, form) for form in self.forms}

    @property
    def head_dims(self) -> list[int]:
        """All that occur."""
        return sorted({dim for _, dim in self.rates})

    @property
    def lengths(self) -> list[int]:
        """All that occur."""
        return sorted({length for rates in self.rates.values() for length in rates})

    def gains(self, form: str, head_dim: int) -> dict[int, float]:
        """By length, how many times as many tokens per second as token by token."""
        slow, rates = self.rates.get((SLOWEST, head_dim), {}), self.rates.get((form, head_dim), {})
        return {length: rate / slow[length] for length, rate in rates.items() if length in slow}

    @property
    def caption(self) -> str:
        """What was compared, and how."""
        return (
            f"Training of one layer, {self.label}, {self.about}: forward and backward with every form of its"
            " kernels, relative to the recurrence as a loop over tokens in torch. The parallel scan joins"
            f" tokens' transition matrices and was written for this comparison. {TIMING[self.timing]}"
            f" Medians. {commits(self.results)}."
        )


def ladders(results: Iterable[Result]) -> list[Ladder]:
    """Of stored results whose form of kernels was named."""
    found = []
    for these in speeds(results, form="named"):
        for timing in these.timings[:1]:
            for label in dict.fromkeys(series.any["label"] for series in these.series):
                found.append(_ladder(these, label, timing))
    return [ladder for ladder in found if any(form == SLOWEST for form, _ in ladder.rates)]


def _ladder(these: Speeds, label: str, timing: str) -> Ladder:
    own = [series for series in these.series if series.any["label"] == label and series.side == OURS]
    rates = {
        (series.any["bench"]["backend"], _head_dim(series)): {
            at: rate.median for at, rate in series.rates(timing).items()
        }
        for series in own
    }
    results = tuple(result for series in own for result in series.results.values())
    return Ladder(
        label,
        these.about,
        timing,
        {key: of for key, of in rates.items() if of},
        results,
        these.slug(f"forms of {label}"),
    )


def _head_dim(series: Series) -> int:
    layer = series.any["bench"]["layer"]
    settings: dict[str, Any] = layer["settings"]
    return int(
        settings.get("head_dim") or settings.get("expand_k", 1.0) * layer["d_model"] / settings["heads"]
    )


def table(ladder: Ladder) -> Words:
    """A row for every head dimension and form, a column for every length."""
    rows, numbers = [], []
    for dim in ladder.head_dims:
        for form in ladder.forms:
            rates, gains, notes = (
                ladder.rates.get((form, dim), {}),
                ladder.gains(form, dim),
                _notes(ladder, form, dim),
            )
            cells = {
                f"{length:,}": _words(form, rates.get(length), gains.get(length)) for length in ladder.lengths
            }
            rows.append({"head dimension": str(dim), "layer": ladder.words[form], **cells, "notes": notes})
            numbers += [
                {
                    "head_dim": dim,
                    "form": form,
                    "length": length,
                    "tokens_per_second": rates.get(length),
                    "times": gains.get(length),
                    "notes": notes,
                }
                for length in ladder.lengths
            ]
    title = (
        f"{ladder.label}, forward and backward {HOW[ladder.timing]}, times as fast as token by token:"
        f" {ladder.about}"
    )
    return Words(title, pd.DataFrame(rows), ladder.caption, ladder.slug, numbers)


def _words(form: str, rate: float | None, gain: float | None) -> str:
    if rate is None:
        return "–"
    speed = f"{rate / 1e3:,.1f}k tokens/s"
    return speed if form == SLOWEST else f"{gain:.1f} x" if gain is not None else speed


def _notes(ladder: Ladder, form: str, dim: int) -> str:
    own = [
        one
        for one in ladder.results
        if one["bench"]["backend"] == form and _head_dim(Series("", OURS, {0: one})) == dim
    ]
    words = [
        *(mark for one in own for mark in one["marks"]),
        *(f"{one['status']}: {one['reason']}" for one in own if one["status"] != "ok"),
    ]
    return "; ".join(dict.fromkeys(words))
