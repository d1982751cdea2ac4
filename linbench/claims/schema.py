"""The fields of a claim's YAML, validated."""

from typing import Any, Literal

from pydantic import Field, field_validator

from linbench.common.settings import Settings

LEAST_SEEDS = 3
"""Fewer decide nothing."""

TIERS = {
    "T0": "seconds, nothing trained",
    "T1": "under 3 minutes",
    "T2": "3 to 15 minutes",
    "T3": "15 to 60 minutes",
    "X": "not at this size",
}
"""What a model costs in one configuration, by estimate, on a GPU."""


class Measure(Settings):
    """A number for every seed, or of calls that are timed: what to look at in which results, or in which
    table of what needs no training."""

    cells: str = Field(
        "", description="the cells, the table or the layers timed of its section; nothing: the only ones"
    )
    model: str = Field("", description="a layer pattern; of a table: none")
    where: dict[str, Any] = Field(
        {},
        description=(
            "settings of the cells meant, by dotted names; of a table: what its rows have; of layers timed:"
            " length"
        ),
    )
    of: str = Field(
        "accuracy",
        description=(
            "accuracy, scaled (above chance), `steps to 0.9`, or any metric; a table's column; `training"
            " tokens per second`"
        ),
    )
    at: dict[str, int | str] = Field({}, description="of a slice: its value, or a range such as 41-256")
    test: dict[str, Any] = Field(
        {}, description="of several tests the one with these settings, by bare names"
    )
    along: str = Field(
        "",
        description=(
            "a slice, or a setting by its dotted name, with `reaching`: the largest value up to which all"
            " reach so much"
        ),
    )
    reaching: float | None = Field(None, description="of `along`")
    across: Literal["", "tasks"] = Field(
        "", description="tasks: the mean of those that the cells have, each once for a seed"
    )
    over: Literal["mean", "best"] = Field(
        "mean", description="of seeds; best: as where published figures are the best of some"
    )
    marked: bool = Field(
        False,
        description=(
            "whether runs count whatever their marks, as where what is asked is which rates or layers are"
            " enough"
        ),
    )


class Needs(Settings):
    """What a claim cannot be decided without and that may not be there."""

    models: tuple[str, ...] = Field((), description="layer patterns, with the options that are asked for")
    tasks: tuple[str, ...] = Field((), description="by name")
    other: tuple[str, ...] = Field((), description="what no name stands for, in words")


class ClaimText(Settings):
    """A claim as it stands in its file."""

    says: str = Field(description="the statement")
    source: str = Field(description="where it is from")
    published: str = Field(description="the figure that goes with it")
    tier: str = Field(description="T0, T1, T2, T3, X, or a range such as T1-T2")
    setting: str = Field(description="what it should be tried on")
    rule: str = Field(description="what bears it out and what refutes it, in words")
    here: str = Field(
        "", description="where that cannot be carried over as it stands: what is done in its place"
    )
    care: str = Field(
        "", description="what its figures do not tell, said when they were there; it decides nothing"
    )
    needs: Needs = Needs()
    measure: dict[str, Any] = Field({}, description="what its measures share")
    measures: dict[str, str | dict[str, Any]] = Field(
        {}, description="by names of their own, each a model or a mapping"
    )
    supported: str = Field("", description="the rule that bears it out")
    refuted: str = Field("", description="the rule that refutes it")
    figure: str = Field(
        "", description="the kind of figure that shows it, such as overwrites; of layers timed: replayed"
    )

    @field_validator("tier")
    @classmethod
    def _known_tier(cls, value: str) -> str:
        if any(part not in TIERS for part in value.split("-")):
            raise ValueError(f"tiers are {', '.join(TIERS)}")
        return value
