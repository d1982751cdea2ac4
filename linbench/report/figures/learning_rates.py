"""Accuracy against the learning rate, from the runs that chose it."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import Rectangle

from linbench.experiments.learning_rates import HALF_DECADE, learning_rate
from linbench.report.figure import ComparisonFigure
from linbench.report.style.colors import Style, ink
from linbench.report.style.labels import GUIDE, MISSING
from linbench.report.style.layout import fit_rows
from linbench.report.style.lines import styled
from linbench.results.comparison import Comparison, Row
from linbench.results.record import EDGE, UNTRIED, learning_rate_of, seed_of
from linbench.results.scores import LEARNED, above_chance, validation_accuracy
from linbench.results.searches import highest_trials

Tried = list[tuple[float, list[float]]]
"""Rising learning rates, each with the accuracies of the tuning seeds."""

PALEST, DARKEST = 0.98, 0.7
"""The greys of the accuracies 0 and 1, on which text, lines and frames can be seen."""

UNDER = 0.33
"""The distance of the line under a number from the middle of its cell, downwards and to either side."""

HOLLOW_POINTS, WITHIN_POINTS = 3.2, 1.6
"""The thickness of a hollow line, and of the white in it."""

WIDE = 7
"""The most rates whose names below the axis have the usual size."""

ROOM = 17
"""The columns for which a sheet of the usual width has room: a quarter decade each from 1e-5 to 0.1."""

COLUMN_INCHES = 0.26
"""The width that is added for each column more."""

GUESSED = 0.05
"""The share of the way from chance to 1 that the best rate must exceed, or its choice is a guess."""


class Window(NamedTuple):
    """The learning rates around the best at which the mean accuracy reaches `LEARNED`, as powers of ten.

    Its ends are where straight lines between rates that were tried cross `LEARNED`, or the first or last rate
    of all, where the window is open.
    """

    low: float
    high: float
    open: bool

    def __str__(self) -> str:
        width = f"{self.high - self.low:.1f}"
        if self.open:
            return f"≥ {width}"
        return "< 0.1" if width == "0.0" else width


Searched = tuple[Row, Style, Tried]
"""A model whose learning rate was searched for."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a row of cells for every model, the widest window above; models without a search stand below."""
    fit_rows(sheet, [row.label for row in comparison.rows], inches=0.21)
    every = [(row, style, tried(row)) for row, style in styled(comparison.rows)]
    found = sorted((one for one in every if one[2]), key=lambda one: _rank(one[2]))
    if not found:
        return False
    missing = [row for row, _, rates in every if not rates]
    axes = sheet.add_subplot()
    rates = columns({rate for *_, own in found for rate, _ in own})
    sheet.set_figwidth(sheet.get_figwidth() + COLUMN_INCHES * max(0, len(rates) - ROOM))
    for height, searched in enumerate(found):
        _draw_row(axes, rates, height, searched)
    axes.text(
        len(rates) - 0.3,
        len(found) - 0.35,
        "width of the frame\nin decades",
        fontsize=7.5,
        color=GUIDE,
        va="bottom",
    )
    middle = len(rates) / 2 - 0.5
    for height in range(-len(missing), 0):
        axes.text(
            middle,
            height,
            "not searched for",
            color=MISSING,
            style="italic",
            fontsize=7.5,
            ha="center",
            va="center",
        )
    _label_axes(axes, rates, found, missing)
    return True


def columns(tried_rates: Collection[float]) -> list[float]:
    """Return the rates that have a column: those that were tried.

    Where some of them lie between those of a grid of half decades, every quarter decade has a column, so that
    columns are as far apart as rates are.
    """
    steps = [_quarter_decades(rate) for rate in tried_rates]
    whole = [n for n in steps if n is not None]
    if len(whole) < len(steps) or all(n % HALF_DECADE == 0 for n in whole):
        return sorted(tried_rates)
    return [learning_rate(n) for n in range(min(whole), max(whole) + 1)]


def _quarter_decades(rate: float) -> int | None:
    """Return the number of a rate in quarter decades; None for one that no search tries."""
    n = round(4 * math.log10(rate))
    return n if learning_rate(n) == rate else None


def _draw_row(axes: Axes, rates: Sequence[float], height: int, searched: Searched) -> None:
    """Draw the cells of a model, the line under the chosen rate, and the frame around the window."""
    row, style, own = searched
    chosen = learning_rate_of(row.results[0])
    doubted = in_doubt(row, own)
    for rate, values in own:
        _cell(axes, rates.index(rate), height, values, bold=rate == chosen and not doubted)
    if chosen in dict(own):
        _underline(axes, rates.index(chosen), height, style.colour, hollow=doubted)
    _frame(axes, rates, height, own, style)


def _label_axes(
    axes: Axes, rates: Sequence[float], found: Sequence[Searched], missing: Sequence[Row]
) -> None:
    """Name the models and the rates, and explain the lines and frames."""
    names = [row.label for row in [*missing, *(row for row, *_ in found)]]
    axes.set_yticks(range(-len(missing), len(found)), names, fontsize=7.5)
    colours = [*[MISSING] * len(missing), *(ink(style.colour) for _, style, _ in found)]
    for colour, tick in zip(colours, axes.get_yticklabels(), strict=True):
        tick.set_color(colour)
    size = 7.5 if len(rates) <= WIDE else 6.5
    axes.set_xticks(range(len(rates)), _names(rates), fontsize=size)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"learning rate\nunderlined: chosen, hollow: in doubt; frame: accuracy ≥ {LEARNED:g}")
    axes.set(xlim=(-0.55, len(rates) - 0.45), ylim=(-len(missing) - 0.55, len(found) - 0.45))


