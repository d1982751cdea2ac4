"""The rows of `trained_gradient` as a figure: a panel for each model, before and after training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from linbench.common.hashing import digest
from linbench.report.figure import Drawing
from linbench.report.style.colors import DASHES
from linbench.report.style.labels import GUIDE, colours_of
from linbench.verify.gradient_panels import LOWEST, drawn, lines, short
from linbench.verify.update_rules import Row

__all__ = ["WHEN", "drawing", "widths"]

WHEN = ("before", "after")
"""The names of the two sizes of a row."""

WAYS: tuple[Any, Any] = (DASHES[1], DASHES[0])
"""The lines of both."""

COLUMNS = 4
"""Panels side by side, at most."""

PANEL_INCHES = (2.6, 2.1)
"""Width and height of a panel."""

LENGTH_LINE: dict[str, Any] = {"color": "#444444", "linewidth": 1.1, "linestyle": (0, (1, 2)), "zorder": 1}
"""The style of the line at the length of training."""

CAPTION = """
Size of the gradient of a last output by an earlier input, against their distance in tokens, before (dashed)
and after (solid) training on {task} in sequences of {length} tokens (dotted), {form} form: log10 of the root
mean square over {trials} of inputs and directions, which are the same before and after. Each panel is the
first layer of one model, {width} wide, with that model's test accuracy. Before training, weights are the
initial ones of that model, but a last map that would start at zero starts as other maps do. Inputs are
standard normal. Lines that leave the panel go on falling; a line ends where the gradient is zero.
"""


def widths(rows: Sequence[Row]) -> str:
    """Return the widths of all layers in words, such as 64 or 128."""
    return " or ".join(map(str, sorted({row["width"] for row in rows})))


def drawing(rows: Sequence[Row], *, trials: str, task: str, length: int, form: str) -> Drawing:
    """Return the figure of rows of `trained_gradient`.

    Args:
        rows: of one model or more.
        trials: their number, in words.
        task, length: what models were trained on, and the tokens of its sequences.
        form: of the models.
    """
    distances, before = lines(rows, "before")
    after = lines(rows, "after")[1]
    of_models = {row["model"]: row for row in rows}

    def draw(sheet: Sheet) -> bool:
        columns = min(COLUMNS, len(of_models))
        lots = -(-len(of_models) // columns)
        sheet.set_size_inches(max(4.0, PANEL_INCHES[0] * columns), PANEL_INCHES[1] * lots + 0.5)
        places = list(sheet.subplots(lots, columns, squeeze=False, sharex=True, sharey=True).flat)
        for empty in places[len(of_models) :]:
            sheet.delaxes(empty)
        colours = colours_of([row["mixer"] for row in of_models.values()])
        for axes, (model, row), colour in zip(places, of_models.items(), colours, strict=False):
            _draw(axes, distances, before[model], after[model], colour)
            axes.axvline(np.interp(length, distances, range(len(distances))), **LENGTH_LINE)
            axes.set_title(f"{model}, accuracy {row['accuracy']:.3f}", fontsize="small", loc="left")
        highest = max(
            size for line in (*before.values(), *after.values()) for size in line if size is not None
        )
        ways = [Line2D([], [], color=GUIDE, linestyle=way) for way in WAYS]
        places[0].legend(ways, WHEN, loc="lower left", fontsize="small")
        places[0].set_ylim(LOWEST, max(1.0, highest + 0.3))
        for lowest in places[: len(of_models)][-columns:]:  # an empty place may stand below
            lowest.tick_params(labelbottom=True)
        sheet.supxlabel("distance in tokens", fontsize="medium")
        sheet.supylabel("log10 of the gradient", fontsize="medium")
        return True

    caption = " ".join(CAPTION.split()).format(
        task=task, length=length, form=form, trials=trials, width=widths(rows)
    )
    shown = {
        model: [[short(size) for size in line[model]] for line in (before, after)] for model in of_models
    }
    return Drawing("gradient-after", draw, caption, digest([distances, shown]))


def _draw(
    axes: Axes,
    distances: Sequence[int],
    before: Sequence[float | None],
    after: Sequence[float | None],
    colour: str,
) -> None:
    """Draw a panel whose distances stand side by side, evenly."""
    places = range(len(distances))
    axes.plot(places, drawn(before), color=colour, linestyle=WAYS[0], linewidth=1.3)
    axes.plot(places, drawn(after), color=colour, linestyle=WAYS[1], marker="o", markersize=2.8)
    named = [place for place in places if place == 0 or place % 2]
    axes.set_xticks(named, [f"{distances[place]:,}" for place in named])
    axes.set_xlim(-0.3, len(distances) - 0.7)
