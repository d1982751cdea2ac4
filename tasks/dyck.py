"""Nested brackets of bounded depth."""

from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Preset, Split, Task
from linbench.tasks.blocks.label_every import count_labelled, label_every_field, thin_labels
from linbench.tasks.blocks.lengths import Lengths, draw_length
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, content

PAIRS = "()[]{}<>"
_ASKED = 16
"""Brackets of a word in which hardly ever all open and close in turn."""
SHOWN = 200
"""Brackets that `explain` shows."""


class DyckSettings(Lengths):
    """Settings: kinds of brackets, depth and length."""

    kinds: int = Field(2, ge=2, description="kinds of brackets")
    max_depth: int = Field(3, ge=1, description="brackets open at once, at most")
    min_length: int = Field(32, ge=2, description="brackets in the shortest word; even")
    max_length: int = Field(
        64,
        ge=2,
        description="brackets in the longest word; even. All even lengths between are equally likely",
    )
    covered: bool = Field(
        False,
        description=(
            "validation and test ask only at brackets that close right after another one has closed; training"
            " has labels at all that close"
        ),
        json_schema_extra={ABSENT: False},
    )
    label_every: int = label_every_field("closing brackets")

    @model_validator(mode="after")
    def _even(self) -> Self:
        for name, length in (("min_length", self.min_length), ("max_length", self.max_length)):
            refuse_odd(name, length, "every bracket is closed")
        if self.covered and (self.max_depth == 1 or self.min_length < _ASKED):
            raise ValueError(
                "covered asks for brackets around others, so max_depth must be at least 2 and min_length at"
                f" least {_ASKED}, not {self.max_depth} and {self.min_length}"
            )
        return self


