"""What decides a claim as a figure: every measure with its seeds, and the rules above."""

from collections.abc import Mapping, Sequence
from math import inf
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from linbench.claims.claim import Claim
from linbench.claims.evidence import SHARES, Figure
from linbench.claims.page import RULES, about, said, slug, where
from linbench.claims.verdict import Found, Ruling, Verdict
from linbench.common.hashing import digest
from linbench.experiments.pattern import parse_pattern
from linbench.report.figure import Drawing
from linbench.report.figures.speed_axes import short
from linbench.report.style.colors import ink
from linbench.report.style.labels import MISSING, colours_of

WIDTH_INCHES, ROW_INCHES, PANEL_INCHES = 8.0, 0.24, 0.75
LETTERS, LABEL = 118, 58
"""Of a line of what stands above, and of what stands beside an axis."""

FAR = 20.0
"""So many times as large as the least the largest may be, or the axis is logarithmic."""


def drawings(verdict: Verdict) -> list[Drawing]:
    """One for each kind of device by which something was found."""
    return [_drawing(verdict.claim, ruling) for ruling in verdict.rulings if ruling.seen]


def _drawing(claim: Claim, ruling: Ruling) -> Drawing:
    panels = _panels(claim, ruling.figures)
    heights = [PANEL_INCHES + ROW_INCHES * len(names) for names in panels.values()]
    told = [f"{name.lower()}: {words}" for name, words in about(claim).items() if name in RULES]
    head = [fill(line, LETTERS) for line in (f"{claim.id}: {claim.text.says} {where(ruling)}.", *told)]

    # last bits of what needs no training are a machine's own
    shown = {name: [str(found), found.out_of] for name, found in ruling.figures.items()}

    def draw(sheet: Sheet) -> bool:
        lines = sum(line.count("\n") + 1 for line in head)
        sheet.set_size_inches(WIDTH_INCHES, 0.17 * lines + 0.3 + sum(heights))
        places = sheet.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights}).flat
        for axes, (unit, names) in zip(places, panels.items(), strict=True):
            _dots(axes, claim, {name: ruling.figures[name] for name in names}, unit)
        sheet.suptitle("\n".join(head), x=0.01, ha="left", fontsize="small", linespacing=1.35)
        return True

    caption = (
        f"{claim.id}, {where(ruling)}. A small dot is a seed, hollow one that was still getting better or"
        " decides nothing. The bar is the mean ± standard deviation of those that count, where it says so"
        " the best of them, of a speed the median between its fifths; a dotted line is what lies between how"
        " good it was and how good more training could make it. In grey what has no figure."
    )
    return Drawing(slug(claim, ruling), draw, caption, digest({"rules": told, "figures": shown}))


def _panels(claim: Claim, figures: Mapping[str, Found]) -> dict[str, list[str]]:
    """Measures that decide it by what they are of: each has an axis of its own."""
    found: dict[str, list[str]] = {}
    for name in claim.deciding:
        measure = claim.measures[name]
        unit = (
            f"largest {measure.along.removeprefix('task.')} with {measure.reaching:g}"
            if measure.reaching is not None
            else measure.of
        )
        if name in figures:
            found.setdefault(unit, []).append(name)
    return found


def _dots(axes: Axes, claim: Claim, figures: Mapping[str, Found], unit: str) -> None:
    """The first above."""
    names = list(figures)[::-1]
    models = [claim.measures[name].model for name in names]
    colours = [
        ink(colour)
        for colour in colours_of([parse_pattern(model)[0].name if model else "" for model in models])
    ]
    numbers = [value for name in names for value, _ in _seeds(figures[name]) if value != inf]
    for height, (name, colour) in enumerate(zip(names, colours, strict=True)):
        found = figures[name]
        for value, counts in _seeds(found):
            if value != inf:
                axes.plot(
                    [value],
                    [height],
                    marker="o",
                    markersize=3.4,
                    color=colour,
                    markerfacecolor=colour if counts else "white",
                    linestyle="",
                    zorder=3,
                )
        if found.bounded:
            axes.plot(found.span, [height] * 2, color=colour, linewidth=1.0, linestyle=":")
        elif _has_value(found) and found.value != inf:
            axes.plot(
                [found.value - found.spread, found.value + found.spread],
                [height] * 2,
                color=colour,
                linewidth=1.0,
            )
            axes.plot([found.value], [height], marker="|", markersize=11, markeredgewidth=2.0, color=colour)
        words = (
            str(found) if _has_value(found) else found.out_of if isinstance(found, Figure) else found.trouble
        )
        axes.text(
            1.01,
            height,
            fill(words, 46, max_lines=1, placeholder=" ..."),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=7.5,
            color=colour if _has_value(found) else MISSING,
        )
    axes.set_yticks(range(len(names)), [_label(claim, name) for name in names], fontsize=7.5)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_color("#222222" if _has_value(figures[name]) else MISSING)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlabel(unit, fontsize=8)
    axes.tick_params(axis="x", labelsize=7.5)
    if unit in SHARES:
        axes.set_xlim(min([-0.03, *(value - 0.03 for value in numbers)]), max([1.03, *numbers]))
    elif numbers and min(numbers) > 0 and max(numbers) > FAR * min(numbers):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=10))
        axes.xaxis.set_minor_formatter(NullFormatter())
    # after the scale, which brings its own
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _label(claim: Claim, name: str) -> str:
    """The name in the rules, and what it is of but for what the axis says."""
    return (
        f"{name} "
        f" ({fill(said(claim, name).replace(f', {claim.measures[name].of}', ''), LABEL, max_lines=1, placeholder=' ...')})"
    )


def _seeds(found: Found) -> Sequence[tuple[float, bool]]:
    """What each came to, and whether it counts."""
    if not isinstance(found, Figure):
        return []
    return [
        *((value, True) for value in found.values.values()),
        *((aside.value, False) for aside in found.aside.values() if aside.value is not None),
    ]


def _has_value(found: Found) -> bool:
    return found.bounded or bool(found.values) if isinstance(found, Figure) else found.rate is not None