def _names(rates: Sequence[float]) -> list[str]:
    """Return the names of columns; those between half decades stand a line lower, as names are wide."""
    names = []
    for rate in rates:
        between = (_quarter_decades(rate) or 0) % HALF_DECADE
        names.append(f"\n{_power(rate)}" if between else _power(rate))
    return names


def _power(rate: float) -> str:
    """Return a rate as `3.16e-4`."""
    digits, _, exponent = f"{rate:.2e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


def _rounded(mean: float) -> str:
    """Return a mean in hundredths; one below `LEARNED` is never rounded up to it."""
    return f"{mean:.2f}" if mean >= LEARNED or round(mean, 2) < LEARNED else f"<{LEARNED:.2f}"


def _cell(axes: Axes, place: int, height: int, values: Sequence[float], *, bold: bool) -> None:
    for strip, value in enumerate(sorted(values)):
        grey = PALEST + (DARKEST - PALEST) * value
        bottom = height - 0.45 + 0.9 * strip / len(values)
        axes.add_patch(
            Rectangle((place - 0.47, bottom), 0.94, 0.9 / len(values), facecolor=(grey,) * 3, linewidth=0)
        )
    said, weight = _rounded(sum(values) / len(values)), "bold" if bold else "normal"
    axes.text(
        place, height, said, fontsize=6.5, ha="center", va="center_baseline", color="#222222", weight=weight
    )


def _underline(axes: Axes, place: int, height: int, colour: str, *, hollow: bool) -> None:
    strokes = [(colour, HOLLOW_POINTS), ("white", WITHIN_POINTS)] if hollow else [(colour, 1.3)]
    for own, points in strokes:
        axes.plot([place - UNDER, place + UNDER], [height - UNDER] * 2, color=own, linewidth=points)


def _frame(axes: Axes, rates: Sequence[float], height: int, of: Tried, style: Style) -> None:
    """Draw a frame around the cells in the window, and write how wide it is."""
    found = window(of)
    axes.text(len(rates) - 0.3, height, str(found or "–"), fontsize=7.5, va="center", color=ink(style.colour))
    if found:
        inside = [
            rates.index(rate) for rate, _ in of if found.low - 1e-9 <= math.log10(rate) <= found.high + 1e-9
        ]
        axes.add_patch(
            Rectangle(
                (inside[0] - 0.48, height - 0.45),
                inside[-1] - inside[0] + 0.96,
                0.9,
                facecolor="none",
                edgecolor=style.colour,
                linewidth=1.3,
                zorder=3,
            )
        )


def _rank(of: Tried) -> tuple[float, float]:
    found = window(of)
    return (found.high - found.low if found else -1.0, max(sum(values) / len(values) for _, values in of))


def tried(row: Row) -> Tried:
    """Return the accuracies of the tuning runs of a model by learning rate."""
    found: dict[float, list[float]] = {}
    for result in sorted(highest_trials(row), key=seed_of):
        if (value := validation_accuracy(result)) is not None:
            found.setdefault(learning_rate_of(result), []).append(value)
    return sorted(found.items())


def in_doubt(row: Row, of: Tried) -> bool:
    """Return whether the chosen rate is not known to be the best.

    That is so if its runs are marked, as it was the first or last rate tried or beside one that could not be
    tried, or if it is a guess, as no rate led far from chance. A guess takes part in verdicts all the same: a
    model that learns at none of the rates was given its chance.
    """
    best = max(sum(values) / len(values) for _, values in of)
    marked = any(mark in (EDGE, UNTRIED) for result in row.results for mark in result["marks"])
    return marked or above_chance(best, row.results[0]["chance"]) <= GUESSED


def window(of: Tried) -> Window | None:
    """Return the window around the best rate; None where not even that one reaches `LEARNED`."""
    means = [(math.log10(rate), sum(values) / len(values)) for rate, values in of]
    best = max(range(len(means)), key=lambda i: means[i][1])
    if means[best][1] < LEARNED:
        return None
    (low, open_low), (high, open_high) = _edge(means[best::-1]), _edge(means[best:])
    return Window(low, high, open_low or open_high)


def _edge(means: Sequence[tuple[float, float]]) -> tuple[float, bool]:
    """Return where the line first falls below `LEARNED`, or its last point, and whether it never falls."""
    for (at, above), (beyond, value) in pairwise(means):
        if value < LEARNED:
            return at + (beyond - at) * (above - LEARNED) / (above - value), False
    return means[-1][0], True


FIGURE = ComparisonFigure(
    name="learning-rates",
    order=20,
    draw=draw,
    marks_doubt=False,
    tuning=True,
    applies=lambda comparison: any(row.tuning for row in comparison.rows),
    caption="""Validation accuracy of the runs that chose the learning rate. A row is a model, the one with
        the widest window at the top, and a cell is a learning rate that was tried. The darker a cell, the
        higher the accuracy, with a strip for each tuning seed; the number is their mean, which is never
        rounded up to 0.90. Of rates that were tried on several rungs of a ladder the highest counts. The
        chosen rate is bold and underlined. If the choice is in doubt, it is not bold
        and its line is hollow: it is the lowest or the highest rate that was tried, a rate next to it could
        not be tried, or no rate came further than a twentieth of the way from chance to 1. The frame is the
        window around the best rate in which accuracy is at least 0.9. The number at the right is its width in
        decades, with straight lines drawn between the rates that were tried; with ≥ the window is still open
        at the last of them.""",
)
