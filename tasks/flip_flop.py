"""Flip-flop language."""

from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Preset, Split, Task
from linbench.tasks.blocks.label_every import count_labelled, label_every_field, thin_labels
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream

WRITE, READ, SKIP = 2, 3, 4
"""Tokens of instructions; 0 and 1 are the bits."""

SHOWN = 60
"""Instructions that `explain` spells out."""


class FlipFlopSettings(Settings):
    """Settings: length, and the share of instructions to ignore."""

    seq_len: int = Field(
        64, ge=4, description="length of a sequence; even, for every instruction is followed by a bit"
    )
    ignore: float = Field(
        0.8,
        ge=0,
        le=1,
        description="share of instructions that are ignored; writes and reads have half of the rest each",
    )
    label_every: int = label_every_field("reads")

    @model_validator(mode="after")
    def _even(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "every instruction is followed by a bit")
        return self


def _published(about: str, model: dict[str, Any] | None = None, **task: Any) -> Preset:
    return Preset(
        f"{about}; the budget is ours",
        task={"seq_len": 512, **task},
        model=model or {},
        protocol={"tokens": 50_000_000},
    )


class FlipFlop(Task):
    """Among many bits to be ignored, what was the last bit written?

    Instructions write a bit, read it or are to be ignored, and at every read the bit written last is due. A
    memory that fades makes occasional errors, and so does attention that spreads over many tokens to be
    ignored. It does not tell how much a layer can hold, since that is one bit.

    Layout: every instruction is followed by a bit. The first is a write, the last a read, those between are
    random. The bit after a read is the one that was last written; all other bits are uniform. Train at one
    share of ignored instructions, test at fewer and more.

    Chance: either bit.

    Liu et al. 2023, arXiv:2306.00946. There all tokens are predicted; here only reads are, and every one
    counts. As published, the bit after a read is shown, so that the next read may look there as well.
    """

    name = "flip_flop"
    skill = "track"
    Settings = FlipFlopSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a few minutes on a laptop: 32 instructions, four of five ignored",
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "liu": _published("2306.00946: 256 instructions, four of five ignored"),
        "liu-sparse": _published("2306.00946: 256 instructions, 98 of 100 ignored", ignore=0.98),
        "liu-dense": _published("2306.00946: 256 instructions, one of ten ignored", ignore=0.1),
        "path": _published(
            "2505.16381: 256 instructions, four of five ignored; one layer",
            model={"layers": 1, "heads": 2, "d_model": 64},
        ),
    }

    settings: FlipFlopSettings

    @property
    def io(self) -> IO:
        """Two bits and three instructions."""
        return IO(5, 5)

    @property
    def answers(self) -> int:
        """Any instruction except the first may be a read."""
        return self.settings.seq_len // 2 - 1

    def chance(self) -> float:
        """Return 1 / 2: either bit."""
        return 1 / 2

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the written bit to the read. writes: number of writes up to it.
        """
        return {"distance": self.settings.seq_len, "writes": self.settings.seq_len // 2}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; place j is used if instruction j + 1 is a read."""
        s, count = self.settings, self.settings.seq_len // 2
        stream = Stream.of(index, seed=seed, split=split)
        at = torch.arange(count, device=index.device)
        ignored = stream.child("ignore").happens(count, share=s.ignore) & (at > 0) & (at < count - 1)
        read = stream.child("read").happens(count, share=1 / 2) & (at > 0) | (at == count - 1)
        instructions = torch.where(ignored, SKIP, torch.where(read, READ, WRITE))
        wrote = instructions == WRITE
        last = torch.where(wrote, at, 0).cummax(dim=1).values
        bits = stream.child("bits").integers(count, below=2)
        bits = torch.where(instructions == READ, bits.gather(1, last), bits)
        asked = (instructions == READ)[:, 1:]
        targets = torch.where(asked, bits[:, 1:], IGNORE)
        positions = torch.where(asked, 2 * at[1:], 0)
        distance = torch.where(asked, 2 * (at - last)[:, 1:] - 1, 0)
        writes = torch.where(asked, wrote.cumsum(dim=1)[:, 1:], 0)
        batch = Batch(
            torch.stack([instructions, bits], dim=2).flatten(1),
            positions,
            targets,
            {"distance": distance, "writes": writes},
        )
        return thin_labels(batch, s.label_every, split)

    def solve(self, batch: Batch) -> Tensor:
        """Keep a bit that every write replaces."""
        bit = torch.zeros_like(batch.inputs[:, 0])
        states = []
        for instruction, given in zip(
            batch.inputs[:, ::2].unbind(dim=1), batch.inputs[:, 1::2].unbind(dim=1), strict=True
        ):
            states.append(bit)
            bit = torch.where(instruction == WRITE, given, bit)
        return torch.stack(states, dim=1).gather(1, batch.positions // 2)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the instructions with their bits, reads marked."""
        tokens = batch.inputs[row].tolist()
        names = {WRITE: "w", READ: "r", SKIP: "i"}
        said = [f"{names[tokens[at]]}{tokens[at + 1]}" for at in range(0, len(tokens), 2)]
        asked = count_labelled(sum(batch.is_answer[row].tolist()), tokens[::2].count(READ))
        first = int(batch.positions[row][batch.is_answer[row]][0])
        more = f" ... ({len(said)} in all)" if len(said) > SHOWN else ""
        return (
            f"Instructions (write, read, ignore; tokens {WRITE}, {READ}, {SKIP}) with their bits:"
            f" {' '.join(said[:SHOWN])}{more}. At {asked} reads the bit that was last written is"
            f" due, before it is shown: at position {first} it is {tokens[first + 1]}."
        )
