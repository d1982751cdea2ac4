"""Accuracy of every model, where models are many."""

from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from linbench.report.figure import ComparisonFigure
from linbench.report.style.colors import ink
from linbench.report.style.labels import CHANCE, CHANCE_LINE, GUIDE, MAX_LINES_PER_PANEL, MISSING, unmeasured
from linbench.report.style.layout import fit_rows
from linbench.report.style.lines import marker_face
from linbench.report.style.sizes import Model, by_name
from linbench.report.style.wording import HOLLOW, SHADES
from linbench.results.comparison import Comparison

BETWEEN = 0.36
"""The distance from the first to the last size of one model in its row."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a row for every model, the best above; below, in grey, those without an accuracy."""
    models = by_name(comparison)
    means = {name: [row.mean or 0.0 for row in model.measured] for name, model in models.items()}
    if sum(map(bool, means.values())) < 2:
        return False
    fit_rows(sheet, [row.label for row in comparison.rows])
    axes = sheet.add_subplot()
    order = sorted(means, key=lambda name: fmean(means[name]) if means[name] else -1.0)
    widths = sorted({row.width for model in models.values() for row in model.measured})
    for height, name in enumerate(order):
        _draw_row(axes, name, models[name], height, widths)
    axes.set_yticks(range(len(order)), order, fontsize=7.5)
    for name, tick in zip(order, axes.get_yticklabels(), strict=True):
        tick.set_color(ink(models[name].style.colour) if models[name].measured else MISSING)
    axes.axvline(comparison.results[0]["chance"], **CHANCE_LINE)
    axes.set(xlabel=f"test accuracy; {CHANCE}", xlim=(-0.02, 1.04), ylim=(-0.7, len(order) - 0.3))
    if len(widths) > 1:
        _legend(sheet, widths)
    return True


def _draw_row(axes: Axes, name: str, model: Model, height: int, widths: Sequence[int]) -> None:
    """Draw a line of dots for each size of a model."""
    rows = sorted(model.measured, key=lambda row: (row.width, row.state_floats))
    for place, row in enumerate(rows):
        size, colour = _dot_size(widths.index(row.width)), model.style.colour
        at = height + BETWEEN * (place - (len(rows) - 1) / 2) / max(1, len(rows) - 1)
        seeds = row.accuracies
        axes.plot([min(seeds), max(seeds)], [at] * 2, color=colour, linewidth=0.7, alpha=0.6)
        axes.plot(
            seeds, [at] * len(seeds), linestyle="", marker="o", markersize=size / 2, color=colour, alpha=0.5
        )
        face = marker_face(row, colour)
        axes.plot(
            [row.mean or 0.0],
            [at],
            marker="o",
            markersize=size,
            color=colour,
            markerfacecolor=face,
            alpha=0.9,
        )
    absent = [unmeasured(row).removeprefix(f"{name}: ") for row in model.rows if row.mean is None]
    if absent:
        words = "; ".join(absent)
        axes.text(0.5, height, words, color=MISSING, style="italic", fontsize=7.5, ha="center", va="center")


def _legend(sheet: Sheet, widths: Sequence[int]) -> None:
    dots = []
    for place, width in enumerate(widths):
        size, label = _dot_size(place), f"width {width}"
        dots.append(Line2D([], [], linestyle="", marker="o", markersize=size, color=GUIDE, label=label))
    sheet.legend(handles=dots, loc="outside lower right", ncols=len(dots), fontsize=7.5, handletextpad=0.1)


def _dot_size(place: int) -> float:
    """Return the size of the dot of a width, by its place among all widths."""
    return 4.0 + 2 * place


FIGURE = ComparisonFigure(
    name="models",
    order=90,
    draw=draw,
    applies=lambda comparison: len(comparison.rows) > MAX_LINES_PER_PANEL,
    uses_tests=True,
    averages_tests=True,
    shows_chance=True,
    caption=f"""Test accuracy of every model, the best at the top. If there are several tests, accuracy is
        their mean. A small dot is one seed and a large dot the mean over seeds. {HOLLOW} A model of several
        sizes has a line of dots for each size: greater widths have larger dots and stand above smaller ones,
        and of one width a larger state stands above a smaller one. {SHADES}""",
)
