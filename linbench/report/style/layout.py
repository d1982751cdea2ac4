"""How panels share the space of a figure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.models.base import GENERATIONS
from linbench.report.style.colors import generation
from linbench.report.style.labels import CROWD, LONGEST
from linbench.results.comparison import Comparison, Row

PANEL_INCHES = 3.9
"""The width of each of several panels."""

NAME = 20
"""Characters of a model's name for which there is room beside a panel."""

LETTER_INCHES = 0.075
"""For each character more."""

FEW_INCHES, AROUND_INCHES = 0.3, 0.9
"""The height of the row of one of few models, and of what stands above and below the rows."""

MOST = 14
"""Models in a panel; a generation of more has several."""


def _panels(
    figure: Figure, comparison: Comparison, across: int = 1, *, widths: Literal["apart", "together"] = "apart"
) -> list[tuple[Comparison, list[Axes]]]:
    """`across` panels side by side, for all models, or, where these are a crowd, for those of each
    generation, and of each width where these are to stand apart."""
    parts = _parts(comparison)
    if len(comparison.rows) > CROWD and widths == "apart":
        parts = {own: one for name, part in parts.items() for own, one in _of_each_width(name, part).items()}
    columns = across if across > 1 else min(2, len(parts))
    rows = -(-len(parts) * across // columns)
    width = figure.get_figwidth() if columns == 1 else PANEL_INCHES * columns
    longer = max(0, min(LONGEST, max(len(row.label) for part in parts.values() for row in part.rows)) - NAME)
    width += LETTER_INCHES * longer * columns
    figure.set_size_inches(width, figure.get_figheight() * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in panels[len(parts) * across :]:
        figure.delaxes(empty)
    found = []
    for index, (name, part) in enumerate(parts.items()):
        own = panels[index * across : (index + 1) * across]
        own[0].set_title(name, fontsize="medium", loc="left")
        found.append((part, own))
    return found


def _parts(comparison: Comparison) -> dict[str, Comparison]:
    """A crowd of models by their generations, the small ones together, the large ones divided; all, without a
    name, where they are none."""
    if len(comparison.rows) <= CROWD:
        return {"": comparison}
    by_generation: dict[str, list[Row]] = {}
    for row in comparison.rows:
        by_generation.setdefault(generation(row.results[0]), []).append(row)
    order = sorted(
        by_generation, key=lambda name: GENERATIONS.index(name) if name in GENERATIONS else len(GENERATIONS)
    )
    small = [name for name in order if len(by_generation[name]) <= CROWD // 2]
    parts = (
        {
            ", ".join(name or "others" for name in small): [
                row for name in small for row in by_generation[name]
            ]
        }
        if small
        else {}
    )
    for name in (name for name in order if name not in small):
        parts |= _divided(name or "others", by_generation[name])
    return {name: replace(comparison, rows=tuple(rows)) for name, rows in parts.items()}


def _divided(name: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Parts of about one length, about `MOST` each; the rows of one model, which stand together, stay
    together unless they are more."""
    models = [list(own) for _, own in groupby(rows, key=lambda row: row.results[0]["label"])]
    units = [unit for own in models for unit in ([own] if len(own) <= MOST else [[row] for row in own])]
    count, seen = -(-len(rows) // MOST), 0
    parts: list[list[Row]] = [[] for _ in range(count)]
    for unit in units:
        parts[seen * count // len(rows)] += unit
        seen += len(unit)
    found = [part for part in parts if part]
    return {
        f"{name} ({i} of {len(found)})" if len(found) > 1 else name: part for i, part in enumerate(found, 1)
    }


def _of_each_width(name: str, part: Comparison) -> dict[str, Comparison]:
    """A part of several widths divided by them; labels do not repeat the width where it alone told models
    apart."""
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


def _for_names(figure: Figure, comparison: Comparison, inches: float = 0.17) -> None:
    """Room for a row with a name for each model, so many inches from the next, and more where they are
    few."""
    each = inches if len(comparison.rows) > CROWD else FEW_INCHES
    longer = max(0, min(LONGEST, max(len(row.label) for row in comparison.rows)) - 2 * NAME)
    figure.set_size_inches(
        figure.get_figwidth() + 1.2 + LETTER_INCHES * longer, AROUND_INCHES + each * len(comparison.rows)
    )
