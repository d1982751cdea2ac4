"""Stored speeds of kernels, training steps and the drawing of examples as figures: a row for each, ours
beside a peer's."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from linbench.report.figure import Drawing
from linbench.report.figures.speed_axes import rate_ticks
from linbench.report.style.labels import GUIDE, MISSING, colours_of, titled
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.tables.comparison import commits
from linbench.results.benchmarks import NAMES, Bench, benches, seconds_of, tokens_of
from linbench.results.record import BENCHED, Result, fingerprint
from linbench.results.speed_labels import AS_CALLED, HOW, OURS, REPLAYED
from linbench.results.speeds import Rate, rate_of
from linbench.results.store import DRAW, OPERATION, STEP

BENCH_NAMES = tuple(NAMES.values())
"""Of the figures that are drawn of them."""

ROW_INCHES = 0.22


class Row(NamedTuple):
    """Of ours and of peers by name what is drawn, each with its fifths, of a task at all its presets; nothing
    where it was not measured."""

    name: str
    mixer: str
    rates: Mapping[str, Sequence[Rate]]
    why: str


def bench_drawings(results: Sequence[Result], names: Sequence[str] = BENCH_NAMES) -> list[Drawing]:
    """One for each shape of kernels and of steps, and one of all tasks, where there are several rows."""
    found = [bench for kind in BENCHED if NAMES[kind] in names for bench in benches(results, kind)]
    return [_drawing(bench) for bench in found if len(set(map(_name, bench.results))) > 1]


def _drawing(bench: Bench) -> Drawing:
    timing = (
        REPLAYED
        if any(seconds_of(result, OURS, *_path(bench, REPLAYED)) for result in bench.results)
        else AS_CALLED
    )
    by_name: dict[str, list[Result]] = {}
    for result in bench.results:
        by_name.setdefault(_name(result), []).append(result)
    rows = sorted((_row(name, members, bench, timing) for name, members in by_name.items()), key=_best)
    about = f"tokens per second, {HOW[timing]}"

    def draw(figure: Figure) -> bool:
        figure.set_size_inches(PANEL_INCHES + 3, 1.2 + ROW_INCHES * len(rows))
        _dots(figure.subplots(), rows, bench.peers, about)
        titled(figure, f"{_TITLE[bench.kind]}: {bench.about}")
        return True

    each = " A dot for each preset of a task." if bench.kind == DRAW else ""
    sides = (
        f" Hollow: {', '.join(bench.peers)}, in turn with ours."
        if any(set(row.rates) - {OURS} for row in rows)
        else ""
    )
    caption = (
        f"{_TITLE[bench.kind]}: {about}. Bars lie between the fifths.{each}{sides} At {bench.about};"
        f" {commits(bench.results)}."
    )
    return Drawing(bench.slug, draw, caption, fingerprint(bench.results))


_TITLE = {OPERATION: "Kernels, forward and backward", STEP: "Training steps", DRAW: "Drawing examples"}


def _path(bench: Bench, timing: str) -> tuple[str, ...]:
    """Where in a side the seconds lie that are drawn."""
    return ("both", timing) if bench.kind == OPERATION else (timing,)


def _name(result: Result) -> str:
    """Of its row: a task has one for all its presets."""
    if result["kind"] == DRAW:
        return str(result["bench"]["task"]["name"])
    replicas = result["bench"].get("replicas", 1)
    return f"{result['label']} x{replicas}" if replicas > 1 else str(result["label"])


def _row(name: str, members: Sequence[Result], bench: Bench, timing: str) -> Row:
    path, first = _path(bench, timing), members[0]
    every = {
        side: [rate_of(seconds_of(result, side, *path), tokens_of(result)) for result in members]
        for side in (OURS, *bench.peers)
    }
    rates = {
        side: found
        for side, these in every.items()
        if (found := [rate for rate in these if rate is not None])
    }
    mixer = first["bench"]["model"]["layers"][0]["mixer"] if bench.kind == STEP else first["label"]
    return Row(
        name, mixer, rates, next((result["status"] for result in members if result["status"] != "ok"), "")
    )


def _best(row: Row) -> float:
    return median(rate.median for rate in row.rates[OURS]) if OURS in row.rates else 0.0


def _dots(axes: Axes, rows: Sequence[Row], peers: Sequence[str], label: str) -> None:
    """The fastest above; what was not measured is named in grey, with what became of it."""
    colours = colours_of([row.mixer for row in rows])
    for height, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        for side, rate in ((side, rate) for side, rates in row.rates.items() for rate in rates):
            mark = "o" if side == OURS else _PEER_MARKS[peers.index(side) % len(_PEER_MARKS)]
            axes.plot([rate.low, rate.high], [height] * 2, color=colour, linewidth=0.9)
            axes.plot(
                [rate.median],
                [height],
                marker=mark,
                markersize=5,
                color=colour,
                markerfacecolor=colour if side == OURS else "white",
            )
    axes.set_yticks(
        range(len(rows)),
        [f"{row.name}: {row.why or 'not measured'}" if OURS not in row.rates else row.name for row in rows],
        fontsize=8,
    )
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color("#222222" if OURS in row.rates else MISSING)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set(xscale="log", xlabel=label)
    rate_ticks(axes)
    shown = [side for side in peers if any(side in row.rates for row in rows)]
    if shown:
        own = Line2D([], [], marker="o", linestyle="", color=GUIDE, label=OURS)
        theirs = [
            Line2D(
                [],
                [],
                marker=_PEER_MARKS[peers.index(side) % len(_PEER_MARKS)],
                linestyle="",
                color=GUIDE,
                markerfacecolor="white",
                label=side,
            )
            for side in shown
        ]
        axes.legend(handles=[own, *theirs], loc="lower right", fontsize=8)


_PEER_MARKS = ("o", "s", "^", "D")
