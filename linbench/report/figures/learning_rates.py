"""Accuracy against the learning rate, from the runs that chose it."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from linbench.report.figures.curves import styled
from linbench.report.style.colors import Style, ink
from linbench.report.style.labels import GUIDE, MISSING
from linbench.results.comparison import Comparison, Row
from linbench.results.record import EDGE, UNTRIED, rate_of, seed_of
from linbench.results.scores import LEARNED, above_chance, validation_accuracy

Tried = list[tuple[float, list[float]]]
"""Learning rates in their order, with the accuracy of every tuning seed."""

PALEST, DARKEST = 0.98, 0.7
"""Greys of accuracies 0 and 1, on which words, lines and frames can be seen."""

UNDER = 0.33
"""Of a cell: how far below its middle the line under a number is, and how far it goes either way."""

HOLLOW_POINTS, WITHIN_POINTS = 3.2, 1.6
"""The thickness of such a line where it is hollow, and of the white in it."""

WIDE = 7
"""Of more rates, words below them stand too near to each other unless they are smaller."""

GUESSED = 0.05
"""Where the best of all rates led no further from chance to 1, that it was chosen says little."""


class Window(NamedTuple):
    """The learning rates around the best at which `LEARNED` is reached in the mean, as powers of ten:
    crossings of straight lines between rates that were tried, or the last of them where the window is open
    there."""

    low: float
    high: float
    open: bool

    def __str__(self) -> str:
        width = f"{self.high - self.low:.1f}"
        return f"≥ {width}" if self.open else "< 0.1" if width == "0.0" else width


def by_rate(axes: Axes, comparison: Comparison) -> bool:
    """A row for every model that was searched for, the widest window above: a cell for every rate tried, the
    darker the better, with a strip for each tuning seed and their mean in words, bold and underlined for the
    rate that was chosen, or with a hollow line where it is in doubt; a frame around the window, its width in
    decades beside it."""
    every = [(row, style, tried(row)) for row, style in styled(comparison.rows)]
    found = sorted((one for one in every if one[2]), key=lambda one: _rank(one[2]))
    missing = [row for row, _, of in every if not of]
    if not found:
        return False
    rates = sorted({rate for *_, of in found for rate, _ in of})
    for height, (row, style, of) in enumerate(found):
        chosen = rate_of(row.results[0])
        doubted = in_doubt(row, of)
        for rate, values in of:
            _cell(axes, rates.index(rate), height, values, bold=rate == chosen and not doubted)
        if chosen in dict(of):
            _underline(axes, rates.index(chosen), height, style.colour, hollow=doubted)
        _frame(axes, rates, height, of, style)
    axes.text(
        len(rates) - 0.3,
        len(found) - 0.35,
        "width of the frame\nin decades",
        fontsize=7.5,
        color=GUIDE,
        va="bottom",
    )
    for height in range(-len(missing), 0):
        axes.text(
            len(rates) / 2 - 0.5,
            height,
            "not searched for",
            color=MISSING,
            style="italic",
            fontsize=7.5,
            ha="center",
            va="center",
        )
    axes.set_yticks(
        range(-len(missing), len(found)),
        [row.label for row in [*missing, *(row for row, *_ in found)]],
        fontsize=7.5,
    )
    colours = [*[MISSING] * len(missing), *(ink(style.colour) for _, style, _ in found)]
    for colour, tick in zip(colours, axes.get_yticklabels(), strict=True):
        tick.set_color(colour)
    axes.set_xticks(
        range(len(rates)), [_power(rate) for rate in rates], fontsize=7.5 if len(rates) <= WIDE else 6.5
    )
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"learning rate\nunderlined: chosen, hollow: in doubt; frame: accuracy ≥ {LEARNED:g}")
    axes.set(xlim=(-0.55, len(rates) - 0.45), ylim=(-len(missing) - 0.55, len(found) - 0.45))
    return True


def _power(rate: float) -> str:
    """3.16e-4"""
    digits, _, exponent = f"{rate:.2e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


def _rounded(mean: float) -> str:
    """To hundredths, and below `LEARNED` never up to it."""
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
    for of, points in ((colour, HOLLOW_POINTS), ("white", WITHIN_POINTS)) if hollow else ((colour, 1.3),):
        axes.plot([place - UNDER, place + UNDER], [height - UNDER] * 2, color=of, linewidth=points)


def _frame(axes: Axes, rates: Sequence[float], height: int, of: Tried, style: Style) -> None:
    """Around the cells in the window, and how wide it is."""
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
    """What the tuning runs of a model say of every rate that they tried."""
    found: dict[float, list[float]] = {}
    for result in sorted(row.tuning, key=seed_of):
        if (value := validation_accuracy(result)) is not None:
            found.setdefault(rate_of(result), []).append(value)
    return sorted(found.items())


def in_doubt(row: Row, of: Tried) -> bool:
    """Whether the rate that was chosen is not known to be the best: it is marked as one on an edge or beside
    one that could not be tried, or a guess, as no rate led far from chance. A guess takes part in verdicts:
    what learns at no rate that was tried has been given its chance."""
    best = max(sum(values) / len(values) for _, values in of)
    marked = any(mark in (EDGE, UNTRIED) for result in row.results for mark in result["marks"])
    return marked or above_chance(best, row.results[0]["chance"]) <= GUESSED


def window(of: Tried) -> Window | None:
    """Around the best rate; None where not even that one reaches `LEARNED`."""
    means = [(math.log10(rate), sum(values) / len(values)) for rate, values in of]
    best = max(range(len(means)), key=lambda i: means[i][1])
    if means[best][1] < LEARNED:
        return None
    (low, open_low), (high, open_high) = _edge(means[best::-1]), _edge(means[best:])
    return Window(low, high, open_low or open_high)


def _edge(means: Sequence[tuple[float, float]]) -> tuple[float, bool]:
    """How far from the first, which is above, the line stays above; and whether it never went below."""
    for (at, above), (beyond, value) in pairwise(means):
        if value < LEARNED:
            return at + (beyond - at) * (above - LEARNED) / (above - value), False
    return means[-1][0], True
