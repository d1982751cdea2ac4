"""Layout of figures: panels for groups of models, and room for names."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.models.base import GENERATIONS
from linbench.report.style.colors import generation
from linbench.report.style.labels import LONGEST, MAX_LINES_PER_PANEL
from linbench.results.comparison import Comparison, Row

PANEL_INCHES = 3.9
"""The width of each of several panels."""

NAME = 20
"""The characters of a model's name for which there is room beside a panel."""

LETTER_INCHES = 0.075
"""The width that is added for each character more."""

FEW_INCHES = 0.3
"""The height of a row for a model, where models are few."""

AROUND_INCHES = 0.9
"""The height of title, axis and legend, above and below the rows."""

MOST = 14
"""The most models of a generation in one panel, roughly."""


def panels(
    figure: Figure, comparison: Comparison, across: int = 1, *, widths: Literal["apart", "together"] = "apart"
) -> list[tuple[Comparison, list[Axes]]]:
    """Divide a figure into panels for groups of models.

    Few models have one panel. Many have a panel for each generation.

    Args:
        figure: to divide; its size grows with the panels.
        comparison: the models.
        across: the number of panels side by side for each group.
        widths: whether models of several widths stand apart, if they are many.

    Returns:
        the models of each group, with their panels.
    """
    parts = _parts(comparison)
    if len(comparison.rows) > MAX_LINES_PER_PANEL and widths == "apart":
        by_generation = parts
        parts = {}
        for name, part in by_generation.items():
            parts |= _by_width(name, part)
    count = len(parts) * across
    columns = across if across > 1 else min(2, len(parts))
    names = [row.label for part in parts.values() for row in part.rows]
    places = panel_grid(figure, -(-count // columns), columns, names)
    for empty in places[count:]:
        figure.delaxes(empty)
    found = []
    for index, (name, part) in enumerate(parts.items()):
        own = places[index * across : (index + 1) * across]
        own[0].set_title(name, fontsize="medium", loc="left")
        found.append((part, own))
    return found


def panel_grid(
    figure: Figure, rows: int, columns: int, names: Sequence[str], inches: float = PANEL_INCHES
) -> list[Axes]:
    """Divide a figure into rows and columns of panels, with room for names beside each.

    Args:
        figure: to divide; its size grows with the panels and with the longest name.
        rows: how many.
        columns: how many.
        names: of the models.
        inches: the width of each of several panels.

    Returns:
        all panels, row by row.
    """
    width = figure.get_figwidth() if columns == 1 else inches * columns
    width += LETTER_INCHES * max(0, min(LONGEST, max(map(len, names))) - NAME) * columns
    figure.set_size_inches(width, figure.get_figheight() * rows)
    return list(figure.subplots(rows, columns, squeeze=False).flat)


def draw_panels(
    figure: Figure,
    comparison: Comparison,
    draw: Callable[[Axes, Comparison], bool],
    *,
    widths: Literal["apart", "together"] = "apart",
) -> bool:
    """Draw each group of models in a panel of its own; return whether there was anything to draw.

    Args:
        figure: to divide, as `panels` does.
        comparison: the models.
        draw: draws a group into its panel, and returns whether there was anything to draw.
        widths: whether models of several widths stand apart, if they are many.
    """
    drawn = [draw(axes, part) for part, (axes,) in panels(figure, comparison, widths=widths)]
    return any(drawn)


def _parts(comparison: Comparison) -> dict[str, Comparison]:
    """Return many models by generation: small generations together, large ones divided.

    Few models stay together, and their part has no name.
    """
    if len(comparison.rows) <= MAX_LINES_PER_PANEL:
        return {"": comparison}
    by_generation: dict[str, list[Row]] = {}
    for row in comparison.rows:
        by_generation.setdefault(generation(row.results[0]), []).append(row)
    order = sorted(
        by_generation, key=lambda name: GENERATIONS.index(name) if name in GENERATIONS else len(GENERATIONS)
    )
    small = [name for name in order if len(by_generation[name]) <= MAX_LINES_PER_PANEL // 2]
    parts = dict[str, list[Row]]()
    if small:
        title = ", ".join(name or "others" for name in small)
        parts[title] = [row for name in small for row in by_generation[name]]
    for name in order:
        if name not in small:
            parts |= _divided(name or "others", by_generation[name])
    return {name: replace(comparison, rows=tuple(rows)) for name, rows in parts.items()}


def _divided(name: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return a generation in parts of about one length, about `MOST` rows each.

    The rows of one model stay together unless they are more than that.
    """
    units = list[list[Row]]()
    for _, of_model in groupby(rows, key=lambda row: row.results[0]["label"]):
        own = list(of_model)
        units += [own] if len(own) <= MOST else [[row] for row in own]
    count, seen = -(-len(rows) // MOST), 0
    parts: list[list[Row]] = [[] for _ in range(count)]
    for unit in units:
        parts[seen * count // len(rows)] += unit
        seen += len(unit)
    found = [part for part in parts if part]
    if len(found) == 1:
        return {name: found[0]}
    return {f"{name} ({place} of {len(found)})": part for place, part in enumerate(found, 1)}


def _by_width(name: str, part: Comparison) -> dict[str, Comparison]:
    """Return a part of several widths divided by them.

    Labels do not repeat the width where it alone told models apart.
    """
    by_width: dict[int, list[Row]] = {}
    for row in sorted(part.rows, key=lambda row: row.width):
        by_width.setdefault(row.width, []).append(row)
    if len(by_width) == 1:
        return {name: part}
    found = {}
    for width, rows in by_width.items():
        labels = [row.results[0]["label"] for row in rows]
        own = (
            replace(row, label=label) if labels.count(label) == 1 else row
            for row, label in zip(rows, labels, strict=True)
        )
        found[f"{name}, width {width}"] = replace(part, rows=tuple(own))
    return found


def fit_rows(figure: Figure, names: Sequence[str], inches: float = 0.17) -> None:
    """Size a figure for a row with a name for each model.

    Args:
        figure: to be sized.
        names: of the models.
        inches: the height of a row, where models are many.
    """
    each = inches if len(names) > MAX_LINES_PER_PANEL else FEW_INCHES
    longer = max(0, min(LONGEST, max(map(len, names))) - 2 * NAME)
    figure.set_size_inches(
        figure.get_figwidth() + 1.2 + LETTER_INCHES * longer, AROUND_INCHES + each * len(names)
    )