class Dyck(Task):
    """Given brackets of several kinds, nested to a bounded depth, which one closes here?

    Before every closing bracket of a random word its kind is due: that of the bracket that was opened last
    and is not closed yet. This takes a stack; at a bounded depth a finite state is enough. It is hard at
    lengths and depths greater than those of training. It does not tell whether a layer knows when a word
    comes to an end.

    Where the bracket that closes was opened one token before, no stack is needed, and that is so for most. So
    with `covered` tests ask only at brackets that close after another one closed. Training has labels at all.

    Layout: one token, then a word. At every step a bracket opens or closes with equal probability, except
    that none closes where none is open, none opens at the greatest depth, and all close once no more steps
    are left than brackets are open. Scores by depth tell depths apart; beyond that of training no fixed state
    holds them all.

    Chance: any closing bracket.

    Bounded-depth languages of Hewitt et al. 2020, arXiv:2010.07515, and Yao et al. 2021, arXiv:2105.11115.
    Here only closing brackets are scored, and every even length is equally likely. Splits share only the
    shortest words, of shapes with fewer than 16: up to three pairs of two kinds, or one of eight.
    """

    name = "dyck"
    version = 2
    skill = "track"
    Settings = DyckSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a few minutes on a laptop: eight kinds six deep, 48 to 96 brackets, asked where two close in a"
            " row",
            task={"kinds": 8, "max_depth": 6, "min_length": 48, "max_length": 96, "covered": True},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        **{
            f"hewitt-{kinds}-{depth}": Preset(
                f"2010.07515: {kinds} kinds, depth {depth}; up to 100 brackets; the budget is ours",
                task={"kinds": kinds, "max_depth": depth, "min_length": 2, "max_length": 100},
                protocol={"tokens": 20_000_000},
            )
            for kinds in (2, 8)
            for depth in (3, 5, 10)
        },
    }

    settings: DyckSettings

    @property
    def io(self) -> IO:
        """Opening brackets, closing brackets, the token before a word and the one after it."""
        vocabulary = 2 * self.settings.kinds + 2
        return IO(vocabulary, vocabulary)

    @property
    def seq_len(self) -> int:
        """The longest word and the token before it."""
        return self.settings.max_length + 1

    @property
    def answers(self) -> int:
        """One per pair."""
        return self.settings.max_length // 2

    def chance(self) -> float:
        """Return 1 / kinds: any closing bracket."""
        return 1 / self.settings.kinds

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with both lengths longer, at the same depth."""
        return self.settings.longer(times)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        depth: brackets open where one closes, itself included. distance: tokens since it was opened.
        """
        return {"depth": self.settings.max_depth + 1, "distance": self.settings.max_length}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; place j belongs to pair j, in the order of depth and then of time."""
        s, rows, device = self.settings, len(index), index.device
        stream = Stream.of(index, seed=seed, split=split)
        length = draw_length(stream, s.min_length, s.max_length, step=2)
        # a fair walk folded between two walls turns there as it must; under what is left of the word it comes
        # down in time
        steps = 2 * stream.child("steps").integers(s.max_length, below=2) - 1
        walk = torch.cat([torch.zeros_like(length), steps.cumsum(dim=1)], dim=1)
        folded = ((walk + s.max_depth) % (2 * s.max_depth) - s.max_depth).abs()
        time = torch.arange(s.max_length + 1, device=device)
        depth = torch.minimum(folded, length - time)
        # at one depth brackets open and close in turn, so that in the order of depth and time every pair lies
        # side by side
        level = torch.where(time[1:] <= length, torch.maximum(depth[:, 1:], depth[:, :-1]), s.max_depth + 1)
        order = (level * s.max_length + time[:-1]).argsort(dim=1)
        opened, closed = order.view(rows, -1, 2).unbind(dim=2)
        used = torch.arange(self.answers, device=device) < length // 2
        asked = used & (closed > opened + 1) if s.covered and split != "train" else used

        shape = content(depth)
        kind = words(
            stream,
            length // 2,
            radices=(s.kinds,) * self.answers,
            shortest=s.min_length // 2,
            split=split,
            given=shape,
        )
        end = 2 * s.kinds + 1
        brackets = (
            torch.empty_like(order)
            .scatter(1, opened, torch.where(used, kind, end))
            .scatter(1, closed, torch.where(used, s.kinds + kind, end))
        )
        inputs = torch.cat([torch.full_like(length, end - 1), brackets], dim=1)
        # bracket number t is token t + 1, so that it is due at position t
        slices = {
            "depth": torch.where(asked, level.gather(1, opened), 0),
            "distance": torch.where(asked, closed - opened, 0),
        }
        targets = torch.where(asked, s.kinds + kind, IGNORE)
        batch = Batch(inputs, torch.where(asked, closed, 0), targets, slices)
        return thin_labels(batch, s.label_every, split)

    def solve(self, batch: Batch) -> Tensor:
        """Keep a stack: opening brackets go onto it, closing ones take the last from it."""
        kinds, (rows, length) = self.settings.kinds, batch.inputs.shape
        stack = batch.inputs.new_zeros(rows, length + 1)
        height = batch.inputs.new_zeros(rows, 1)
        tops = []
        for token in torch.split(batch.inputs, 1, dim=1):
            opens, closes = token < kinds, (token >= kinds) & (token < 2 * kinds)
            height = (height + opens.long() - closes.long()).clamp(min=0)
            stack = stack.scatter(1, height, torch.where(opens, token, stack.gather(1, height)))
            tops.append(kinds + stack.gather(1, height))
        return torch.cat(tops, dim=1).gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the word, with numbers for kinds beyond those that have signs."""
        kinds, due = self.settings.kinds, batch.is_answer[row]
        tokens = [token for token in batch.inputs[row].tolist() if token < 2 * kinds]
        word = "".join(
            (
                PAIRS[2 * (token % kinds) + token // kinds]
                if kinds <= len(PAIRS) // 2
                else f"{'()'[token // kinds]}{token % kinds} "
            )
            for token in tokens
        )
        asked = count_labelled(sum(due.tolist()), len(tokens) // 2)
        last = batch.positions[row][due].argmax()
        at, target = int(batch.positions[row][due][last]), int(batch.targets[row][due][last])
        shown = f"{word[:SHOWN]} ... ({len(tokens)} brackets)" if len(word) > SHOWN else word.strip()
        return (
            f"After a first token the word {shown}; {kinds} kinds open as tokens 0 to {kinds - 1} and close"
            f" as {kinds} to {2 * kinds - 1}. At the token before {asked} that close,"
            f" that one is due: the last at position {at}, {target}."
        )
