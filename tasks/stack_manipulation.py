"""One stack, told at the end."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Preset, Split, Task
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream

_TELL, _BITS, _POP, _PUSH, _END = 1, 2, 4, 5, 7
_VOCAB = 8


class StackManipulationSettings(Settings):
    """Settings: number of bits and actions."""

    length: int = Field(
        20, ge=1, description="bits and actions at most; the sequence is 2 * length + 1 tokens"
    )
    shortest: int = Field(
        12, ge=1, description="fewest bits and actions; any number up to length is equally likely"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.shortest > self.length:
            raise ValueError(f"shortest must be at most length; {self.shortest} is above {self.length}")
        return self


class StackManipulation(Task):
    """After pushes and pops, what is on the stack, from top to bottom?

    A sequence begins with a stack of bits, and actions pop it or push a 0 or a 1. Then, at `tell` tokens, the
    stack is due from top to bottom, and its end. A memory must follow a height that changes and read
    backwards, without being told its own answers. It does not tell of recall by content.

    Layout: bits are the stack from bottom to top; actions are uniform, and a pop from the empty stack does
    nothing. There is one more `tell` token than there are bits and actions; after the end of the stack
    nothing is due.

    Chance: at each place the likelier of the end and one of the two bits.

    Delétang et al. 2022, arXiv:2207.02098 (Neural Networks and the Chomsky Hierarchy), with 1 to 40 bits and
    actions in training, 41 to 500 in tests. Inputs of a length that has from 16 to 2^24 of them are divided
    among the splits; the few that are shorter, none of `quick`, are in all.
    """

    name = "stack_manipulation"
    version = 2
    skill = "track"
    Settings = StackManipulationSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset("12 to 20 bits and actions", protocol={"lr": 3e-3, "tokens": 1_640_000}),
        "chomsky": Preset(
            "as published: 1 to 40 bits and actions, 10,000 steps of 128",
            task={"length": 40, "shortest": 1},
            protocol={"lr": 1e-3, "batch_size": 128, "tokens": 10_000 * 128 * 81},
        ),
    }

    settings: StackManipulationSettings

    @property
    def io(self) -> IO:
        """Blank, tell, bits, pop, pushes and end."""
        return IO(_VOCAB, _VOCAB)

    @property
    def seq_len(self) -> int:
        """The number of tokens that are read and answered: a full stack and its end."""
        return 2 * self.settings.length + 1

    @property
    def answers(self) -> int:
        """A full stack and its end."""
        return self.settings.length + 1

    def chance(self) -> float:
        """Return the accuracy of naming what is likelier at this place after so many bits and actions.

        That is the end, or one of the two bits.
        """
        s = self.settings
        bits = torch.eye(s.length + 1, dtype=torch.float64)
        # summed over all numbers of bits that leave room for actions
        heights, found = torch.zeros_like(bits[0]), [bits[1]]
        for n in range(2, s.length + 1):
            before = heights + bits[n - 1]
            heights = (
                torch.cat([before[:1] + before[1:2], before[2:], before[:1] * 0]) + 2 * before.roll(1)
            ) / 3
            found.append(heights / (n - 1))
        ends = torch.stack(found)[s.shortest - 1 :]  # the probability of each height, by bits and actions
        goes_on = ends.flip(1).cumsum(dim=1).flip(1) - ends
        return float(torch.maximum(ends, goes_on / 2).sum() / (ends + goes_on).sum())

    def longer(self, times: int) -> dict[str, int]:
        """Return settings with more bits and actions."""
        return {"length": times * self.settings.length}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        place: from the top. length: bits and actions.
        """
        return {"place": self.answers, "length": self.answers}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        A bit stays if the height never falls below the one it was pushed to; it is told at the place that the
        final height gives.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        length = s.shortest + stream.child("length").integers(1, below=s.length - s.shortest + 1)
        bits = 1 + stream.child("bits").integers(1, below=(length - 1).clamp(min=1))
        time = torch.arange(s.length, device=device)
        letters = words(
            stream,
            length,
            radices=torch.where(time < bits, 2, 3),
            shortest=s.shortest,
            split=split,
            given=bits[:, 0],
        )
        symbol = torch.where(time < bits, letters, letters - 1)  # of actions -1 pops, 0 and 1 are pushed
        pop, read = symbol < 0, time < length

        raw = torch.where(read, torch.where(pop, -1, 1), 0).cumsum(dim=1)
        height = raw - raw.cummin(dim=1).values.clamp(max=0)
        final = height[:, -1:]
        lowest_later = height.flip(1).cummin(dim=1).values.flip(1)
        stays = read & ~pop & (lowest_later == height)
        place = torch.where(stays, final - height, self.answers)
        told = torch.zeros(len(index), self.answers + 1, dtype=torch.int64, device=device).scatter(
            1, place, symbol.clamp(min=0)
        )[:, :-1]

        at = torch.arange(self.seq_len, device=device)
        said = torch.where(time < bits, _BITS, torch.where(pop, _POP + 1, _PUSH)) + symbol
        said = torch.cat(
            [said, torch.full((len(index), self.answers), _TELL, dtype=torch.int64, device=device)], dim=1
        )
        inputs = torch.where(at < length, said, torch.where(at <= 2 * length, _TELL, 0))
        nth = torch.arange(self.answers, device=device)
        due = nth <= final
        targets = torch.where(due, torch.where(nth < final, _BITS + told, _END), IGNORE)
        slices = {"place": torch.where(due, nth, 0), "length": torch.where(due, length, 0)}
        return Batch(inputs, torch.where(due, length + nth, 0), targets, slices)

    def solve(self, batch: Batch) -> Tensor:
        """Keep the stack, token by token, and read it out."""
        inputs, rows = batch.inputs, torch.arange(len(batch.inputs), device=batch.inputs.device)
        # from place 1; place 0 is the end
        stack = torch.full((len(rows), self.answers + 1), _END, dtype=torch.int64, device=rows.device)
        height, length, reading = (
            torch.zeros_like(rows),
            torch.zeros_like(rows),
            torch.ones_like(rows, dtype=torch.bool),
        )
        for at in range(self.settings.length):
            token = inputs[:, at]
            reading = reading & (token != _TELL)
            pushes, pops = reading & (token != _POP), reading & (token == _POP) & (height > 0)
            height = height + pushes.long() - pops.long()
            length = length + reading.long()
            bit = torch.where(token >= _PUSH, token - _PUSH + _BITS, token)
            stack[rows, height] = torch.where(pushes, bit, stack[rows, height])
        return stack.gather(1, (height[:, None] + length[:, None] - batch.positions).clamp(0, self.answers))

    def explain(self, batch: Batch, row: int) -> str:
        """Return the bits and actions, then the stack."""
        words = {_BITS: "0", _BITS + 1: "1", _POP: "pop", _PUSH: "push 0", _PUSH + 1: "push 1"}
        said = [words[token] for token in batch.inputs[row].tolist() if token in words]
        told = [str(target - _BITS) for target in batch.targets[row].tolist() if target not in (IGNORE, _END)]
        shown = ", ".join(said[:120]) + (", ..." if len(said) > 120 else "")
        stack = ", ".join(told[:100]) + (", ..." if len(told) > 100 else "") or "nothing"
        return (
            f"To be read: {shown}. At positions {len(said)} to {len(said) + len(told)} stands token {_TELL},"
            f" and the answers due there are the stack from top to bottom, {stack}, and its end, token"
            f" {_END}; bits 0 and 1 are tokens {_BITS} and {_BITS + 1}."
        )
