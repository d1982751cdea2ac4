"""Learning times: the share of seeds that have not learned yet against tokens seen in training."""

from math import inf
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.axes import rate_ticks
from linbench.report.style.colors import Style, ink
from linbench.report.style.labels import MISSING, status_summary
from linbench.report.style.layout import fit_rows
from linbench.report.style.lines import marker_face, styled
from linbench.report.style.wording import HOLLOW, SHADES
from linbench.results.comparison import Comparison, Row
from linbench.results.learning_time import can_be_shown, largest_budget, learning_times, slowness
from linbench.results.survival import median, survival

THICKNESS = 0.84
"""The height of a band while no seed has learned, where rows are 1 apart."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a row for every model, the fastest above; below, in grey, those without a time.

    Curves in common axes would hide each other: they have few values, and fall at the same looks.
    """
    budget = largest_budget(comparison)
    fastest_first = sorted(styled(comparison.rows), key=lambda one: slowness(learning_times(one[0]), budget))
    rows = fastest_first[::-1]
    fit_rows(sheet, [row.label for row in comparison.rows])
    axes = sheet.add_subplot()
    first = min(result["curve"][0]["tokens"] for result in comparison.results if result["curve"])
    axes.set(xscale="log", xlim=(first / 2, budget), ylim=(-0.7, len(rows) - 0.3))
    for height, (row, style) in enumerate(rows):
        _draw_row(axes, row, style, height)
    axes.set_yticks(range(len(rows)), [row.label for row, _ in rows], fontsize=7.5)
    for (row, style), tick in zip(rows, axes.get_yticklabels(), strict=True):
        tick.set_color(ink(style.colour) if learning_times(row) else MISSING)
    axes.set_xlabel("tokens seen in training\nthickness: share of seeds that have not learned")
    axes.grid(visible=False, axis="y")
    rate_ticks(axes)
    return True


def _draw_row(axes: Axes, row: Row, style: Style, height: int) -> None:
    """Draw a band that grows thinner with every seed that learns, and the median with its interval."""
    times, (start, end) = learning_times(row), axes.get_xlim()
    if not times:
        words: dict[str, Any] = {
            "color": MISSING,
            "style": "italic",
            "fontsize": 7.5,
            "ha": "center",
            "va": "center",
        }
        axes.text(0.5, height, status_summary(row), transform=axes.get_yaxis_transform(), **words)
        return
    left, middle = survival(times), median(times)
    at, shares = [start, *left.times, end], [1.0, *left.shares]
    shares.append(shares[-1])
    bottom = height - THICKNESS / 2
    tops = [bottom + THICKNESS * share for share in shares]
    axes.fill_between(at, bottom, tops, step="post", color=style.colour, alpha=0.35, linewidth=0)
    if middle.low > 0 or middle.high < inf:
        ends = [min(max(value, start), end) for value in (middle.low, middle.high)]
        axes.plot(ends, [height] * 2, color=style.colour, linewidth=1)
    axes.plot(
        [min(middle.time, end)],
        [height],
        marker="o" if middle.time < inf else ">",
        markersize=4,
        color=style.colour,
        markerfacecolor=marker_face(row, style.colour),
        clip_on=False,
    )


FIGURE = ComparisonFigure(
    name="learning-time",
    order=15,
    draw=draw,
    applies=can_be_shown,
    caption=f"""Share of seeds that have not learned yet against the number of tokens seen in training, by
        Kaplan and Meier: the thickness of the band of each model, the fastest at the top. A seed has learned
        when validation accuracy first reaches nine tenths of the way from chance to the optimum, or what
        ends a run; a run that diverged never learns. A dot is the median, a triangle at the right edge
        stands for one beyond the budget, and a line is its 95 % interval, which needs five seeds; where it
        reaches the right edge it has no upper end. {HOLLOW} {SHADES}""",
)
