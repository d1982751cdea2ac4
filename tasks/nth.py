"""Recall by count."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_share
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.timeline import log2_distance, log2_distance_size
from linbench.tasks.random import Stream

BLANK = 0
"""Token that does not count; the questions follow, for the first and so on, and then the values."""


class NthSettings(Settings):
    """Settings: length, how many values stand among the blanks, and how many are asked for."""

    seq_len: int = Field(
        64, ge=4, description="length of a sequence: values and blanks, and at its end the questions"
    )
    items: int = Field(8, ge=2, description="values among the blanks")
    values: int = Field(16, ge=2, description="value tokens, each equally likely at each place")
    asked: int = Field(8, ge=1, description="questions, each for another number")

    @property
    def text(self) -> int:
        """Return how many tokens stand before the questions."""
        return self.seq_len - self.asked

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.asked > self.items:
            raise ValueError(
                f"each of the questions is for another value, so asked must be at most items = {self.items},"
                f" not {self.asked}"
            )
        if self.text < self.items:
            raise ValueError(
                f"{self.items} values and {self.asked} questions take {self.items + self.asked} places, so"
                f" seq_len must be at least {self.items + self.asked}, not {self.seq_len}"
            )
        return self


class Nth(Task):
    """Among blanks there are values: which was the first, the second, or the n-th?

    Values stand anywhere among blanks, and are asked for by their number. A layer must count values and not
    positions, and store each value under its count, since nothing beside a value tells its number. It does
    not tell of recall by content, or of values that are replaced.

    Layout: the values at random places, the rest blank. Then questions, each one token that says which number
    is due, in random order and without repeats. No answer is among the inputs.

    Chance: the most common value.

    linbench's own, after the selective copying of Golovneva et al. 2024 (CoPE), arXiv:2405.18719, where the
    values are due in order, so that each follows from the one before.
    """

    name = "nth"
    skill = "remember"
    Settings = NthSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: 4 values in 32 tokens",
            task={"seq_len": 32, "items": 4, "asked": 4},
            protocol={"lr": 5e-3, "tokens": 2_048_000},
        ),
        "quick-8": Preset(
            "8 values in 64 tokens; needs more than these tokens to be learned",
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "sparse": Preset(
            "8 values in 256 tokens", task={"seq_len": 256}, protocol={"lr": 3e-3, "tokens": 16_384_000}
        ),
        "many": Preset(
            "32 values in 256 tokens, all asked for",
            task={"seq_len": 256, "items": 32, "asked": 32},
            protocol={"lr": 3e-3, "tokens": 65_536_000},
        ),
        "cope": Preset(
            "the size of 2405.18719: 256 values among 256 blanks; 64 of them asked for",
            task={"seq_len": 576, "items": 256, "asked": 64},
            protocol={"lr": 1e-3, "tokens": 262_144_000},
        ),
    }

    settings: NthSettings

    @property
    def io(self) -> IO:
        """Blank, the questions and the values; one vocabulary for both."""
        size = self._first_value + self.settings.values
        return IO(size, size)

    @property
    def _first_value(self) -> int:
        return 1 + self.settings.items

    @property
    def answers(self) -> int:
        """One for each question."""
        return self.settings.asked

    def chance(self) -> float:
        """Return the accuracy of naming the most common value."""
        return most_common_share(self.settings.items, self.settings.values)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        number: how many values stand before the one asked for. doublings: base-2 logarithm of the distance in
        tokens from the value to the question, 0 for 1, 1 for 2 and 3, 2 for 4 to 7, and so on.
        """
        return {"number": self.settings.items, "doublings": log2_distance_size(self.seq_len)}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order of the questions."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        every = torch.arange(s.items, device=device)
        places = stream.child("places").permutation(s.text)(every).sort(dim=1).values
        values = self._first_value + stream.child("values").integers(s.items, below=s.values)
        number = stream.child("questions").permutation(s.items)(every[: s.asked])
        blanks = torch.full((len(index), s.text), BLANK, device=device)
        at = (s.text + every[: s.asked]).expand_as(number)
        around = torch.nn.functional.pad(values, (1, 1), value=IGNORE)
        beside = torch.stack([around.gather(1, number), around.gather(1, number + 2)], dim=2)
        return Batch(
            torch.cat([blanks.scatter(1, places, values), 1 + number], dim=1),
            at,
            values.gather(1, number),
            {"number": number, "doublings": log2_distance(at - places.gather(1, number))},
            {"beside": beside},
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "beside": how often the answer is wrong, but right for the value before or after."""
        beside = (prediction.answers[:, :, None] == batch.facts["beside"]).any(dim=2)
        wrong = prediction.answers != batch.targets
        return super().means(batch, prediction) | {"beside": WeightedMean(beside & wrong)}

    def solve(self, batch: Batch) -> Tensor:
        """Count the values so far, and take the one with the number that is asked for."""
        text = batch.inputs[:, : self.settings.text]
        is_value = text != BLANK
        count = is_value.cumsum(dim=1)
        asked = batch.inputs.gather(1, batch.positions)
        found = [
            (text * (is_value & (count == number))).sum(dim=1) for number in torch.split(asked, 1, dim=1)
        ]
        return torch.stack(found, dim=1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the values in their order, and the questions with their answers."""
        text = batch.inputs[row, : self.settings.text].tolist()
        told = [f"{token} at {at}" for at, token in enumerate(text) if token != BLANK]
        asked = [
            f"at position {at}, for value {number + 1}: {target}"
            for at, number, target in zip(
                batch.positions[row].tolist(),
                batch.slices["number"][row].tolist(),
                batch.targets[row].tolist(),
                strict=True,
            )
        ]
        return (
            f"The values are, in order, {join_examples(told, 24, ', ')}; all else before the questions is"
            f" blank. The questions are: {join_examples(asked, 12)}."
        )
