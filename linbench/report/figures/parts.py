"""Steps from linear attention to KDA: what each changes, and how much more beside another one."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.common.files import file_name
from linbench.common.hashing import digest
from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.labels import GUIDE, MISSING
from linbench.report.tables.parts import Factorials, factorials_by_training
from linbench.results.parts import CONFIDENCE, Effect

ROW_INCHES, PANEL_INCHES, NAME_INCHES = 0.19, 2.2, 3.0
"""The height of a row, and the widths of a panel and of the names beside the first."""

SMALL = 7.5
"""The size of all text in points."""

COLOURS = {1: "#0072B2", 2: "#D55E00"}
"""The colour of effects of one step and of two."""

CAPTION = (
    "Steps from linear attention to KDA, a panel for each task. Above: what a step changes of the accuracy, a"
    " mean over all combinations of the other parts. Below: how much more a step changes where another one is"
    f" taken. Lines are intervals, which hold together with {CONFIDENCE:.0%} in each panel; effects whose"
    " interval has zero are grey."
)


def drawings(data: ReportData) -> list[Drawing]:
    """Return a figure for each device and way of training with a factorial."""
    return [_drawing(name, found) for name, found in factorials_by_training(data).items()]


def _drawing(name: str, found: Factorials) -> Drawing:
    title = f"Steps from linear attention to KDA: {name}"
    prints = digest([one.comparison.fingerprint for one in found.tasks])
    slug, caption = file_name(f"parts of kda {name}"), " ".join([CAPTION, *found.unfinished])
    return Drawing(slug, partial(_draw, found=found), f"{caption} {name}.", prints, title, note=caption)


def _draw(sheet: Sheet, found: Factorials) -> bool:
    names, every = found.names, found.tasks
    heights = {name: -place - (names[name] > 1) for place, name in enumerate(names)}
    sheet.set_size_inches(NAME_INCHES + PANEL_INCHES * len(every), ROW_INCHES * (len(names) + 1) + 1.0)
    panels = list(sheet.subplots(1, len(every), squeeze=False, sharey=True).flat)
    for axes, one in zip(panels, every, strict=True):
        axes.axvline(0, color=GUIDE, linewidth=0.8, zorder=0)
        for effect in one.effects:
            _draw_effect(axes, effect, heights[effect.name])
        axes.set_title(one.comparison.title, fontsize=SMALL + 1, loc="left")
        axes.set_xlabel("change of accuracy", fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(list(heights.values()), names, fontsize=SMALL)
    panels[0].set_ylim(min(heights.values()) - 0.7, 0.7)
    return True


def _draw_effect(axes: Axes, effect: Effect, height: float) -> None:
    colour = COLOURS[len(effect.steps)] if effect.shown else MISSING
    axes.plot([effect.low, effect.high], [height] * 2, color=colour, linewidth=1.1)
    axes.plot([effect.mean], [height], marker="o", markersize=3.6, color=colour)


FIGURE = DataFigure(name="parts", order=95, make=drawings, source="models")
