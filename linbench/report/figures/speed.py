"""Speeds and memory of layers against the length of a sequence."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from matplotlib.figure import Figure as Sheet

from linbench.models.base import GENERATIONS
from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.axes import Line, draw_against_length
from linbench.report.style.colors import generations, styles_of
from linbench.report.style.labels import MAX_LINES_PER_PANEL, add_title, label_lines
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.style.wording import GROWTH, NOTES, TIMING, TITLES, commits
from linbench.results.record import fingerprint
from linbench.results.speed_labels import TIMING_LABELS
from linbench.results.speeds import Series, Speeds, peak_bytes, speeds, state_bytes

Panels = Mapping[str, Sequence[Line]]
"""The lines of each quantity that has panels of its own, by the label of its axis."""

SIZES = {
    "peak of training, MiB": (peak_bytes, 2**20),
    "state of one sequence, KiB": (state_bytes, 2**10),
}
"""The quantities of memory that are drawn, by label: each the bytes of a result, and the bytes of a unit."""


def drawings(data: ReportData) -> list[Drawing]:
    """Return a drawing for each question that was asked at several lengths, and each way of timing."""
    return [
        drawing
        for these in speeds(data.speeds)
        if len(these.lengths) > 1
        for drawing in (_of_memory(these) if these.question == "memory" else _of_times(these))
    ]


def _of_memory(these: Speeds) -> Iterator[Drawing]:
    """Return one drawing, of the peak and the state side by side."""
    current = [series for series in these.series if not all(map(series.outdated, series.results))]
    panels = {}
    for title, (pick, unit) in SIZES.items():
        lines = []
        for series in current:
            points = {at: value / unit for at, value in series.numbers(pick).items()}
            lines.append(Line(f"{series.name}{_cut_short(series)}", series.mixer, points))
        panels[title] = lines
    yield _drawing(these, "bytes", panels, f"{NOTES[these.question]} {_where(these)}")


def _of_times(these: Speeds) -> Iterator[Drawing]:
    """Return a drawing for each way of timing."""
    for timing in these.timings:
        title = f"{TITLES[these.question].lower()}, tokens per second\n{TIMING_LABELS[timing]}"
        lines = [_line(series, timing) for series in these.series if series.rates(timing)]
        caption = (
            f"{NOTES[these.question]} {TIMING[timing]} A line joins medians, and its band reaches from the"
            f" slowest fifth of the calls to the fastest. {GROWTH} T to that power stands beside each name."
            f" {_where(these)}"
        )
        yield _drawing(these, timing, {title: lines}, caption)


def _line(series: Series, timing: str) -> Line:
    rates, growth = series.rates(timing), series.growth(timing)
    exponent = "" if growth is None else f"  T^{growth:z.2f}"
    points = {at: rate.median for at, rate in rates.items()}
    bands = {at: (rate.low, rate.high) for at, rate in rates.items()}
    return Line(f"{series.name}{exponent}{_cut_short(series)}", series.mixer, points, bands)


def _cut_short(series: Series) -> str:
    """Return why a line ends early, as `, oom at 65,536`; nothing where it does not."""
    failed = {at: result["status"] for at, result in series.results.items() if result["status"] != "ok"}
    return f", {failed[min(failed)]} at {min(failed):,}" if failed else ""


def _drawing(these: Speeds, of: str, panels: Panels, caption: str) -> Drawing:
    title = f"{TITLES[these.question]}: {these.about}"
    return Drawing(
        these.slug(of), partial(draw, panels=panels, title=title), caption, fingerprint(these.results), title
    )


def draw(sheet: Sheet, panels: Panels, title: str) -> bool:
    """Draw panels side by side; where lines are many, a row of panels for each generation."""
    parts = _parts([line.mixer for line in max(panels.values(), key=len)])
    count = len(parts) * len(panels)
    columns = max(len(panels), min(2, count))
    rows = -(-count // columns)
    sheet.set_size_inches((PANEL_INCHES + 1.6) * columns, 3.3 * rows)
    scale: Literal["col", "all"] = "col" if len(panels) > 1 else "all"
    places = list(sheet.subplots(rows, columns, squeeze=False, sharex=True, sharey=scale).flat)
    for empty in places[count:]:
        sheet.delaxes(empty)
    jobs = [(part, mixers, label, lines) for part, mixers in parts.items() for label, lines in panels.items()]
    ends = []
    for axes, (part, mixers, label, lines) in zip(places[:count], jobs, strict=True):
        own = [line for line in lines if line.mixer in mixers]
        axes.set_title(part, fontsize="medium", loc="left")
        # there may be no panel below; panels of a row stand far apart
        axes.tick_params(labelbottom=True, labelleft=True)
        styled = styles_of([line.mixer for line in own])
        ends.append((axes, draw_against_length(axes, own, styled, label)))
    for axes, of_lines in ends:
        label_lines(axes, of_lines)
    add_title(sheet, title)
    return True


def _parts(mixers: Sequence[str]) -> dict[str, set[str]]:
    """Return many mixers by generation, the small generations together; few stay together, without a name."""
    if len(mixers) <= MAX_LINES_PER_PANEL:
        return {"": set(mixers)}
    own = {mixer: generations().get(mixer, "of your own") for mixer in mixers}
    known = [*GENERATIONS, *sorted(set(own.values()) - set(GENERATIONS))]
    order = [name for name in known if name in own.values()]
    counts = {name: sum(own[mixer] == name for mixer in mixers) for name in order}
    small = [name for name in order if counts[name] <= MAX_LINES_PER_PANEL // 2]
    parts = {}
    if small:
        parts[", ".join(small)] = {mixer for mixer in mixers if own[mixer] in small}
    for name in order:
        if name not in small:
            parts[name] = {mixer for mixer in mixers if own[mixer] == name}
    return parts


def _where(these: Speeds) -> str:
    return f"At {these.about}; {commits(these.results)}."


FIGURE = DataFigure(name="speed", order=200, make=drawings)
