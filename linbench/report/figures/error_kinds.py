"""What wrong answers are: shares of the right value, older values, other keys' values and values of
nowhere."""

from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from linbench.report.figures.curves import styled
from linbench.report.style.colors import ink
from linbench.report.style.labels import MISSING, became_of, whole_figure
from linbench.results.comparison import Comparison
from linbench.results.record import Result

RIGHT = "the last value"

KINDS = {
    RIGHT: ("#EDEDED", ""),
    "the one before": ("#7A0403", ""),
    "between": ("#C6502E", ""),
    "the first": ("#F2A65A", ""),
    "newer": ("#FBE3B4", ""),
    "another key's": ("#9DB8CC", "////"),
    "of nowhere": ("#3C4A56", ""),
}
"""Kinds of answers with their colours, which differ in lightness, and hatches. None is a generation's."""

DIVERGED = "diverged"
BLANK: dict[str, Any] = {"facecolor": "white", "edgecolor": MISSING, "linewidth": 0.6}
"""What stands for a seed that has no answers."""

WORTH = 0.0005
"""A kind that no model has so much of is not explained."""

ACROSS = 7
"""Words of a legend for which there is room side by side."""

THICK = 0.78
"""Of a bar, from one to the next."""


def shares(result: Result) -> dict[str, float] | None:
    """Of all answers, by `KINDS`; they add up to one. Older values that are both the one before and the first
    count as the one before. None for a task or run without them."""
    found = result["metrics"]
    if (
        result["status"] != "ok"
        or not {"accuracy", "stale", "stale_previous", "stale_middle", "cross", "alien"} <= found.keys()
    ):
        return None
    newer = found.get("stale_newer", 0.0)
    first = max(0.0, found["stale"] - found["stale_previous"] - found["stale_middle"] - newer)
    values = (
        found["accuracy"],
        found["stale_previous"],
        found["stale_middle"],
        first,
        newer,
        found["cross"],
        found["alien"],
    )
    return dict(zip(KINDS, values, strict=True))


def by_kind(axes: Axes, comparison: Comparison) -> bool:
    """A bar for every model, the best above, with a strip for each seed, blank and below the others for one
    that diverged; below, in grey, those that have none."""
    found = [
        (row, style, [one for result in row.results if (one := shares(result))])
        for row, style in styled(comparison.rows)
    ]
    found.sort(key=lambda one: fmean(each[RIGHT] for each in one[2]) if one[2] else -1.0)
    if not any(each for *_, each in found):
        return False
    blanks = [
        sum(result["status"] == DIVERGED for result in row.results) if each else 0 for row, _, each in found
    ]
    for height, ((row, _, each), blank) in enumerate(zip(found, blanks, strict=True)):
        if not each:
            axes.text(
                0.5,
                height,
                became_of(row),
                color=MISSING,
                style="italic",
                fontsize=7.5,
                ha="center",
                va="center",
            )
        thick = THICK / max(1, blank + len(each))
        axes.barh(
            [height - THICK / 2 + thick * strip for strip in range(blank)], 1, thick, align="edge", **BLANK
        )
        for strip, one in enumerate(sorted(each, key=lambda one: one[RIGHT]), blank):
            _strip(axes, one, height - THICK / 2 + thick * strip, thick)
    axes.set_yticks(range(len(found)), [row.label for row, *_ in found], fontsize=7.5)
    for (_, style, each), tick in zip(found, axes.get_yticklabels(), strict=True):
        tick.set_color(ink(style.colour) if each else MISSING)
    kinds = [kind for kind in KINDS if any(one[kind] > WORTH for *_, each in found for one in each)]
    handles = [
        Patch(facecolor=KINDS[kind][0], hatch=KINDS[kind][1], edgecolor="white", linewidth=0, label=kind)
        for kind in kinds
    ]
    if any(blanks):
        handles.append(Patch(**BLANK, label=DIVERGED))
    whole_figure(axes).legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(handles), ACROSS),
        fontsize=7.5,
        columnspacing=1.1,
        handlelength=1.2,
    )
    axes.grid(False)
    axes.set(xlabel="share of answers", xlim=(0, 1), ylim=(-0.6, len(found) - 0.4))
    return True


def _strip(axes: Axes, shares_: dict[str, float], bottom: float, thick: float) -> None:
    left = 0.0
    for kind, (colour, hatch) in KINDS.items():
        if shares_[kind] > 0:
            axes.barh(
                bottom,
                shares_[kind],
                thick,
                left=left,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
        left += shares_[kind]
