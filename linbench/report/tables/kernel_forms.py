"""Tables of the forms of one kernel: how many times as fast as token by token each is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linbench.report.style.wording import TIMING, commits
from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.speed_labels import OURS, TIMING_LABELS
from linbench.results.speeds import Series, Speeds, speeds

SLOWEST = "reference"
"""The form that the others are compared with."""

NAMES = {
    SLOWEST: "token by token",
    "scan": "parallel scan",
    "chunkwise": "chunkwise, torch",
    "triton": "chunkwise, Triton",
}
"""The names of forms for readers, the slowest first."""


@dataclass(frozen=True)
class FormSpeedups:
    """The speed of one layer with several forms of its kernel.

    Attributes:
        label: the layer.
        about: the setting in which it was measured.
        timing: how it was timed.
        rates: tokens per second by form and head dimension, and then by length.
        results: the measurements.
        slug: a name for files.
    """

    label: str
    about: str
    timing: str
    rates: Mapping[tuple[str, int], Mapping[int, float]]
    results: tuple[SpeedResult, ...]
    slug: str

    @property
    def forms(self) -> list[str]:
        """The forms, the slowest first."""
        found = {form for form, _ in self.rates}
        return [*(form for form in NAMES if form in found), *sorted(found - set(NAMES))]

    @property
    def words(self) -> dict[str, str]:
        """The names of the forms for readers."""
        return {form: NAMES.get(form, form) for form in self.forms}

    @property
    def head_dims(self) -> list[int]:
        """All head dimensions, the smallest first."""
        return sorted({dim for _, dim in self.rates})

    @property
    def lengths(self) -> list[int]:
        """All lengths, the shortest first."""
        return sorted({length for rates in self.rates.values() for length in rates})

    def gains(self, form: str, head_dim: int) -> dict[int, float]:
        """Return by length how many times as fast as token by token a form is."""
        slow, rates = self.rates.get((SLOWEST, head_dim), {}), self.rates.get((form, head_dim), {})
        return {length: rate / slow[length] for length, rate in rates.items() if length in slow}

    @property
    def caption(self) -> str:
        """The text below table and figure."""
        return (
            f"Training of one layer, {self.label}, {self.about}: forward and backward with every form of its"
            " kernels, relative to the recurrence as a loop over tokens in torch. The parallel scan joins"
            f" tokens' transition matrices and was written for this comparison. {TIMING[self.timing]}"
            f" Medians. Code: {commits(self.results)}."
        )


def form_speedups(results: Iterable[SpeedResult]) -> list[FormSpeedups]:
    """Return the layers that were measured with several forms, token by token among them."""
    found = []
    for these in speeds(results, form="named"):
        for timing in these.timings[:1]:
            for label in dict.fromkeys(series.sample["label"] for series in these.series):
                found.append(_speedups_of(these, label, timing))
    return [forms for forms in found if any(form == SLOWEST for form, _ in forms.rates)]


def _speedups_of(these: Speeds, label: str, timing: str) -> FormSpeedups:
    own = [series for series in these.series if series.sample["label"] == label and series.side == OURS]
    rates = {
        (series.sample["bench"]["backend"], _head_dim(series)): {
            at: rate.median for at, rate in series.rates(timing).items()
        }
        for series in own
    }
    results = tuple(result for series in own for result in series.results.values())
    return FormSpeedups(
        label,
        these.about,
        timing,
        {key: of for key, of in rates.items() if of},
        results,
        these.slug(f"forms of {label}"),
    )


def _head_dim(series: Series) -> int:
    layer = series.sample["bench"]["layer"]
    settings = layer["settings"]
    return int(
        settings.get("head_dim") or settings.get("expand_k", 1.0) * layer["d_model"] / settings["heads"]
    )


def table(forms: FormSpeedups) -> Table:
    """Return a table with a row for every head dimension and form, and a column for every length."""
    rows, records = [], Records()
    for dim in forms.head_dims:
        for form in forms.forms:
            rates, gains = forms.rates.get((form, dim), {}), forms.gains(form, dim)
            notes = _notes(forms, form, dim)
            cells = [_cell(form, rates.get(length), gains.get(length)) for length in forms.lengths]
            rows.append((Cell(str(dim), dim), Cell(forms.words[form]), *cells, Cell(notes)))
            records += [
                {
                    "head_dim": dim,
                    "form": form,
                    "length": length,
                    "tokens_per_second": rates.get(length),
                    "times": gains.get(length),
                    "notes": notes,
                }
                for length in forms.lengths
            ]
    title = (
        f"{forms.label}, forward and backward {TIMING_LABELS[forms.timing]}, times as fast as token by token:"
        f" {forms.about}"
    )
    columns = (
        Column("head dimension"),
        Column("layer", numeric=False),
        *(Column(f"{length:,}") for length in forms.lengths),
        Column("notes", numeric=False, hide_empty=True),
    )
    return Table(title, columns, tuple(rows), forms.caption, forms.slug, records=records)


def _cell(form: str, rate: float | None, gain: float | None) -> Cell:
    """Return the speed of the slowest form, and how many times as fast another is."""
    if rate is None:
        return NO_VALUE
    if form == SLOWEST or gain is None:
        return Cell(f"{rate / 1e3:,.1f}k tokens/s", rate)
    return Cell(f"{gain:.1f} x", gain)


def _notes(forms: FormSpeedups, form: str, dim: int) -> str:
    own = [
        one
        for one in forms.results
        if one["bench"]["backend"] == form and _head_dim(Series("", OURS, {0: one})) == dim
    ]
    words = [
        *(mark for one in own for mark in one["marks"]),
        *(f"{one['status']}: {one['reason']}" for one in own if one["status"] != "ok"),
    ]
    return "; ".join(dict.fromkeys(words))
