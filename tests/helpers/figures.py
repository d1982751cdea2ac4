"""Helpers of tests of figures: figures by name, and their drawings and files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linbench.report.data import ReportData
from linbench.report.figure import USUAL, Drawing, save
from linbench.report.figures import comparison_figures
from linbench.report.figures import drawings as drawings_of
from linbench.results.comparison import Comparison

FIGURES = {figure.name: figure for figure in comparison_figures()}


def drawings(comparison: Comparison, names: Sequence[str] = tuple(FIGURES)) -> list[Drawing]:
    return [FIGURES[name].drawing(comparison) for name in names]


def save_figures(
    comparisons: Sequence[Comparison],
    folder: Path,
    names: Sequence[str] = tuple(FIGURES),
    formats: Sequence[str] = USUAL,
) -> list[Path]:
    return save([drawing for one in comparisons for drawing in drawings(one, names)], folder, formats)


def speed_drawings(
    speeds: Sequence[Any],
    cells: Sequence[Any] = (),
    names: Sequence[str] = ("speed", "forms", "recall-speed"),
) -> list[Drawing]:
    return drawings_of(ReportData(cells, speeds), names)
