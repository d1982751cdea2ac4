"""The fields of a file of claims, validated."""

from datetime import date
from typing import Any, Literal

from pydantic import Field, field_validator

from linbench.common.settings import Settings

TIERS = {
    "T0": "seconds, nothing trained",
    "T1": "under 3 minutes",
    "T2": "3 to 15 minutes",
    "T3": "15 to 60 minutes",
    "X": "not at this size",
}
"""The estimated cost of one configuration of a model on a GPU."""


class MeasureSettings(Settings):
    """The settings of a measure: which results it looks at, and which number in them."""

    cells: str = Field(
        "",
        description=(
            "the name of the cells, table or timings in its file; may be left out if there is only one"
        ),
    )
    model: str = Field("", description="a layer pattern; empty for a table")
    where: dict[str, Any] = Field(
        {},
        description=(
            "for cells, the settings that select them, by dotted names; for a table, the values that select"
            " its row; for timings, the length"
        ),
    )
    of: str = Field(
        "accuracy",
        description=(
            "for cells: accuracy, scaled (accuracy above chance), `steps to 0.9`, or any metric; for a table:"
            " a column; for timings: `training tokens per second`"
        ),
    )
    at: dict[str, int | str] = Field(
        {}, description="a slice of the test examples: its name, and a value or a range such as 41-256"
    )
    test: dict[str, Any] = Field(
        {}, description="if a cell has several tests: the settings of the one meant, by bare names"
    )
    along: str = Field(
        "",
        description=(
            "a slice, or a setting by its dotted name; with `reaching`, the measure is the largest value up"
            " to which all scores are high enough"
        ),
    )
    reaching: float | None = Field(None, description="the score that is high enough for `along`")
    across: Literal["", "tasks"] = Field("", description="tasks: take the mean over the tasks of the cells")
    marked: bool = Field(
        False, description="count runs even if they are marked, for example as still improving"
    )


class Needs(Settings):
    """Requirements of a claim that linbench may not have."""

    models: tuple[str, ...] = Field((), description="layer patterns, with the settings that are needed")
    tasks: tuple[str, ...] = Field((), description="names of tasks")
    other: tuple[str, ...] = Field((), description="anything else, in words")


class Deviation(Settings):
    """A change of a rule, or of its experiment, after it first stood in the repository."""

    dated: date = Field(description="the day of the change")
    what: str = Field(description="the change, and the reason for it")
    seen: str = Field(description="the results that had been looked at by then")


class ClaimText(Settings):
    """A claim as it is written in its file."""

    says: str = Field(description="the statement")
    source: str = Field(description="where it is published")
    published: str = Field(description="the numbers published with it")
    tier: str = Field(description="T0, T1, T2, T3, X, or a range such as T1-T2")
    setting: str = Field(description="the experiment that should decide it")
    rule: str = Field(description="in words, what supports it and what refutes it")
    here: str = Field("", description="how the experiment here differs from that")
    care: str = Field("", description="what its numbers do not show; decides nothing")
    needs: Needs = Needs()
    measure: dict[str, Any] = Field({}, description="fields that its measures share")
    measures: dict[str, str | dict[str, Any]] = Field(
        {}, description="measures by names of your own, each a model or a mapping"
    )
    premise: str = Field("", description="a condition that both rules need, such as that a model has learned")
    supported: str = Field("", description="the rule that supports it")
    refuted: str = Field("", description="the rule that refutes it")
    dated: date | None = Field(
        None, description="the day on which its rules first stood in the repository, if not that of its file"
    )
    seen: str = Field("", description="results that were known when the rules were written")
    deviations: tuple[Deviation, ...] = Field((), description="what was changed since, in order")
    figure: str = Field(
        "", description="the kind of figure that shows it, such as overwrites; for timings, replayed"
    )

    @field_validator("tier")
    @classmethod
    def _known_tier(cls, value: str) -> str:
        if any(part not in TIERS for part in value.split("-")):
            raise ValueError(f"tiers are {', '.join(TIERS)}")
        return value


class Section(Settings):
    """A file of claims."""

    title: str
    dated: date | None = Field(None, description="the day on which its rules first stood in the repository")
    cells: dict[str, dict[str, Any]] = Field(
        {},
        description=(
            "cells by names of their own: as in a suite but without models and seeds, or part of a suite"
        ),
    )
    untrained: dict[str, dict[str, Any]] = Field({}, description="tables by names of their own")
    timed: dict[str, dict[str, Any]] = Field({}, description="timings of layers by names of their own")
    claims: dict[str, dict[str, Any]] = Field(description="claims by their ids")
