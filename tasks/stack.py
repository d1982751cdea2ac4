"""Many stacks at once."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Preset, Split, Task
from linbench.tasks.blocks.stack_tops import most_common_top_share
from linbench.tasks.random import Stream

_PUSH, _POP, _STACKS = 1, 2, 3
_OPERATION = 3


class StackSettings(Settings):
    """Settings: number, height and elements of stacks."""

    seq_len: int = Field(
        96, ge=12, description="length of a sequence; as many operations of 3 tokens as fit, at its end"
    )
    stacks: int = Field(8, ge=2, description="tokens that name stacks")
    elements: int = Field(32, ge=2, description="tokens to be stacked")
    depth: int = Field(8, ge=1, le=1 << 16, description="elements that a stack holds at most")
    covered: bool = Field(
        False,
        description=(
            "validation and test ask only at pops that come right after a pop of the same stack; training has"
            " labels at all pops"
        ),
        json_schema_extra={ABSENT: False},
    )

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        operations = self.seq_len // _OPERATION
        if self.stacks > operations:
            raise ValueError(
                f"{self.stacks} stacks are more than the {operations} operations that fit in seq_len ="
                f" {self.seq_len}, so that hardly any would be met twice; use fewer stacks or a longer"
                " sequence"
            )
        if self.covered and self.depth == 1:
            raise ValueError("covered asks for elements under others, so depth must be at least 2, not 1")
        if self.covered and 4 * self.stacks > operations:
            raise ValueError(
                f"covered asks for elements under others, so {self.stacks} stacks need at least"
                f" {4 * self.stacks} operations, not the {operations} that fit in seq_len = {self.seq_len}"
            )
        return self


class Stack(Task):
    """Given pushes to and pops from many stacks, what lies on top of this one?

    Pushes to and pops from many stacks are interleaved. At every pop the top element is due; it is not shown,
    and it is gone from then on. A memory must take back what it wrote and find again what was there before.
    It does not tell of tracking, since the heights of stacks are given by the sequence.

    Where a stack's last operation was a push, its last element is the answer, and no stack is needed. So with
    `covered` tests ask only at pops that follow a pop of the same stack. Training has labels at all.

    Layout: an operation is `push stack element` or `pop stack blank` with a uniform stack; the answer to a
    pop is due at its stack. A stack pushes or pops with equal probability, but always pushes when it is empty
    and always pops when it is full. Delta rules that erase need to know what to erase.

    Chance: the element on top of most stacks, of which full ones count twice, for they always pop.

    Kimi Team 2025 (Kimi Linear), arXiv:2510.26692: 64 stacks, lengths from 256 to 2048. How often is popped,
    how high stacks get and how many elements there are is not published. Popped elements are not shown here,
    so that operations are equally long and no answer is in the input.
    """

    name = "stack"
    skill = "overwrite"
    Settings = StackSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "8 stacks of 32 kinds of elements, 64 operations, asked from a stack's second pop in a row on",
            task={"seq_len": 192, "covered": True},
            protocol={"lr": 3e-3, "tokens": 3_072_000},
        ),
        **{
            f"kimi-{length}": Preset(
                f"as published: 64 stacks in {length} tokens, two layers with two heads of 128, 20,000 steps"
                " at the best of four learning rates",
                task={"seq_len": length, "stacks": 64, "elements": 64, "depth": 16},
                model={"layers": 2, "heads": 2, "head_dim": 128, "d_model": 256},
                protocol={"lr": 1e-3, "tokens": 20_000 * 32 * length},
            )
            for length in (256, 512, 1024, 2048)
        },
    }

    settings: StackSettings

    @property
    def io(self) -> IO:
        """Blank, push, pop, stacks and elements."""
        vocab = _STACKS + self.settings.stacks + self.settings.elements
        return IO(vocab, vocab)

    @property
    def _operations(self) -> int:
        return self.settings.seq_len // _OPERATION

    @property
    def answers(self) -> int:
        """The largest number of pops that there can be."""
        return self._operations // 2

    def chance(self) -> float:
        """Return the accuracy of naming the element on top of most stacks that are not empty.

        Full stacks count twice, for they always pop.
        """
        s = self.settings
        return most_common_top_share(
            s.stacks, depth=s.depth, elements=s.elements, operations=self._operations, covered=s.covered
        )

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        depth: elements on the stack. distance: tokens from the element to where it is asked for. open: stacks
        that are not empty.
        """
        s = self.settings
        return {"depth": s.depth + 1, "distance": s.seq_len, "open": s.stacks + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        Heights are a fair random walk folded into 0 ... depth; at each level of a stack pushes and pops take
        turns, so a pop's push is the one before.
        """
        s, count = self.settings, self._operations
        stream = Stream.of(index, seed=seed, split=split)
        time = torch.arange(count, device=index.device)
        stack = stream.child("stacks").integers(count, below=s.stacks)

        by_stack = (stack * count + time).sort(dim=1).values  # stack by stack, in each by time
        step = 1 - 2 * stream.child("steps").integers(count, below=2)
        walk = step.cumsum(dim=1)
        first = by_stack // count != (by_stack // count).roll(1, dims=1)
        began = torch.where(first, time, 0).cummax(dim=1).values
        walk = walk - (walk - step).gather(1, began)
        height, before = self._fold(walk), self._fold(walk - step)
        pops = height < before
        asked = pops & pops.roll(1, dims=1) & ~first if s.covered and split != "train" else pops
        asked = torch.zeros_like(asked).scatter(1, by_stack % count, asked)

        level = torch.maximum(height, before)
        by_level = (by_stack // count * (s.depth + 1) + level) * count + by_stack % count
        by_level, order = by_level.sort(dim=1)
        push, level, when = (height > before).gather(1, order), level.gather(1, order), by_level % count
        drawn = stream.child("elements").integers(count, below=s.elements)
        element = torch.where(push, drawn, drawn.roll(1, dims=1))
        pushed = torch.where(push, when, when.roll(1, dims=1))

        push, level, element, pushed = (
            torch.zeros_like(when).scatter(1, when, x.long()) for x in (push, level, element, pushed)
        )
        open_after = torch.where(level == 1, 2 * push - 1, 0).cumsum(dim=1)
        answer = _STACKS + s.stacks + element
        operations = torch.stack(
            [torch.where(push == 1, _PUSH, _POP), _STACKS + stack, torch.where(push == 1, answer, 0)], dim=2
        ).flatten(1)
        start = s.seq_len - _OPERATION * count
        inputs = torch.cat([torch.zeros_like(operations[:, :start]), operations], dim=1)

        # questions in their order, the rest into a column that is left out
        place = torch.where(asked, asked.cumsum(dim=1) - 1, self.answers)
        due = torch.zeros(len(index), self.answers + 1, dtype=torch.int64, device=index.device)
        slices = {
            "depth": level,
            "distance": _OPERATION * (time - pushed) - 1,
            "open": open_after + (level == 1),
        }
        positions, *asked_for = (
            due.scatter(1, place, x.expand_as(place))[:, :-1]
            for x in (start + _OPERATION * time + 1, *slices.values())
        )
        targets = (due + IGNORE).scatter(1, place, answer)[:, :-1]
        return Batch(inputs, positions, targets, dict(zip(slices, asked_for, strict=True)))

    def _fold(self, walk: Tensor) -> Tensor:
        """Return the walk reflected at 0 and `depth`."""
        depth = self.settings.depth
        return depth - (walk % (2 * depth) - depth).abs()

    def solve(self, batch: Batch) -> Tensor:
        """Keep all stacks, operation by operation."""
        s, rows = self.settings, torch.arange(len(batch.inputs), device=batch.inputs.device)
        start = s.seq_len - _OPERATION * self._operations
        held = torch.zeros(len(rows), s.stacks, self._operations + 1, dtype=torch.int64, device=rows.device)
        height = torch.zeros(len(rows), s.stacks, dtype=torch.int64, device=rows.device)
        found = torch.zeros_like(batch.inputs)
        for at in range(start, s.seq_len, _OPERATION):
            what, stack, element = (
                batch.inputs[:, at],
                batch.inputs[:, at + 1] - _STACKS,
                batch.inputs[:, at + 2],
            )
            top = height[rows, stack] - (what == _POP).long()
            found[:, at + 1] = held[rows, stack, top.clamp(min=0)]
            held[rows, stack, top.clamp(min=0)] = element
            height[rows, stack] = top.clamp(min=0) + (what == _PUSH).long()
        return found.gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the first operations in words, with what is due."""
        tokens, words = batch.inputs[row].tolist(), []
        answers = dict(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True))
        for at in range(self.seq_len - _OPERATION * self._operations, self.seq_len, _OPERATION):
            what, stack, element = tokens[at : at + _OPERATION]
            answer = f", at position {at + 1} the answer is {answers[at + 1]}" if at + 1 in answers else ""
            words.append(f"push {element} on {stack}" if what == _PUSH else f"pop {stack}{answer}")
        return (
            "Stacks by the tokens that name them: "
            + "; ".join(words[:32])
            + ("; and so on." if len(words) > 32 else ".")
        )
