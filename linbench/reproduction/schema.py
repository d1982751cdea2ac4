"""Published tables as YAML files say them."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from linbench.common.settings import Settings
from linbench.experiments.suite import SuiteTask
from linbench.reproduction.printed import Printed

Trust = Literal["text", "screenshot", "figure", "card", "figure described"]

TRUST: dict[Trust, str] = {
    "text": "read in the text of the paper or its repository",
    "screenshot": "read in a picture of the table",
    "figure": "read off a figure, with an error of reading",
    "card": "taken from an earlier reference card; the source was not opened again",
    "figure described": "taken from descriptions of a figure, which disagree",
}
"""Ways in which printed numbers were read."""

NOT_VERIFIED: frozenset[Trust] = frozenset({"card", "figure described"})
"""Ways that may have given a wrong number, so that a run which misses it says nothing yet."""

Unit = Literal["accuracy", "scaled", "sequence", "macro", "error"]

UNITS: dict[Unit, str] = {
    "accuracy": "accuracy x 100",
    "scaled": "(accuracy - chance) / (1 - chance) x 100",
    "sequence": "whole sequences right x 100",
    "macro": "accuracy x 100, as the mean over classes",
    "error": "wrong answers x 100",
}

Select = Literal["best", "best seed", "best rate", "best validation", "mean"]

SELECT: dict[Select, str] = {
    "best": "the best of all settings and seeds, by tests",
    "best seed": "the best seed at the setting with the best mean, by tests",
    "best rate": "the best setting of one seed, by tests",
    "best validation": "the mean at the setting where one seed has the best validation accuracy",
    "mean": "the mean at the setting with the best mean, by tests",
}
"""Choices of papers among their settings and seeds, which are part of a number."""

FIRST_SEED_CHOOSES: frozenset[Select] = frozenset({"best rate", "best validation"})
"""Choices that one seed of every setting makes."""


class PublishedColumn(SuiteTask):
    """A column of a table: a task, and which of its tests."""

    of: int | None = Field(None, ge=0, description="which test; null is their mean")
    trust: Trust | None = Field(None, description="where its numbers were read; null is as in the table")


class PublishedRow(Settings):
    """A row of a table: a model, and the printed values in the order of the columns."""

    model: str | None = Field(None, description="a layer pattern; null: the row's name is one")
    set: dict[str, Any] = Field({}, description="settings of this model alone, by dotted names")
    needs: str | None = Field(None, description="what linbench does not have, without which it cannot run")
    trust: Trust | None = Field(
        None, description="where its numbers were read; null is as in their columns, and else as in the table"
    )
    values: tuple[Any, ...] = Field(min_length=1, description="printed values; null: none is printed")

    @model_validator(mode="before")
    @classmethod
    def _from_values(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list | tuple) else value

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check every value; they stay as they are written."""
        for value in values:
            if value is not None:
                Printed.read(value)
        return values

    @property
    def printed(self) -> list[Printed | None]:
        """The values, read."""
        return [None if value is None else Printed.read(value) for value in self.values]


class Switch(Settings):
    """A change of the set-up that may be why ours is another number, written down before it is run."""

    expects: str = Field(description="what is expected of it")
    rows: tuple[str, ...] | None = Field(None, description="rows that it is tried on; null: all")
    columns: tuple[str, ...] | None = Field(None, description="columns that it is tried on; null: all")
    set: dict[str, Any] = Field({}, description="settings in place of the table's, by dotted names")
    grid: dict[str, tuple[Any, ...]] = Field({}, description="other values to choose among")
    models: dict[str, str] = Field({}, description="layer patterns in place of those of rows")


class PublishedTable(Settings):
    """A published table: what was run, how a number was chosen, and the numbers."""

    title: str = Field(description="what it shows, in a line")
    source: str = Field(description="paper with its arXiv id, and which table or figure")
    trust: Trust = Field(description="where the numbers were read")
    tolerance: float = Field(gt=0, description="points within which ours is the same, reading included")
    unit: Unit = Field("accuracy", description="what the numbers are")
    select: Select = Field(description="what was chosen among settings and seeds")
    differs: tuple[str, ...] = Field((), description="what is known to differ from the publication here")
    form: str | None = Field(None, description="native or controlled")
    protocol: str | None = Field(None, description="a published protocol by name")
    seeds: str = Field("0-2", description="such as 0,1,2 or 0-4")
    set: dict[str, Any] = Field({}, description="settings of all, by dotted names")
    grid: dict[str, tuple[Any, ...]] = Field(
        {}, description="settings that are chosen among, with their values"
    )
    columns: dict[str, PublishedColumn] = Field(min_length=1, description="columns by their headings")
    rows: dict[str, PublishedRow] = Field(min_length=1, description="rows by the names that are shown")
    switches: dict[str, Switch] = Field({}, description="changes of the set-up to try, by their names")

    @model_validator(mode="after")
    def _as_many_values(self) -> Self:
        for name, row in self.rows.items():
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"the row {name} has {len(row.values)} values for {len(self.columns)} columns"
                )
        return self

    @model_validator(mode="after")
    def _switches_of_what_is_there(self) -> Self:
        for name, switch in self.switches.items():
            named = {"row": {*(switch.rows or ()), *switch.models}, "column": {*(switch.columns or ())}}
            for kind, known in (("row", self.rows), ("column", self.columns)):
                if absent := sorted(named[kind] - known.keys()):
                    raise ValueError(f"the switch {name} names the {kind} {absent[0]}, which is not there")
            if not (switch.set or switch.grid or switch.models):
                raise ValueError(f"the switch {name} changes nothing")
        return self
