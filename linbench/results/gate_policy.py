"""The policy of a gate: how much worse a candidate may be."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from linbench.common.settings import Settings
from linbench.common.yaml_files import read_mapping


class Bimodal(Settings):
    """A cell that only some seeds of the baseline learn.

    Its mean says little, so the seeds that learn are counted.
    """

    task: str = Field(description="task of the cell: NAME, or NAME/PRESET")
    model: str = Field(description="model of the cell, as it was written for the run")
    learnt: float = Field(gt=0, le=1, description="test accuracy from which on a seed has learned")
    later: bool = Field(
        False,
        description=(
            "whether the cell is red, too, if its seeds learn later; that is one more test in the correction"
        ),
    )


class Policy(Settings):
    """The rules by which cells are judged.

    By default a cell is red if its mean accuracy drops by more than 2 points and the drop is significant
    among all gated cells.
    """

    drop: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="largest drop of mean accuracy that always passes; 0.02 is two points",
    )
    alpha: float = Field(
        0.01,
        gt=0,
        lt=1,
        description=(
            "largest probability that any cell of an unchanged model is called red, after the correction"
        ),
    )
    correction: Literal["holm", "fdr"] = Field(
        "holm",
        description=(
            "for many cells; holm: alpha is the chance of any false red, fdr: the share of false ones among"
            " the red"
        ),
    )
    seeds: int = Field(
        6, ge=2, le=10_000, description="number of seeds that every cell must have on both sides"
    )
    bimodal: tuple[Bimodal, ...] = Field(
        (), description="cells in which seeds that learn are counted, each with task, model and learnt"
    )
    slower: float | None = Field(
        None,
        gt=1,
        description=(
            "largest ratio of a call's time to the baseline's; if it is set, stored speeds are gated,"
            " otherwise only shown"
        ),
    )
    may_differ: tuple[Literal["device", "torch", "triton"], ...] = Field(
        (), description="parts of the environment that may differ"
    )

    @field_validator("bimodal", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Parse the cells one by one, so that an error names the setting that is wrong."""
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str)
            or not all(isinstance(one, dict) for one in value)
        ):
            raise ValueError("each bimodal cell is a mapping with task, model and learnt")
        return [Bimodal.parse(one, where=f"policy.bimodal.{i}") for i, one in enumerate(value)]


def load(path: Path | None) -> Policy:
    """Read a policy from a YAML file; without a file return the default policy.

    Raises UserError: the file cannot be read, or has a setting or value that is not allowed.
    """
    return (
        Policy.parse(read_mapping(path, "policy", Policy.model_fields), where="policy") if path else Policy()
    )
