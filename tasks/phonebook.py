"""A telephone book."""

from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_of_rest
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.random import Stream

ENTRY, ASK, DIGITS, NAMES = 0, 1, 2, 12
"""Tokens, of which NAMES is the first first name; last names follow."""


class PhonebookSettings(Settings):
    """Settings: length of the book and its vocabulary."""

    entries: int = Field(6, ge=1, description="names with their numbers")
    demonstrations: int = Field(
        2, ge=0, description="other entries that are asked for and answered before the question"
    )
    digits: int = Field(10, ge=1, le=64, description="digits of a number")
    first_names: int = Field(64, ge=1, description="number of first names")
    last_names: int = Field(64, ge=1, description="number of last names")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.entries <= self.demonstrations:
            raise ValueError(
                f"{self.demonstrations} demonstrations and a question need at least"
                f" {self.demonstrations + 1} entries, not {self.entries}"
            )
        if self.entries > self.first_names * self.last_names:
            raise ValueError(
                f"{self.entries} entries need as many names, and first_names * last_names is only"
                f" {self.first_names * self.last_names}"
            )
        return self


class Phonebook(Task):
    """Given a phone book, which number does this name have?

    Entries of two names and ten digits come first, then two questions with their answers as demonstrations.
    Then the number of a third name is due digit by digit, and the digits before each one can be read.
    Everything must be held exactly before it is known what will be asked for, and one wrong digit spoils the
    answer (`exact`). It does not tell what a layer makes of sentences.

    Layout: no two entries have the same two names, but many share one of them.

    Chance: the most common digit among the entries that agree with the digits said.

    Jelassi et al. 2024 (Repeat After Me), arXiv:2402.01032, where pretrained models read such a book as text:
    here each name is a token.
    """

    name = "phonebook"
    skill = "remember"
    solved_by = ("suffix",)
    Settings = PhonebookSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset("minutes on a laptop: six entries", protocol={"tokens": 2_000_000, "lr": 3e-3}),
        **{
            f"repeat-after-me-{entries}": Preset(f"{entries} entries", task={"entries": entries})
            for entries in (10, 100, 500)
        },
    }

    settings: PhonebookSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both."""
        size = NAMES + self.settings.first_names + self.settings.last_names
        return IO(size, size)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence; the last digit is asked for and stands nowhere."""
        return (self.settings.entries + self.settings.demonstrations + 1) * self._line - 1

    @property
    def answers(self) -> int:
        """The digits of a number."""
        return self.settings.digits

    @property
    def _line(self) -> int:
        return 3 + self.settings.digits

    def chance(self) -> float:
        """Return the accuracy of naming the most common digit among possible entries.

        Possible are entries that no demonstration showed and that agree with the digits said: after few of
        these it is one entry, so that `exact` tells more. Of a single entry, any digit.
        """
        s = self.settings
        entries = s.entries - s.demonstrations
        return (
            sum(most_common_of_rest(entries, share=10.0**-place, values=10) for place in range(s.digits))
            / s.digits
            if entries > 1
            else 1 / 10
        )

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more entries."""
        return {"entries": times * self.settings.entries}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        entry: number of entries before the one asked for. place: of the digit in the number.
        """
        return {"entry": self.settings.entries, "place": self.settings.digits}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order of the digits."""
        s, device, rows = self.settings, index.device, index.shape[0]
        stream = Stream.of(index, seed=seed, split=split)
        names = stream.child("names").permutation(s.first_names * s.last_names)(
            torch.arange(s.entries, device=device)
        )
        numbers = DIGITS + stream.child("numbers").integers(s.entries * s.digits, below=10).view(
            rows, s.entries, s.digits
        )
        first, last = NAMES + names // s.last_names, NAMES + s.first_names + names % s.last_names
        book = torch.cat([torch.stack([torch.full_like(names, ENTRY), first, last], dim=2), numbers], dim=2)
        chosen = stream.child("chosen").permutation(s.entries)(
            torch.arange(s.demonstrations + 1, device=device)
        )
        asked = book.gather(1, chosen[:, :, None].expand(-1, -1, self._line))
        asked[:, :, 0] = ASK
        place = torch.arange(s.digits, device=device).expand(rows, -1)
        inputs = torch.cat([book, asked], dim=1).flatten(1)[:, :-1]
        positions = self.seq_len - s.digits + place
        return Batch(
            inputs, positions, asked[:, -1, 3:], {"entry": chosen[:, -1:].expand_as(place), "place": place}
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "exact": how often a number is right in all its digits."""
        return super().means(batch, prediction) | {
            "exact": exact_match(batch, prediction, length=self.settings.digits)
        }

    def solve(self, batch: Batch) -> Tensor:
        """Return the number of the entry with both names."""
        book = batch.inputs[:, : self.settings.entries * self._line].reshape(
            -1, self.settings.entries, self._line
        )
        asked = batch.inputs[:, self.seq_len - self.settings.digits - 1 :][:, :2]
        found = (book[:, :, 1:3] == asked[:, None]).all(dim=2).long().argmax(dim=1)
        return book.gather(1, found[:, None, None].expand(-1, 1, self._line))[:, 0, 3:]

    def explain(self, batch: Batch, row: int) -> str:
        """Return the demonstrations, the question, its answer, and the entry in the book."""
        s = self.settings
        tokens, entry, at = (
            batch.inputs[row].tolist(),
            int(batch.slices["entry"][row, 0]),
            int(batch.positions[row, 0]),
        )
        lines = [*tokens, int(batch.targets[row, -1])][s.entries * self._line :]
        said = [lines[i + 1 : i + self._line] for i in range(0, len(lines), self._line)]
        *shown, (name, number) = [
            (f"{first} {last}", "".join(str(digit - DIGITS) for digit in digits))
            for first, last, *digits in said
        ]
        after = "; ".join(f"{name} has {number}" for name, number in shown[:8])
        begins = self._line * entry
        return (
            f"A book of {s.entries} entries (digit 0 is token"
            f" {DIGITS}){after and f', then as demonstrations: {after}'}. Then {name} is asked for: from"
            f" position {at} on its number {number} is due, digit by digit; it stands in entry {entry}, from"
            f" position {begins} on: {' '.join(map(str, tokens[begins : begins + self._line]))}."
        )
