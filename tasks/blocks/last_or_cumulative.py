"""Tasks on sequences of several lengths that ask once, at the end, or after every token."""

from typing import Any, Literal, Self

from pydantic import model_validator

from linbench.tasks.base import Task
from linbench.tasks.blocks.label_every import refuse_single
from linbench.tasks.blocks.lengths import Lengths


class LastOrCumulativeSettings(Lengths):
    """Settings: lengths, whether the answer is due at the end or at every token, and sparse labels."""

    answer: Literal["last", "cumulative"]
    label_every: int

    @model_validator(mode="after")
    def _sparse(self) -> Self:
        if self.answer == "last":
            refuse_single(self.label_every, "answer", "last")
        return self


class LastOrCumulative(Task):
    """A task whose answer is due once, at the last token, or at every token."""

    settings: LastOrCumulativeSettings

    @property
    def seq_len(self) -> int:
        """Tokens of the longest sequence."""
        return self.settings.max_length

    @property
    def answers(self) -> int:
        """One, or one per token of the longest sequence."""
        return 1 if self._last else self.settings.max_length

    @property
    def _last(self) -> bool:
        return self.settings.answer == "last"

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with both lengths longer."""
        return self.settings.longer(times)
