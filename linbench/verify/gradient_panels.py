"""The rows of `gradient` as lines by model, and as a figure of small panels: size against distance."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.common.hashing import digest
from linbench.models.base import GENERATIONS
from linbench.report.figure import Drawing
from linbench.report.style.colors import generations, styles_of
from linbench.report.style.labels import MAX_LINES_PER_PANEL, Named, label_lines
from linbench.verify.update_rules import Row

__all__ = ["LOWEST", "drawing", "drawn", "lines", "short"]

MOST = 12
"""The most models whose names stand beside one panel."""

PANEL_INCHES = (5.2, 2.9)
"""Width and height of a panel with its names."""

LOWEST = -6.5
"""The end of the axis: a millionth of a usual gradient, and what is smaller, teaches nothing."""

OTHERS = "#DDDDDD"
"""The colour of the models of other panels."""

CAPTION = """
Size of the gradient of a last output by an earlier input, against their distance in tokens, before any
training: log10 of the root mean square over {trials} of one layer of width {dim}, {form} form. Weights are
initial, and a last map that would start at zero starts as other maps do; inputs are standard normal. Lines
that leave the panel go on falling; a line ends where the gradient is zero. The other models stand behind in
grey.
"""

Sizes = dict[str, list[float | None]]
"""log10 of the size at each distance, by model."""


def lines(rows: Sequence[Row], size: str = "log_size") -> tuple[list[int], Sizes]:
    """Return the distances, and the sizes of every model at these. size: its name in the rows."""
    sizes: Sizes = {}
    for row in rows:
        sizes.setdefault(row["model"], []).append(row[size])
    return list(dict.fromkeys(row["distance"] for row in rows)), sizes


def short(size: float | None) -> str:
    """Return a logarithm as tables show it: digits beyond the first differ from machine to machine."""
    return "none" if size is None else f"{round(size, 1) + 0.0:.1f}"  # + 0.0: no minus before a zero


def drawing(rows: Sequence[Row], *, trials: str, dim: int, form: str) -> Drawing:
    """Return the figure of rows of `gradient`; trials: their number, in words."""
    distances, sizes = lines(rows)
    mixers = {row["model"]: row["mixer"] for row in rows}
    parts = _parts(mixers)

    def draw(sheet: Sheet) -> bool:
        columns = min(2, len(parts))
        rows_of_panels = -(-len(parts) // columns)
        sheet.set_size_inches(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows_of_panels + 0.3)
        places = list(sheet.subplots(rows_of_panels, columns, squeeze=False, sharey=True).flat)
        for empty in places[len(parts) :]:
            sheet.delaxes(empty)
        highest = max(size for line in sizes.values() for size in line if size is not None)
        for axes, (title, models) in zip(places, parts.items(), strict=False):
            axes.set_ylim(LOWEST, max(1.0, highest + 0.3))
            own = {model: mixers[model] for model in models}
            ends = _draw(axes, distances, sizes, own)
            axes.set_title(title, fontsize="medium", loc="left")
            axes.set_xlabel("distance in tokens")
            axes.set_ylabel("log10 of the gradient")
            label_lines(axes, ends)
        return True

    caption = " ".join(CAPTION.split()).format(trials=trials, dim=dim, form=form)
    shown = {model: [short(size) for size in line] for model, line in sizes.items()}
    return Drawing("gradient", draw, caption, digest([distances, shown]))


def _parts(mixers: Mapping[str, str]) -> dict[str, list[str]]:
    """Return few models together, and many by generation: large ones divided, small ones with the next."""
    if len(mixers) <= MAX_LINES_PER_PANEL:
        return {"": list(mixers)}
    by_generation: dict[str, list[str]] = {}
    for own in (*GENERATIONS, *sorted(set(generations().values()) - set(GENERATIONS))):
        found = [model for model, mixer in mixers.items() if generations().get(mixer, "") == own]
        if found:
            by_generation[own or "others"] = found
    parts: dict[str, list[str]] = {}
    names, models = list[str](), list[str]()
    for name, found in by_generation.items():
        names, models = [*names, name], [*models, *found]
        if len(models) <= MAX_LINES_PER_PANEL // 2 and name != list(by_generation)[-1]:
            continue
        title, count = ", ".join(names), -(-len(models) // MOST)
        size = -(-len(models) // count)
        for place in range(count):
            part = f"{title} ({place + 1} of {count})" if count > 1 else title
            parts[part] = models[place * size : (place + 1) * size]
        names, models = [], []
    return parts


def _draw(axes: Axes, distances: Sequence[int], sizes: Sizes, own: Mapping[str, str]) -> list[Named]:
    """Draw a panel whose distances stand side by side, evenly; return the ends of its models' lines."""
    places = range(len(distances))
    for model, line in sizes.items():
        if model not in own:
            axes.plot(places, drawn(line), color=OTHERS, linewidth=0.6, zorder=0)
    ends = []
    for (model, line), (colour, dash, mark) in zip(
        ((model, sizes[model]) for model in own), styles_of(list(own.values())), strict=True
    ):
        axes.plot(places, drawn(line), color=colour, linestyle=dash, marker=mark, markersize=3.2)
        at, size = _end(line)
        ends.append(Named(size, at, model, colour))
    axes.set_xticks(places, [f"{distance:,}" for distance in distances])
    axes.set_xlim(-0.3, len(distances) - 0.7)
    return ends


def drawn(line: Sequence[float | None]) -> list[float]:
    """Return a line as matplotlib draws it: it ends where the gradient is zero."""
    return [math.nan if size is None else size for size in line]


def _end(line: Sequence[float | None]) -> tuple[float, float]:
    """Return the place and the size at which a line ends: at its last mark, or where it leaves the panel."""
    for place, size in enumerate(line):
        if size is not None and size < LOWEST:
            before = line[place - 1] if place else None
            if before is None:
                return place, LOWEST
            return place - 1 + (before - LOWEST) / (before - size), LOWEST
    found = [(float(place), size) for place, size in enumerate(line) if size is not None]
    return found[-1] if found else (0.0, LOWEST)
