"""What a gate lets pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from linbench.common.settings import Settings
from linbench.common.yaml_files import read_mapping


class Bimodal(Settings):
    """A cell that some seeds of the baseline learn and some do not: there the mean says little, and the seeds
    that learn are counted."""

    task: str = Field(description="as results name it: a name, or NAME/PRESET")
    model: str = Field(description="as it was written for the run")
    learnt: float = Field(gt=0, le=1, description="test accuracy from which on a seed has learnt")


class Policy(Settings):
    """Unless a file says otherwise, a cell is red if its mean drops by more than 2 points and the drop is
    shown among all that are gated."""

    drop: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="by how much mean accuracy may fall without more ado; 0.02 are two points",
    )
    alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description=(
            "probability of calling any cell of an unchanged model red, at most, by Holm's correction"
        ),
    )
    seeds: int = Field(6, ge=2, le=10_000, description="seeds that every cell must have on both sides")
    bimodal: tuple[Bimodal, ...] = Field(
        (), description="cells in which seeds that learn are counted, each as task, model and learnt"
    )
    slower: float | None = Field(
        None,
        gt=1,
        description=(
            "stored speeds are gated, too: how many times as long a call may take; without it they are only"
            " shown"
        ),
    )
    may_differ: tuple[Literal["device", "torch", "triton"], ...] = Field(
        (), description="of the environments, what is allowed to"
    )

    @field_validator("bimodal", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """One by one, so that what is wrong is said of its own settings."""
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str)
            or not all(isinstance(one, dict) for one in value)
        ):
            raise ValueError("each bimodal cell is a mapping with task, model and learnt")
        return [Bimodal.parse(one, where=f"policy.bimodal.{i}") for i, one in enumerate(value)]


def load(path: Path | None) -> Policy:
    """The policy of a YAML file, the default without one. Raises UserError: it cannot be read, or says what
    is not allowed."""
    return (
        Policy.parse(read_mapping(path, "policy", Policy.model_fields), where="policy") if path else Policy()
    )
