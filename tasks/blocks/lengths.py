"""Sequences of several lengths, each in a row that the longest would fill."""

from typing import Any, Self

from pydantic import model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.random import Stream


class Lengths(Settings):
    """Settings of tasks with variable length: every length from shortest to longest is equally likely."""

    min_length: int
    max_length: int

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must be at most max_length; {self.min_length} is above {self.max_length}"
            )
        return self

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with both lengths `times` as long."""
        return {"min_length": times * self.min_length, "max_length": times * self.max_length}


def draw_length(stream: Stream, shortest: int, longest: int, *, step: int = 1) -> Tensor:
    """Draw lengths [B, 1], uniform from the shortest in steps up to the longest."""
    return shortest + step * stream.child("length").integers(1, below=(longest - shortest) // step + 1)
