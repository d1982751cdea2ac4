"""Comparisons as figures: what is drawn is stored, and nothing else. Their docstrings are captions."""

from collections.abc import Callable, Iterable

import matplotlib as mpl
from matplotlib.figure import Figure

from linbench.common.text import counted
from linbench.report.figures.curves import by_length, by_slice
from linbench.report.figures.error_kinds import by_kind
from linbench.report.figures.learning_curves import learning_curves
from linbench.report.figures.learning_rates import by_rate
from linbench.report.figures.sizes import by_model, by_state, by_width
from linbench.report.style.labels import CROWD, footnote, titled
from linbench.report.style.layout import _for_names, _panels
from linbench.results.comparison import Comparison, broken
from linbench.results.record import seed_of
from linbench.results.slices import slices

MORE = 4
"""Slices that are drawn beside those with a figure of their own, at most."""


def curves(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and each of them thin, with a band from
    the worst to the best where models are few.

    A run that diverged counts as chance from there on. A hollow end: undertrained, or its learning rate in
    doubt.
    """
    return _any(learning_curves(axes, part) for part, (axes,) in _panels(figure, comparison))


def distance(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the distance that an answer must be carried: the mean over seeds, and each of
    them thin, with a band from the worst to the best where models are few."""
    return _any(by_slice(axes, part, "distance") for part, (axes,) in _panels(figure, comparison))


def overwrites(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, and the share of answers that are an older value of what was asked, against how often
    that had been overwritten: means over seeds, and each of them thin, with bands from the worst to the best
    where models are few."""
    return _any(
        by_slice(left, part, "overwrites") and by_slice(right, part, "overwrites", "stale")
        for part, (left, right) in _panels(figure, comparison, across=2)
    )


def errors(figure: Figure, comparison: Comparison) -> bool:
    """What the answers of every model are, the best above: the last value of what was asked, an older one
    (the one before, the first, or between these; where but one is older, the one before), another key's, or
    one that never occurred. A strip for each seed, blank and below the others where it diverged."""
    _for_names(figure, comparison)
    return by_kind(figure.add_subplot(), comparison)


def lengths(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against the length of the tested sequences: the mean over seeds, and each of them thin,
    with a band from the worst to the best where models are few."""
    return _any(by_length(axes, part) for part, (axes,) in _panels(figure, comparison))


def state(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, of several tests their mean, against the floats that one sequence of the longest tested
    length carries from token to token: the mean over seeds, faint bars from the worst to the best, which lie
    upon each other where models are of one size; a line through the sizes of one model. Grey: the Pareto
    front, the most that any model reaches that carries no more, and the models of other panels. A hollow
    mark: undertrained, or its learning rate in doubt, and no part of the front. A colour for each generation,
    with a shade for each variant."""
    return _any(
        by_state(axes, part, comparison) for part, (axes,) in _panels(figure, comparison, widths="together")
    )


def width(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy, of several tests their mean, against the width of the model: the mean over seeds, bars
    from the worst to the best; marks of one width stand side by side. Grey: the models of other panels. A
    hollow mark: undertrained, or its learning rate in doubt. A name says where a model was not measured at
    every width."""
    return _any(
        by_width(axes, part, comparison) for part, (axes,) in _panels(figure, comparison, widths="together")
    )


def models(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy of every model, of several tests their mean, the best above: a small dot for each seed, a
    large one for their mean, hollow where it was undertrained or its learning rate was in doubt. A model of
    several sizes has a line of dots for each: the dots of a greater width are larger and stand above; of one
    width, what carries more stands above. A colour for each generation, with a shade for each variant."""
    _for_names(figure, comparison)
    return len(comparison.rows) > CROWD and by_model(figure.add_subplot(), comparison)


def rates(figure: Figure, comparison: Comparison) -> bool:
    """Validation accuracy of the tuning runs by learning rate, the model with the widest window above: a cell
    for every rate that was tried, the darker the better, with a strip for each tuning seed and their mean as
    a number, which is rounded, but never up to 0.90. Bold and underlined: the rate that was chosen. Not bold,
    the line hollow: it is in doubt, as the first or last of those tried, beside one that could not be tried,
    or a guess, where the best of them led no further than a twentieth of the way from chance to 1. A frame:
    the window around the best rate in which accuracy is at least 0.9; beside it how many decades wide it is,
    on straight lines between the rates that were tried, ≥ where it is open at the last of them."""
    _for_names(figure, comparison, inches=0.21)
    return by_rate(figure.add_subplot(), comparison)


def others(figure: Figure, comparison: Comparison) -> bool:
    """Test accuracy against all that it was told apart by besides: the mean over seeds, and each of them
    thin, with a band from the worst to the best where models are few."""
    found = dict.fromkeys(
        name for result in comparison.results for name in slices(result) if name not in FIGURES
    )
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
    titled(
        figure,
        f"{comparison.title}, {comparison.form} form, {_seeds(comparison, tuning=name == 'learning-rates')}",
        mpl.rcParams["axes.titlesize"],
    )
    if name not in UNMARKED:
        hollow, lawless = (
            not all(row.in_verdicts for row in comparison.rows),
            bool(broken(comparison.results)),
        )
        footnote(
            figure, tests=len(comparison.tests) if name in OVER_ALL else 0, hollow=hollow, lawless=lawless
        )
    return True


def _any(drawn: Iterable[bool]) -> bool:
    """Whether anything was drawn; every panel is tried."""
    return any(list(drawn))


def _seeds(comparison: Comparison, *, tuning: bool) -> str:
    """How many there are of every model, or those of the runs that chose its learning rate."""
    count = max(
        len({seed_of(result) for result in (row.tuning if tuning else row.results)})
        for row in comparison.rows
    )
    return counted(count, "tuning seed" if tuning else "seed")
