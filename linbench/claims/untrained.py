"""The source of measures that need no training: tables of update rules, and baselines of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from pydantic import Field

from linbench.claims.evidence import Evidence
from linbench.claims.measure import Measure, Source, Work
from linbench.claims.schema import MeasureSettings
from linbench.claims.seed_evidence import SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.experiments.plan_tasks import make_task
from linbench.verify import update_rules
from linbench.verify.baselines import baselines
from linbench.verify.update_rules import Row, Trials, named


class Table(Settings):
    """A table that is computed for every seed."""

    of: Literal["capacity", "overwriting", "retention", "blend", "reflections", "baselines"] = Field(
        description="the experiment with update rules, or baselines of a task"
    )
    rules: tuple[str, ...] = Field((), description="names of update rules; none: the default ones")
    dim: int = Field(64, ge=2, description="dimensions of keys and values")
    trials: int = Field(32, ge=1, description="sequences in each mean")
    dtype: Literal["float64", "float32"] = Field("float64", description="type of all numbers")
    task: str = Field("", description="for baselines: the task, NAME or NAME/PRESET")
    more: dict[str, Any] = Field(
        {}, description="further arguments, such as pairs; for baselines: settings as task.NAME"
    )

    def rows(self, seed: int) -> list[Row]:
        """Compute all rows on the CPU, as `linbench untrained` does. Raises UserError: an unknown name."""
        if self.of == "baselines":
            task, *_ = make_task(self.task, preset=None, settings=self.more)
            scores = baselines(task, examples=self.trials, seed=seed)
            return [{"baseline": name, **score.metrics} for name, score in scores.items()]
        rules = {"rules": [named(rule) for rule in self.rules]} if self.rules else {}
        trials = Trials(self.trials, self.dim, seed, dtype=getattr(torch, self.dtype))
        rows: list[Row] = getattr(update_rules, self.of)(**rules, **self.more, trials=trials)
        return rows

    def value(self, seed: int, where: Mapping[str, Any], column: str) -> float:
        """Return the number in a column of the one row that has these values."""
        rows = [
            row
            for row in _rows(self.model_dump_json(), seed)
            if all(str(row.get(name)) == str(value) for name, value in where.items())
        ]
        assert len(rows) == 1, f"{len(rows)} rows of {self} have {where}"
        return float(rows[0][column])


@cache
def _rows(table: str, seed: int) -> list[Row]:
    return Table.model_validate_json(table).rows(seed)


@dataclass(frozen=True)
class TableSource(Source):
    """A table that is computed whenever it is needed; nothing of it is stored."""

    name: str
    table: Table

    uses_device = False

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any], models: Sequence[str], where: str) -> "TableSource":
        """Read a table. Raises UserError: see `Source.read`."""
        return cls(name, Table.parse(given, where=where))

    def settings(self, model: str) -> dict[str, Any]:
        """Return the settings of the table."""
        return self.table.model_dump(mode="json")

    def check(self, settings: MeasureSettings, where: str) -> None:
        """Raise UserError if a model is named."""
        if settings.model:
            raise UserError(f"{where}: leave the model out; the table {self.name} has none.")

    def work(self, measure: Measure, device: str, seeds: int) -> Work:
        """Return no work: nothing is run for a table."""
        return Work()

    def missing(self, measure: Measure, stored: Stored, device: str, seeds: int) -> Work:
        """Return no work: nothing is ever missing."""
        return Work()

    def evidence(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> Evidence:
        """Return the number in the table for each seed."""
        settings = measure.settings
        return SeedEvidence(
            {seed: self.table.value(seed, settings.where, settings.of) for seed in range(seeds)}
        )

    def result_ids(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> set[str]:
        """Return no ids: no stored result is read."""
        return set()
