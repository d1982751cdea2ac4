"""The figure of published numbers and ours: a panel for each table, a point for each value."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from linbench.common.hashing import digest
from linbench.report.figure import Drawing
from linbench.report.style.colors import ink
from linbench.report.style.labels import spread_labels
from linbench.reproduction.outcome import Outcome, Verdict
from linbench.reproduction.page import record
from linbench.reproduction.ran import Ran
from linbench.reproduction.schema import UNITS
from linbench.reproduction.table import Reproduction

SLUG = "published-and-ours"

ACROSS = 3
"""The most panels side by side."""

PANEL_INCHES = 3.4

TINY = 7.0
"""The size in points of names of values that are not met."""

NAME_GAP = 0.04
"""The least distance of two names, as a share of the axis."""

COLOURS: Mapping[Verdict, str] = {"within": "#1b7837", "outside": "#c2410c", "not comparable": "#888888"}

NAMES: Mapping[Verdict, str] = {
    "within": "within",
    "outside": "outside",
    "not comparable": "missed, not verified",
}

CAPTION = (
    "Published numbers and ours, a panel for each table and a point for each value. The line is where both"
    " are equal, and the band is what the table allows. Our number is chosen as the paper chose; a line goes"
    " from the lowest to the highest seed at the chosen setting. Values that are not met have names."
    " Values that are printed as a class, such as solved, are left out."
)


def drawing(found: Sequence[Ran]) -> Drawing:
    """Return the figure of all tables that have run, each on the kind of device that is shown."""
    points = {each.one: [outcome for outcome in each.outcomes if _has_point(outcome)] for each in found}
    shown = {one: each for one, each in points.items() if each}

    def draw(figure: Figure) -> bool:
        if not shown:
            return False
        columns = min(ACROSS, len(shown))
        rows = -(-len(shown) // columns)
        figure.set_size_inches(PANEL_INCHES * columns, PANEL_INCHES * rows + 0.4)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, (one, outcomes) in zip(panels, shown.items(), strict=False):
            _draw(axes, one, outcomes)
        for empty in panels[len(shown) :]:
            figure.delaxes(empty)
        figure.legend(handles=_legend(shown), loc="outside lower left", ncols=3, fontsize="small")
        return True

    values = {one.id: [record(each) for each in outcomes] for one, outcomes in shown.items()}
    return Drawing(SLUG, draw, CAPTION, digest(values))


def _has_point(outcome: Outcome) -> bool:
    return outcome.ours is not None and outcome.cell.printed.number is not None


def _draw(axes: Axes, one: Reproduction, outcomes: Sequence[Outcome]) -> None:
    ends, allowed = (-4.0, 104.0), one.table.tolerance
    axes.fill_between(
        ends, [end - allowed for end in ends], [end + allowed for end in ends], color="#e8eef5", linewidth=0
    )
    axes.plot(ends, ends, color="#999999", linewidth=0.8)
    for outcome in outcomes:
        printed, colour = outcome.cell.printed.number or 0.0, COLOURS[outcome.verdict]
        axes.plot([printed] * 2, [min(outcome.seeds), max(outcome.seeds)], color=colour, linewidth=0.9)
        axes.plot([printed], [outcome.ours or 0.0], marker="o", markersize=4.5, color=colour, alpha=0.75)
    _name(axes, [outcome for outcome in outcomes if outcome.verdict != "within"])
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_title(one.id, fontsize="medium")
    axes.set_xlabel(f"published: {UNITS[one.table.unit]}", fontsize="small")
    axes.set_ylabel("ours", fontsize="small")


def _name(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    """Write the model and the column beside points, moved apart where they would overlap."""
    rising = sorted(outcomes, key=lambda each: each.ours or 0.0)
    heights = spread_labels([(each.ours or 0.0) / 100 for each in rising], NAME_GAP)
    for outcome, height in zip(rising, heights, strict=True):
        printed = outcome.cell.printed.number or 0.0
        right = printed > 50
        axes.text(
            printed + (-2.5 if right else 2.5),
            100 * height,
            f"{outcome.cell.row}, {outcome.cell.column}",
            ha="right" if right else "left",
            va="center",
            fontsize=TINY,
            color=ink(COLOURS[outcome.verdict]),
        )


def _legend(shown: Mapping[Reproduction, Sequence[Outcome]]) -> list[Line2D]:
    there = {outcome.verdict for outcomes in shown.values() for outcome in outcomes}
    return [
        Line2D([], [], marker="o", linestyle="", markersize=4.5, color=colour, label=NAMES[verdict])
        for verdict, colour in COLOURS.items()
        if verdict in there
    ]
