"""Comparisons as figures: what is drawn is stored, and nothing else. Their docstrings are captions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.common.words import counted
from linbench.models.base import GENERATIONS
from linbench.record import seed_of
from linbench.report.colours import generation
from linbench.report.errors import by_kind
from linbench.report.labels import CROWD, LONGEST, footnote, titled
from linbench.report.panels import by_length, by_slice, learning_curves
from linbench.report.sizes import by_model, by_state, by_width
from linbench.report.windows import by_rate
from linbench.results import Comparison, Row, broken, slices

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

MORE = 4
"""Slices that are drawn beside those with a figure of their own, at most."""


def curves(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and each of them thin, with a band from the worst to the best where models are few.

    A run that diverged counts as chance from there on. A hollow end: undertrained, or its learning rate in doubt.
    """
    return _any(learning_curves(axes, part) for part, (axes,) in _panels(figure, comparison))


def distance(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the distance that an answer must be carried: the mean over seeds, and each of them thin, with a band from the worst to the best
    where models are few."""
    return _any(by_slice(axes, part, "distance") for part, (axes,) in _panels(figure, comparison))


def overwrites(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, and the share of answers that are an older value of what was asked, against how often that had been overwritten: means over
    seeds, and each of them thin, with bands from the worst to the best where models are few."""
    return _any(
        by_slice(left, part, "overwrites") and by_slice(right, part, "overwrites", "stale") for part, (left, right) in _panels(figure, comparison, across=2)
    )


def errors(figure: Figure, comparison: Comparison) -> bool:
    """What the answers of every model are, the best above: the last value of what was asked, an older one (the one before, the first, or between these; where
    but one is older, the one before), another key's, or one that never occurred. A strip for each seed, blank and below
    the others where it diverged."""
    _for_names(figure, comparison)
    return by_kind(figure.add_subplot(), comparison)


def lengths(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the length of the tested sequences: the mean over seeds, and each of them thin, with a band from the worst to the best where models
    are few."""
    return _any(by_length(axes, part) for part, (axes,) in _panels(figure, comparison))


def state(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, of several tests their mean, against the floats that one sequence of the longest tested length carries from token to token: the mean
    over seeds, faint bars from the worst to the best, which lie upon each other where models are of one size; a line through the sizes of one model.
    Grey: the Pareto front, the most that any model reaches that carries no more, and the models of other panels. A hollow mark: undertrained, or its
    learning rate in doubt, and no part of the front. A colour for each generation, with a shade for each variant."""
    return _any(by_state(axes, part, comparison) for part, (axes,) in _panels(figure, comparison, widths="together"))


def width(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, of several tests their mean, against the width of the model: the mean over seeds, bars from the worst to the best; marks of one width
    stand side by side. Grey: the models of other panels. A hollow mark: undertrained, or its learning rate in doubt. A name says where a model was not
    measured at every width."""
    return _any(by_width(axes, part, comparison) for part, (axes,) in _panels(figure, comparison, widths="together"))


def models(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy of every model, of several tests their mean, the best above: a small dot for each seed, a large one for their mean, hollow where it was
    undertrained or its learning rate was in doubt. A model of several sizes has a line of dots for each: the dots of a greater width are larger and stand
    above; of one width, what carries more stands above. A colour for each generation, with a shade for each variant."""
    _for_names(figure, comparison)
    return len(comparison.rows) > CROWD and by_model(figure.add_subplot(), comparison)


def rates(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy of the tuning runs by learning rate, the model with the widest window above: a cell for every rate that was tried, the darker the
    better, with a strip for each tuning seed and their mean as a number, which is rounded, but never up to 0.90. Bold and underlined: the rate that was
    chosen. Not bold, the line hollow: it is in doubt, as the first or last of those tried, beside one that could not be tried, or a guess, where the best
    of them led no further than a twentieth of the way from chance to 1. A frame: the window around the best rate in which accuracy is at least 0.9;
    beside it how many decades wide it is, on straight lines between the rates that were tried, ≥ where it is open at the last of them."""
    _for_names(figure, comparison, inches=0.21)
    return by_rate(figure.add_subplot(), comparison)


def others(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against all that it was told apart by besides: the mean over seeds, and each of them thin, with a band from the worst to the best where
    models are few."""
    found = dict.fromkeys(name for result in comparison.results for name in slices(result) if name not in FIGURES)
    names = list(found)[:MORE]
    return _any(
        by_slice(axes, part, name)
        for part, row in (_panels(figure, comparison, across=len(names)) if names else ())
        for axes, name in zip(row, names, strict=True)
    )


FIGURES: dict[str, Callable[[Figure, Comparison], bool]] = {
    "learning-curves": curves,
    "learning-rates": rates,
    "distance": distance,
    "overwrites": overwrites,
    "errors": errors,
    "lengths": lengths,
    "state": state,
    "width": width,
    "models": models,
    "slices": others,
}

UNMARKED = ("errors", "learning-rates")
"""Figures in which no mark is the mean of runs."""

OVER_ALL = ("state", "width", "models")
"""Figures in which a number is of all tests."""

AFTER_A_RUN = ("learning-curves", "distance", "overwrites", "lengths")


def draw(figure: Figure, comparison: Comparison, name: str) -> bool:
    """One of `FIGURES`, with its title; False where there is nothing to draw."""
    if not FIGURES[name](figure, comparison):
        return False
    titled(figure, f"{comparison.title}, {comparison.form} form, {_seeds(comparison, tuning=name == 'learning-rates')}", mpl.rcParams["axes.titlesize"])
    if name not in UNMARKED:
        hollow, lawless = not all(row.in_verdicts for row in comparison.rows), bool(broken(comparison.results))
        footnote(figure, tests=len(comparison.tests) if name in OVER_ALL else 0, hollow=hollow, lawless=lawless)
    return True


def _panels(figure: Figure, comparison: Comparison, across: int = 1, *, widths: Literal["apart", "together"] = "apart") -> list[tuple[Comparison, list[Axes]]]:
    """`across` panels side by side, for all models, or, where these are a crowd, for those of each generation, and of each width where these are to stand
    apart."""
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
    """A crowd of models by their generations, the small ones together, the large ones divided; all, without a name, where they are none."""
    if len(comparison.rows) <= CROWD:
        return {"": comparison}
    by_generation: dict[str, list[Row]] = {}
    for row in comparison.rows:
        by_generation.setdefault(generation(row.results[0]), []).append(row)
    order = sorted(by_generation, key=lambda name: GENERATIONS.index(name) if name in GENERATIONS else len(GENERATIONS))
    small = [name for name in order if len(by_generation[name]) <= CROWD // 2]
    parts = {", ".join(name or "others" for name in small): [row for name in small for row in by_generation[name]]} if small else {}
    for name in (name for name in order if name not in small):
        parts |= _divided(name or "others", by_generation[name])
    return {name: replace(comparison, rows=tuple(rows)) for name, rows in parts.items()}


def _divided(name: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Parts of about one length, about `MOST` each; the rows of one model, which stand together, stay together unless they are more."""
    models = [list(own) for _, own in groupby(rows, key=lambda row: row.results[0]["label"])]
    units = [unit for own in models for unit in ([own] if len(own) <= MOST else [[row] for row in own])]
    count, seen = -(-len(rows) // MOST), 0
    parts: list[list[Row]] = [[] for _ in range(count)]
    for unit in units:
        parts[seen * count // len(rows)] += unit
        seen += len(unit)
    found = [part for part in parts if part]
    return {f"{name} ({i} of {len(found)})" if len(found) > 1 else name: part for i, part in enumerate(found, 1)}


def _of_each_width(name: str, part: Comparison) -> dict[str, Comparison]:
    """A part of several widths divided by them; labels do not repeat the width where it alone told models apart."""
    by_width: dict[int, list[Row]] = {}
    for row in sorted(part.rows, key=lambda row: row.width):
        by_width.setdefault(row.width, []).append(row)
    if len(by_width) == 1:
        return {name: part}
    found = {}
    for width, rows in by_width.items():
        labels = [row.results[0]["label"] for row in rows]
        own = (replace(row, label=label) if labels.count(label) == 1 else row for row, label in zip(rows, labels, strict=True))
        found[f"{name}, width {width}"] = replace(part, rows=tuple(own))
    return found


def _any(drawn: Iterable[bool]) -> bool:
    """Whether anything was drawn; every panel is tried."""
    return any(list(drawn))


def _for_names(figure: Figure, comparison: Comparison, inches: float = 0.17) -> None:
    """Room for a row with a name for each model, so many inches from the next, and more where they are few."""
    each = inches if len(comparison.rows) > CROWD else FEW_INCHES
    longer = max(0, min(LONGEST, max(len(row.label) for row in comparison.rows)) - 2 * NAME)
    figure.set_size_inches(figure.get_figwidth() + 1.2 + LETTER_INCHES * longer, AROUND_INCHES + each * len(comparison.rows))


def _seeds(comparison: Comparison, *, tuning: bool) -> str:
    """How many there are of every model, or those of the runs that chose its learning rate."""
    count = max(len({seed_of(result) for result in (row.tuning if tuning else row.results)}) for row in comparison.rows)
    return counted(count, "tuning seed" if tuning else "seed")
