"""Rows of speeds that were measured beside peers: kernels, training steps, the drawing of examples."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.axes import rate_ticks
from linbench.report.style.labels import GUIDE, MISSING, NOT_MEASURED, add_title, colours_of
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.style.wording import commits
from linbench.results.benchmarks import NAMES, BenchmarkGroup, benchmark_groups, seconds_of, tokens_of
from linbench.results.record import fingerprint
from linbench.results.schema.benchmarks import TimingResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED, TIMING_LABELS
from linbench.results.speeds import Rate, rate_of
from linbench.results.store import DRAW, STEP

ROW_INCHES = 0.22

PEER_MARKS = ("o", "s", "^", "D")
"""The marks of peers, by their place among all."""


class Row(NamedTuple):
    """The rates of one row.

    Attributes:
        name: of the row.
        mixer: whose colour it has.
        rates: by side, linbench or a peer; of a task one for each of its presets.
        why: the status of a result that was not measured.
    """

    name: str
    mixer: str
    rates: Mapping[str, Sequence[Rate]]
    why: str


def bench_figure(kind: str, title: str, order: int, note: str = "") -> DataFigure:
    """Return the figure of one kind of benchmark.

    Args:
        kind: of results.
        title: stands above the drawing and before its caption.
        order: its place among all figures.
        note: a further sentence of the caption.
    """

    def drawings(data: ReportData) -> list[Drawing]:
        found = benchmark_groups(data.benchmarks, kind)
        several = [bench for bench in found if len(set(map(_name, bench.results))) > 1]
        return [_drawing(bench, title, note) for bench in several]

    return DataFigure(name=NAMES[kind], order=order, make=drawings)


def _drawing(bench: BenchmarkGroup[TimingResult], title: str, note: str) -> Drawing:
    replayed = any(seconds_of(result, OURS, REPLAYED) for result in bench.results)
    timing = REPLAYED if replayed else AS_CALLED
    by_name: dict[str, list[TimingResult]] = {}
    for result in bench.results:
        by_name.setdefault(_name(result), []).append(result)
    rows = sorted((_row(name, members, bench, timing) for name, members in by_name.items()), key=_best)
    quantity = f"tokens per second, {TIMING_LABELS[timing]}"
    sides = ""
    if any(set(row.rates) - {OURS} for row in rows):
        sides = f" Hollow marks are {', '.join(bench.peers)}, timed in turn with linbench."
    caption = (
        f"{title}: {quantity}. A mark is the median, and its bar reaches from the slowest fifth of the calls"
        f" to the fastest.{note}{sides} At {bench.about}; {commits(bench.results)}."
    )
    draw = partial(_draw, rows=rows, peers=bench.peers, label=quantity, title=f"{title}: {bench.about}")
    return Drawing(bench.slug, draw, caption, fingerprint(bench.results))


def _name(result: TimingResult) -> str:
    """Return the name of a result's row; all presets of a task share one."""
    if result["kind"] == DRAW:
        return str(result["bench"]["task"]["name"])
    replicas = result["bench"]["replicas"] if result["kind"] == STEP else 1
    return f"{result['label']} x{replicas}" if replicas > 1 else result["label"]


def _row(name: str, members: Sequence[TimingResult], bench: BenchmarkGroup[TimingResult], timing: str) -> Row:
    first = members[0]
    rates = {}
    for side in (OURS, *bench.peers):
        every = [rate_of(seconds_of(result, side, timing), tokens_of(result)) for result in members]
        found = [rate for rate in every if rate is not None]
        if found:
            rates[side] = found
    mixer = first["bench"]["model"]["layers"][0]["mixer"] if first["kind"] == STEP else first["label"]
    why = next((result["status"] for result in members if result["status"] != "ok"), "")
    return Row(name, mixer, rates, why)


def _best(row: Row) -> float:
    return median(rate.median for rate in row.rates[OURS]) if OURS in row.rates else 0.0


def _draw(sheet: Sheet, rows: Sequence[Row], peers: Sequence[str], label: str, title: str) -> bool:
    """Draw the rows, the fastest above; what was not measured is named in grey, with its status."""
    sheet.set_size_inches(PANEL_INCHES + 3, 1.2 + ROW_INCHES * len(rows))
    axes = sheet.subplots()
    marks = {peer: PEER_MARKS[place % len(PEER_MARKS)] for place, peer in enumerate(peers)}
    colours = colours_of([row.mixer for row in rows])
    for height, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        _draw_row(axes, row, height, colour, marks)
    names = [f"{row.name}: {row.why or NOT_MEASURED}" if OURS not in row.rates else row.name for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color("#222222" if OURS in row.rates else MISSING)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set(xscale="log", xlabel=label)
    rate_ticks(axes)
    shown = {peer: mark for peer, mark in marks.items() if any(peer in row.rates for row in rows)}
    if shown:
        _legend(axes, shown)
    add_title(sheet, title)
    return True


def _draw_row(axes: Axes, row: Row, height: int, colour: str, marks: Mapping[str, str]) -> None:
    for side, rates in row.rates.items():
        mark, face = ("o", colour) if side == OURS else (marks[side], "white")
        for rate in rates:
            axes.plot([rate.low, rate.high], [height] * 2, color=colour, linewidth=0.9)
            axes.plot([rate.median], [height], marker=mark, markersize=5, color=colour, markerfacecolor=face)


def _legend(axes: Axes, peers: Mapping[str, str]) -> None:
    handles = [Line2D([], [], marker="o", linestyle="", color=GUIDE, label=OURS)]
    for peer, mark in peers.items():
        handles.append(
            Line2D([], [], marker=mark, linestyle="", color=GUIDE, markerfacecolor="white", label=peer)
        )
    axes.legend(handles=handles, loc="lower right", fontsize=8)
