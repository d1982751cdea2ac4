"""The figure of a claim: every measure with its seeds, below the rules."""

from collections.abc import Mapping, Sequence
from math import inf
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from linbench.claims.claim import Claim
from linbench.claims.evidence import Evidence
from linbench.claims.measure import Measure
from linbench.claims.page import RULES, about, has_figure, heading, slug
from linbench.claims.scores import SHARES
from linbench.claims.verdict import Ruling, Verdict
from linbench.common.hashing import digest
from linbench.experiments.system import parse_layers
from linbench.report.figure import Drawing
from linbench.report.style.axes import log_ticks, si_prefix
from linbench.report.style.colors import ink
from linbench.report.style.labels import MISSING, colours_of

WIDTH_INCHES = 8.0
ROW_INCHES = 0.24
PANEL_INCHES = 0.75
"""The height of a panel without its rows."""
LINE_INCHES = 0.17
"""The height of a line of the title."""

TITLE_LETTERS, LABEL_LETTERS, VALUE_LETTERS = 118, 58, 46
"""The longest lines of the title, of the labels of rows, and of the values beside them."""

SMALL, TINY = 8, 7.5
"""Font sizes in points, of labels of axes and of everything else."""

FAR = 20.0
"""An axis is logarithmic if its largest value is more than so many times the smallest."""

ROOM = 0.6
"""The width of an axis as a share of the usual one: names of measures and their values stand beside it."""

CAPTION = (
    "{claim}, {heading}. A small dot is a seed; a hollow one does not count, or does within bounds alone, as"
    " its run was still improving. The bar is the median, and the line goes from the lowest to the highest"
    " seed; for a speed, from the 20th to the 80th percentile of calls. A dotted line goes from the median of"
    " what was reached to that of the best that longer training could reach. Grey: no value."
)


def drawings(verdict: Verdict) -> list[Drawing]:
    """Return a figure for each kind of device that has results of the measures that decide."""
    return [
        _drawing(verdict.claim, ruling) for ruling in verdict.rulings if has_figure(verdict.claim, ruling)
    ]


def _drawing(claim: Claim, ruling: Ruling) -> Drawing:
    panels = _panels(claim, ruling.evidence)
    heights = [PANEL_INCHES + ROW_INCHES * len(measures) for measures in panels.values()]
    rules = [f"{name.lower()}: {words}" for name, words in about(claim).items() if name in RULES]
    statement = f"{claim.id}: {claim.text.says} {heading(ruling)}."
    title = "\n".join(fill(words, TITLE_LETTERS) for words in (statement, *rules))

    def draw(figure: Figure) -> bool:
        lines = title.count("\n") + 1
        figure.set_size_inches(WIDTH_INCHES, LINE_INCHES * lines + 0.3 + sum(heights))
        grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes, (unit, measures) in zip(grid.flat, panels.items(), strict=True):
            _draw_panel(axes, measures, ruling.evidence, unit)
        figure.suptitle(title, x=0.01, ha="left", fontsize="small", linespacing=1.35)
        return True

    # as words: the last digits of numbers that need no training differ from machine to machine
    shown = {name: [str(each), each.out_of] for name, each in ruling.evidence.items()}
    caption = CAPTION.format(claim=claim.id, heading=heading(ruling))
    return Drawing(slug(claim, ruling), draw, caption, digest({"rules": rules, "figures": shown}))


def _panels(claim: Claim, evidence: Mapping[str, Evidence]) -> dict[str, list[Measure]]:
    """Return the measures that decide a claim by their unit: each unit has an axis of its own."""
    by_unit: dict[str, list[Measure]] = {}
    for measure in claim.deciding:
        if measure.name in evidence:
            by_unit.setdefault(measure.unit, []).append(measure)
    return by_unit


def _draw_panel(axes: Axes, measures: Sequence[Measure], evidence: Mapping[str, Evidence], unit: str) -> None:
    """Draw the measures of one unit, the first at the top."""
    rows = measures[::-1]
    models = [parse_layers(measure.model)[0].name if measure.model else "" for measure in rows]
    colours = [ink(colour) for colour in colours_of(models)]
    for height, (measure, colour) in enumerate(zip(rows, colours, strict=True)):
        _draw_row(axes, height, evidence[measure.name], colour)
    axes.set_yticks(range(len(rows)), [_label(measure) for measure in rows], fontsize=TINY)
    for tick, measure in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color("#222222" if evidence[measure.name].has_value else MISSING)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel(unit, fontsize=SMALL)
    axes.tick_params(axis="x", labelsize=TINY)
    _scale(axes, [dot.value for each in rows for dot in evidence[each.name].dots if dot.value != inf], unit)


def _draw_row(axes: Axes, height: int, evidence: Evidence, colour: str) -> None:
    for value, counts in evidence.dots:
        if value != inf:
            face = colour if counts else "white"
            axes.plot(
                [value], [height], marker="o", markersize=3.4, color=colour, markerfacecolor=face,
                linestyle="", zorder=3,
            )  # fmt: skip
    if evidence.has_value and evidence.between.low != inf:
        median, ends = evidence.between, [end for end in evidence.spread if end != inf]
        axes.plot(ends, [height] * len(ends), color=colour, linewidth=1.0)
        axes.plot([median.low], [height], marker="|", markersize=11, markeredgewidth=2.0, color=colour)
        if not median.exact:
            axes.plot(median, [height] * 2, color=colour, linewidth=1.0, linestyle=":")
    words = str(evidence) if evidence.has_value else evidence.out_of
    axes.text(
        1.01,
        height,
        fill(words, VALUE_LETTERS, max_lines=2, placeholder=" ..."),
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=TINY,
        color=colour if evidence.has_value else MISSING,
    )


def _scale(axes: Axes, values: Sequence[float], unit: str) -> None:
    if unit in SHARES:
        axes.set_xlim(min([-0.03, *(value - 0.03 for value in values)]), max([1.03, *values]))
    elif values and min(values) > 0 and max(values) > FAR * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(log_ticks(*axes.get_xlim(), room=ROOM))
        axes.xaxis.set_minor_formatter(NullFormatter())
    # after the scale, which sets a formatter of its own
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si_prefix(value)))


def _label(measure: Measure) -> str:
    """Return the name in the rules and what it is, but for the quantity, which the axis names."""
    words = fill(measure.describe(of=False), LABEL_LETTERS, max_lines=1, placeholder=" ...")
    return f"{measure.name}  ({words})"
