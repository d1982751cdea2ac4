"""The stored results that tables, figures and the report are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from linbench.results.comparison import Comparison, comparisons
from linbench.results.record import Result, benched
from linbench.results.store import CELL, SPEED


@dataclass(frozen=True)
class ReportData:
    """Stored results by what was measured.

    Args:
        cells: results of trained models.
        speeds: measurements of single layers.
        benchmarks: measurements of kernels, training steps and the drawing of examples.
    """

    cells: Sequence[Result] = ()
    speeds: Sequence[Result] = ()
    benchmarks: Sequence[Result] = ()

    @classmethod
    def from_kinds(cls, kept: Mapping[str, Sequence[Result]]) -> "ReportData":
        """Return the data for what a store holds, by kind of result."""
        return cls(kept[CELL], kept[SPEED], benched(kept))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The trained models, put together where they may stand side by side."""
        return comparisons(self.cells)

    @property
    def results(self) -> list[Result]:
        """All results."""
        return [*self.cells, *self.speeds, *self.benchmarks]
