"""Mean ranks over tasks with the critical difference, and how far every two tasks agree."""

from functools import partial
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.common.files import file_name
from linbench.common.hashing import digest
from linbench.common.text import pluralize
from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.colors import ink
from linbench.report.style.labels import colours_of
from linbench.report.tables.ranks import ranks_by_training, words
from linbench.results.ranks import Ranks
from linbench.results.reliability import tau

ROW_INCHES, LEFT_INCHES, TASK_INCHES, NAME_INCHES = 0.2, 4.6, 0.42, 1.7
"""The height of a model's row, and the widths of the left panel, of a task on the right, and of names."""

SMALL, TINY = 7.5, 6.5
"""Font sizes in points."""

CAPTION = (
    "Left: the mean rank of each model over tasks, 1 for the best. A line is as long as the critical"
    " difference: two models whose lines overlap are not told apart. Small dots are ranks in single tasks."
    " Right: Kendall's tau of the orders of models in every two tasks, 1 for the same order and 0 for"
    " unrelated ones."
)


def drawings(data: ReportData) -> list[Drawing]:
    """Return a figure for each form, way of training and device that has enough models and tasks."""
    return [drawing(name, one) for name, one in ranks_by_training(data).items()]


def drawing(name: str, one: Ranks) -> Drawing:
    """Return the figure of ranks, which are named after what they have in common."""
    slug, prints = file_name(f"ranks {name}"), digest([one.by_task, f"{one.difference:.9g}"])
    caption = f"{CAPTION} {words(one)} {name[0].upper()}{name[1:]}."
    return Drawing(slug, partial(_draw, one=one), caption, prints, f"Ranks over tasks: {name}", note=CAPTION)


def _draw(sheet: Sheet, one: Ranks) -> bool:
    right = TASK_INCHES * len(one.by_task) + NAME_INCHES
    height = max(ROW_INCHES * len(one.mean), TASK_INCHES * len(one.by_task)) + 1.2
    sheet.set_size_inches(LEFT_INCHES + right, height)
    left_panel, right_panel = sheet.subplots(1, 2, gridspec_kw={"width_ratios": [LEFT_INCHES, right]})
    _draw_ranks(left_panel, one)
    _draw_agreement(right_panel, one)
    return True


def _draw_ranks(axes: Axes, one: Ranks) -> None:
    models = list(one.mean)[::-1]
    colours = [ink(colour) for colour in colours_of([model.partition("[")[0] for model in models])]
    for height, (model, colour) in enumerate(zip(models, colours, strict=True)):
        mean, half = one.mean[model], one.difference / 2
        own = [by_model[model] for by_model in one.by_task.values()]
        axes.plot([mean - half, mean + half], [height] * 2, color=colour, linewidth=1.4, alpha=0.7)
        axes.plot(own, [height] * len(own), "o", color=colour, markersize=2.4, alpha=0.4, linestyle="")
        axes.plot([mean], [height], "o", color=colour, markersize=5)
    axes.set_yticks(range(len(models)), models, fontsize=SMALL)
    for tick, colour in zip(axes.get_yticklabels(), colours, strict=True):
        tick.set_color(colour)
    axes.set(xlim=(0.5, len(models) + 0.5), ylim=(-0.7, len(models) - 0.3))
    axes.set_xlabel("mean rank; length of a line: critical difference", fontsize=SMALL)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.grid(visible=False, axis="y")
    axes.set_title(f"Mean rank over {pluralize(len(one.by_task), 'task')}", fontsize=SMALL + 1, loc="left")


def _draw_agreement(axes: Axes, one: Ranks) -> None:
    tasks, places = list(one.by_task), range(len(one.by_task))
    pairs = {
        (i, j): tau(one.by_task[tasks[i]], one.by_task[tasks[j]])
        for i, j in product(places, places)
        if i != j
    }
    values = [[pairs.get((i, j)) or 0.0 for j in places] for i in places]
    axes.imshow(values, cmap="PuOr", vmin=-1, vmax=1, aspect="equal")
    for (i, j), found in pairs.items():
        dark = found is not None and abs(found) > 0.7
        text = "–" if found is None else f"{found + 0.0:.2f}"
        axes.text(j, i, text, ha="center", va="center", fontsize=TINY, color="white" if dark else "#222222")
    axes.set_xticks(places, tasks, rotation=40, ha="right", rotation_mode="anchor", fontsize=SMALL)
    axes.set_yticks(places, tasks, fontsize=SMALL)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_title("Kendall's tau of two tasks", fontsize=SMALL + 1, loc="left")
    for spine in axes.spines.values():
        spine.set_visible(False)


FIGURE = DataFigure(name="ranks", order=96, make=drawings, source="models")
