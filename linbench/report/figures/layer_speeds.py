"""Stored speeds of layers as figures: against length, by the form of their kernels, and recall against
them."""

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from linbench.models.base import GENERATIONS
from linbench.report.figure import Drawing
from linbench.report.figures.kernel_forms import _of_forms
from linbench.report.figures.recall_speed import _of_recall, tradeoffs
from linbench.report.figures.speed_axes import Line, against_length
from linbench.report.style.colors import generations, styles_of
from linbench.report.style.labels import CROWD, beside, titled
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.style.wording import GROWTH, NOTES, TIMING, TITLES
from linbench.report.tables.comparison import commits
from linbench.report.tables.kernel_forms import ladders
from linbench.results.comparison import Comparison
from linbench.results.record import Result, fingerprint
from linbench.results.speed_labels import HOW, OURS
from linbench.results.speeds import Series, Speeds, speeds

NAMES = ("speed", "forms", "recall-speed")
"""Of the figures that are drawn of speeds."""


def speed_drawings(
    results: Sequence[Result], comparisons: Sequence[Comparison], names: Sequence[str] = NAMES
) -> list[Drawing]:
    """All that can be drawn."""
    found: list[Drawing] = []
    if "speed" in names:
        found += [drawing for these in speeds(results) if len(these.lengths) > 1 for drawing in _of(these)]
    if "forms" in names:
        found += [_of_forms(ladder) for ladder in ladders(results)]
    if "recall-speed" in names:
        found += [_of_recall(tradeoff) for tradeoff in tradeoffs(results, comparisons)]
    return found


def _of(these: Speeds) -> Iterable[Drawing]:
    """Of one question, against length: every way it was timed; of memory, the peak and the state side by
    side."""
    about = f"{NOTES[these.question]}"
    if these.question == "memory":
        sizes = {
            "peak of training, MiB": (("sides", OURS, "peak_bytes"), 2**20),
            "state of one sequence, KiB": (("state", "bytes"), 2**10),
        }
        panels = {
            title: [
                _sizes(series, pick, unit)
                for series in these.series
                if not all(map(series.outdated, series.results))
            ]
            for title, (pick, unit) in sizes.items()
        }
        yield _drawing(these, "bytes", panels, f"{about} {_where(these)}")
        return
    for timing in these.timings:
        title = f"{TITLES[these.question].lower()}, tokens per second\n{HOW[timing]}"
        panels = {title: [_line(series, timing) for series in these.series if series.rates(timing)]}
        yield _drawing(
            these,
            timing,
            panels,
            f"{about} {TIMING[timing]} Bands lie between the fifths. {GROWTH} It stands beside each name."
            f" {_where(these)}",
        )


def _line(series: Series, timing: str) -> Line:
    rates, growth = series.rates(timing), series.growth(timing)
    exponent = "" if growth is None else f"  T^{growth:z.2f}"
    points, bands = (
        {at: rate.median for at, rate in rates.items()},
        {at: (rate.low, rate.high) for at, rate in rates.items()},
    )
    return Line(f"{series.name}{exponent}{_cut_short(series)}", series.mixer, points, bands)


def _sizes(series: Series, pick: tuple[str, ...], unit: int) -> Line:
    return Line(
        f"{series.name}{_cut_short(series)}",
        series.mixer,
        {at: value / unit for at, value in series.numbers(pick).items()},
    )


def _cut_short(series: Series) -> str:
    """What keeps a line from going on, in a word: `, oom at 65,536`."""
    failed = {at: result["status"] for at, result in series.results.items() if result["status"] != "ok"}
    return f", {failed[min(failed)]} at {min(failed):,}" if failed else ""


def _drawing(these: Speeds, of: str, panels: dict[str, list[Line]], caption: str) -> Drawing:
    """Panels side by side, where lines are a crowd a row of them for each generation."""

    def draw(figure: Figure) -> bool:
        parts = _parts([line.mixer for line in max(panels.values(), key=len)])
        count = len(parts) * len(panels)
        columns = max(len(panels), min(2, count))
        rows = -(-count // columns)
        figure.set_size_inches((PANEL_INCHES + 1.6) * columns, 3.3 * rows)
        axes = list(
            figure.subplots(
                rows, columns, squeeze=False, sharex=True, sharey="col" if len(panels) > 1 else "all"
            ).flat
        )
        for empty in axes[count:]:
            figure.delaxes(empty)
        ends, places = [], iter(axes)
        for name, mixers in parts.items():
            for title, lines in panels.items():
                own = [line for line in lines if line.mixer in mixers]
                place = next(places)
                place.set_title(name, fontsize="medium", loc="left")
                # there may be no panel below; panels of a row stand far apart
                place.tick_params(labelbottom=True, labelleft=True)
                ends.append(
                    (place, against_length(place, own, styles_of([line.mixer for line in own]), title))
                )
        for place, of_lines in ends:
            beside(place, of_lines)
        titled(figure, f"{TITLES[these.question]}: {these.about}")
        return True

    return Drawing(these.slug(of), draw, caption, fingerprint(these.results))


def _parts(mixers: Sequence[str]) -> dict[str, set[str]]:
    """The mixers of lines; where these are a crowd by their generations, the small ones together."""
    if len(mixers) <= CROWD:
        return {"": set(mixers)}
    own = {mixer: generations().get(mixer, "of your own") for mixer in mixers}
    order = [
        name for name in [*GENERATIONS, *sorted(set(own.values()) - set(GENERATIONS))] if name in own.values()
    ]
    small = [name for name in order if sum(own[mixer] == name for mixer in mixers) <= CROWD // 2]
    parts = {", ".join(small): {mixer for mixer in mixers if own[mixer] in small}} if small else {}
    return parts | {
        name: {mixer for mixer in mixers if own[mixer] == name} for name in order if name not in small
    }


def _where(these: Speeds) -> str:
    return f"At {these.about}; {commits(these.results)}."
