"""Figures of stored results, one module for each; a scan of this folder finds each by its `FIGURE`.

The module's name with hyphens is the name of the figure on the command line and in files.
"""

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from linbench.common.scan import submodule_names, submodules

if TYPE_CHECKING:
    # not otherwise: `linbench figures --help` names the figures, and matplotlib takes a second to load
    from linbench.report.data import ReportData
    from linbench.report.figure import ComparisonFigure, Drawing, Figure
    from linbench.results.comparison import Comparison


def figure_names() -> list[str]:
    """Return the sorted names of all figures, without importing any."""
    return [name.replace("_", "-") for name in submodule_names(sys.modules[__name__])]


def figures() -> "list[Figure]":
    """Return all figures, in their order."""
    found: list[Figure] = [module.FIGURE for module in submodules(sys.modules[__name__])]
    return sorted(found, key=lambda figure: (figure.order, figure.name))


def comparison_figures() -> "list[ComparisonFigure]":
    """Return the figures of comparisons, in their order."""
    from linbench.report.figure import ComparisonFigure

    return [figure for figure in figures() if isinstance(figure, ComparisonFigure)]


def drawings_after_run(comparisons: "Sequence[Comparison]") -> "list[Drawing]":
    """Return what `linbench run` draws of the models that it has trained."""
    return [
        figure.drawing(comparison)
        for comparison in comparisons
        for figure in comparison_figures()
        if figure.after_run
    ]


def drawings(data: "ReportData", names: Collection[str] | None = None) -> "list[Drawing]":
    """Return all that can be drawn of stored results.

    The figures of each comparison come first, one comparison after the other, then the others.

    Args:
        data: the results.
        names: of figures; default: all.
    """
    wanted = [figure for figure in figures() if names is None or figure.name in names]
    of_comparisons = [figure for figure in comparison_figures() if figure in wanted]
    found = [
        figure.drawing(comparison)
        for comparison in data.comparisons
        for figure in of_comparisons
        if figure.applies(comparison)
    ]
    for figure in wanted:
        if figure not in of_comparisons:
            found += figure.drawings(data)
    return found
