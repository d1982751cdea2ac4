"""Counters that are reset."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.chance import most_common_share
from linbench.tasks.random import Stream

PASS = 0
"""Token of a statement that changes nothing."""

SHOWN = 60
"""Statements that `explain` spells out."""


class CounterSettings(Settings):
    """Settings: length, number of counters, and how far they count."""

    seq_len: int = Field(
        64, ge=20, description="length of a sequence: statements, and at its end a question for each counter"
    )
    counters: int = Field(3, ge=2, description="counters, each of which is asked for at the end")
    most: int = Field(
        5, ge=1, description="largest count that is asked for; all from 0 on are equally likely"
    )
    largest: int | None = Field(
        None,
        ge=1,
        description="largest count that can be answered; null is most. For tests that count further",
    )

    @property
    def statements(self) -> int:
        """Return how many statements stand before the questions."""
        return self.seq_len - self.counters

    @property
    def outputs(self) -> int:
        """Return how many counts can be answered."""
        return 1 + (self.most if self.largest is None else self.largest)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        statements = self.statements
        if self.counters > statements // 8:
            raise ValueError(
                f"{self.counters} counters do not fit into an eighth of {statements} statements, in which"
                " they begin; use fewer counters or a longer sequence"
            )
        if self.counters * self.most > statements // 4:
            raise ValueError(
                f"{self.counters} counters of up to {self.most} do not fit into a quarter of {statements}"
                " statements, which may be all that is left after a reset; use fewer, a smaller most, or a"
                " longer sequence"
            )
        if self.outputs <= self.most:
            raise ValueError(f"largest = {self.largest} is less than most = {self.most}")
        return self


class Counter(Task):
    """Since it was last set to zero, how often was this counter raised?

    Several counters are raised in turn, and each is set to zero once more on the way. A layer must add up
    what belongs to one counter, and forget it all at once when it is reset. It does not tell of finding a
    single token, since no token holds an answer.

    Layout: each statement is one token: `zero c`, `add c` or `pass`. A counter begins in the first eighth of
    the statements. It is reset at a uniform place of their middle half, after 1 to `most` additions, or as
    many as still find room, and then raised 0 to `most` times, all equally often. Other places are free for
    `pass`. At the end all counters are asked for in random order.

    Chance: the most common count among the counters.

    After the counting task of Golovneva et al. 2024 (CoPE), arXiv:2405.18719, whose statements these are. The
    law is linbench's: in theirs the additions since the last reset of any counter tell one counter's count,
    and always naming 10 is right in .22 of cases with three counters.
    """

    name = "counter"
    skill = "track"
    Settings = CounterSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset("3 counters of up to 5 in 64 tokens", protocol={"lr": 3e-3, "tokens": 2_048_000}),
        **{
            f"cope-{counters}": Preset(
                f"sizes of 2405.18719: {counters} counters of up to 10 in 512 tokens, four layers, 100 epochs"
                " of 10,000 examples; the law and fresh examples are ours",
                task={"seq_len": 512, "counters": counters, "most": 10},
                model={"layers": 4, "heads": 4, "d_model": 256},
                protocol={"lr": 7e-5, "batch_size": 64, "tokens": 100 * 10_000 * 512},
            )
            for counters in (3, 5)
        },
    }

    settings: CounterSettings

    @property
    def io(self) -> IO:
        """Pass; zero, add and ask for each counter; and the counts."""
        return IO(1 + 3 * self.settings.counters, self.settings.outputs)

    @property
    def one_vocabulary(self) -> bool:
        """False: answers are counts, and inputs are statements, however many there are of each."""
        return False

    @property
    def answers(self) -> int:
        """One for each counter."""
        return self.settings.counters

    def chance(self) -> float:
        """Return the accuracy of naming the most common count of all counters."""
        return most_common_share(self.settings.counters, self.settings.most + 1)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        count: the answer. distance: tokens from the reset to the question. others: how often other counters
        were raised since the reset.
        """
        s = self.settings
        return {"count": s.most + 1, "distance": s.seq_len, "others": 2 * s.most * (s.counters - 1) + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; additions find their places counter by counter, first those after resets."""
        s, count = self.settings, self.settings.statements
        stream = Stream.of(index, seed=seed, split=split)
        at = torch.arange(count, device=index.device)
        begun = stream.child("begin").shuffle(count // 8)[:, : s.counters]
        reset = count // 4 + stream.child("reset").shuffle(count // 2)[:, : s.counters]
        before = 1 + stream.child("before").integers(s.counters, below=s.most)
        after = stream.child("after").integers(s.counters, below=s.most + 1)
        zero, add, ask = (1 + s.counters * kind for kind in range(3))
        named = torch.arange(s.counters, device=index.device).expand_as(begun)
        tokens = torch.zeros(len(index), count, dtype=torch.int64, device=index.device)
        tokens = tokens.scatter(1, begun, zero + named).scatter(1, reset, zero + named)
        for name, times, start, end in (("late", after, reset, count), ("early", before, begun, reset)):
            order = stream.child(name)
            for c in range(s.counters):
                last = end if isinstance(end, int) else end[:, c : c + 1]
                free = (tokens == PASS) & (at > start[:, c : c + 1]) & (at < last)
                # of the free places those with the smallest numbers, which no two places share
                drawn = order.child(str(c)).bits(at) * count + at
                drawn = torch.where(free, drawn, torch.iinfo(torch.int64).max)
                place = drawn.argsort(dim=1).argsort(dim=1)
                tokens = torch.where(free & (place < times[:, c : c + 1]), add + c, tokens)
        asked = stream.child("questions").shuffle(s.counters)
        since = reset.gather(1, asked)
        raised = (at > since[:, :, None]) & (tokens[:, None] >= add)
        targets = after.gather(1, asked)
        positions = count + named
        return Batch(
            torch.cat([tokens, ask + asked], dim=1),
            positions,
            targets,
            {"count": targets, "distance": positions - since, "others": raised.sum(dim=2) - targets},
        )

    def solve(self, batch: Batch) -> Tensor:
        """Keep all counters, statement by statement."""
        s = self.settings
        counts = torch.zeros(len(batch.inputs), s.counters, dtype=torch.int64, device=batch.inputs.device)
        named = torch.arange(s.counters, device=batch.inputs.device)
        zero, add, ask = (1 + s.counters * kind for kind in range(3))
        for token in batch.inputs[:, : s.statements].unbind(dim=1):
            counts = torch.where(token[:, None] == zero + named, 0, counts)
            counts = counts + (token[:, None] == add + named)
        return counts.gather(1, batch.inputs.gather(1, batch.positions) - ask)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the statements in words, and the counts that are due."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        said = [self._say(token) for token in tokens[: s.statements] if token != PASS]
        more = f" ... ({len(said)} in all)" if len(said) > SHOWN else ""
        answers = ", ".join(
            f"{self._say(tokens[at])} {target} at position {at}"
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        )
        return (
            f"Statements on {s.counters} counters, those without effect left out:"
            f" {'; '.join(said[:SHOWN])}{more}. At the end the answers are: {answers}."
        )

    def _say(self, token: int) -> str:
        kind, counter = divmod(token - 1, self.settings.counters)
        return f"{('zero', 'add', 'count of')[kind]} {chr(ord('a') + counter % 26)}{counter // 26 or ''}"
