"""The stored results that tables, figures and the report are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from linbench.common.errors import UserError
from linbench.results.budgets import at_budget
from linbench.results.comparison import Comparison, comparisons
from linbench.results.record import benchmark_results
from linbench.results.schema import Result, ResultsByKind
from linbench.results.schema.benchmarks import SpeedResult, SweepResult, TimingResult
from linbench.results.schema.cells import CellResult
from linbench.results.schema.pretrained import PretrainedResult
from linbench.results.store import CELL, PROBE, SPEED, SWEEP


@dataclass(frozen=True)
class ReportData:
    """Stored results by what was measured.

    Args:
        cells: results of trained models.
        speeds: measurements of single layers.
        benchmarks: measurements of kernels, training steps and the drawing of examples.
        sweeps: measurements of whole suites.
        pretrained: answers of language models that were trained elsewhere.
    """

    cells: Sequence[CellResult] = ()
    speeds: Sequence[SpeedResult] = ()
    benchmarks: Sequence[TimingResult] = ()
    sweeps: Sequence[SweepResult] = ()
    pretrained: Sequence[PretrainedResult] = ()

    @classmethod
    def from_kinds(cls, results: ResultsByKind) -> "ReportData":
        """Return the data for what a store holds, by kind of result."""
        benchmarks = benchmark_results(results)
        return cls(results[CELL], results[SPEED], benchmarks, results[SWEEP], results[PROBE])

    def at_budget(self, times: int) -> "ReportData":
        """Return the ladders as they stood with so many times their base budget.

        Raises UserError: there is no such budget, as each is twice the one before.
        """
        if times < 1 or times & (times - 1):
            raise UserError(f"ladders have 1, 2, 4, 8, ... times their base budget, not {times} times.")
        return ReportData(at_budget(self.cells, times.bit_length() - 1))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The trained models, put together where they may stand side by side."""
        return comparisons(self.cells)

    @property
    def results(self) -> list[Result]:
        """All results."""
        return [*self.cells, *self.speeds, *self.benchmarks, *self.sweeps, *self.pretrained]
