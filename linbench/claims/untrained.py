"""Tables of what needs no training: update rules on random keys and values, and the baselines of a task."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import torch
from pydantic import Field

from linbench.common.settings import Settings
from linbench.experiments.plan_tasks import make_task
from linbench.verify import update_rules as untrained
from linbench.verify.baselines import baselines
from linbench.verify.update_rules import Row, Trials, named


class Table(Settings):
    """A table for every seed."""

    of: Literal["capacity", "overwriting", "retention", "blend", "reflections", "baselines"] = Field(
        description="what is asked; of rules, or baselines of a task"
    )
    rules: tuple[str, ...] = Field((), description="by their names; none: those that are compared by default")
    dim: int = Field(64, ge=2, description="of keys and values")
    trials: int = Field(32, ge=1, description="sequences that a figure is the mean of")
    dtype: Literal["float64", "float32"] = Field(
        "float64", description="of keys, values and what is computed with them"
    )
    task: str = Field("", description="of baselines: a name, or NAME/PRESET")
    more: dict[str, Any] = Field(
        {}, description="what else it takes, such as pairs; of baselines: settings, as task.NAME"
    )

    def rows(self, seed: int) -> list[Row]:
        """Every row, as `linbench untrained` has them, on the CPU. Raises UserError: a name that is not
        allowed."""
        if self.of == "baselines":
            task, *_ = make_task(self.task, preset=None, settings=self.more)
            return [
                {"baseline": each, **of.metrics}
                for each, of in baselines(task, examples=self.trials, seed=seed).items()
            ]
        rules = {"rules": [named(rule) for rule in self.rules]} if self.rules else {}
        rows: list[Row] = getattr(untrained, self.of)(
            **rules, **self.more, trials=Trials(self.trials, self.dim, seed, dtype=getattr(torch, self.dtype))
        )
        return rows


def value(table: Table, seed: int, where: Mapping[str, Any], of: str) -> float:
    """The figure in column `of` of the one row that has what `where` says."""
    fitting = [
        row
        for row in _rows(table.model_dump_json(), seed)
        if all(str(row.get(name)) == str(wanted) for name, wanted in where.items())
    ]
    assert len(fitting) == 1, f"{len(fitting)} rows of {table} have {where}"
    return float(fitting[0][of])


@cache
def _rows(table: str, seed: int) -> list[Row]:
    return Table.model_validate_json(table).rows(seed)
