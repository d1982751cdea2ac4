"""Majority of bits."""

from math import comb
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, WeightedMean
from linbench.tasks.blocks.label_every import count_labelled, label_every_field, thin_labels
from linbench.tasks.blocks.last_or_cumulative import LastOrCumulative, LastOrCumulativeSettings
from linbench.tasks.blocks.lengths import draw_length
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream

END = 2
"""Token after the last bit, at which the answer of `last` is due."""

PAD = 3
"""Token that fills up shorter sequences."""


class MajoritySettings(LastOrCumulativeSettings):
    """Settings: lengths, and how often the majority is asked for."""

    min_length: int = Field(
        64, ge=2, description="tokens of the shortest sequence; with `last` the last of them is END"
    )
    max_length: int = Field(
        64, ge=2, description="tokens of the longest sequence; all lengths between are equally likely"
    )
    answer: Literal["last", "cumulative"] = Field(
        "cumulative",
        description=(
            "last: whether more than half of all bits are ones, due at END; cumulative: at every bit, whether"
            " at least half of those up to it are"
        ),
    )
    label_every: int = label_every_field("majorities")


def _zoology(length: int, answer: str, epochs: int, about: str) -> Preset:
    return Preset(
        f"zoology's code: {about}",
        task={"min_length": length, "max_length": length, "answer": answer},
        model={"d_model": 128},
        protocol={"examples": 100_000, "epochs": epochs},
    )


class Majority(LastOrCumulative):
    """Are most of the bits ones?

    The majority of uniform bits is due after their end or after every bit. A layer must add up ones and
    zeros with the same weight, however long ago they were, so a memory that fades errs where both are nearly
    as many (`near`). It does not tell of storing anything, since one number is enough.

    Layout: bits are tokens 0 and 1, and so are the answers. As published, as many ones as zeros give 0 at the
    end of `last`, and 1 at a bit of `cumulative`.

    Chance: the likelier answer at this position. The last bits alone tell more: with 64 bits and
    `cumulative`, the last one is right in .59 of cases and the sum of the last eight in .72.

    After the circuits in the code of Zoology (Arora et al. 2023, arXiv:2312.04927); `near` is linbench's.
    Where a length has from 64 to 2^24 sequences (6 to 23 bits) train, validation and test share none of them.
    """

    name = "majority"
    skill = "track"
    solved_by = ("bag", "mode")
    Settings = MajoritySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: 64 bits, asked for after every one",
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "zoology-64": _zoology(
            64, "last", 64, "63 bits, asked for at the end, the longest of its lengths; 64 epochs of 100,000"
        ),
        **{
            f"zoology-cumulative-{length}": _zoology(
                length,
                "cumulative",
                16,
                f"{length} bits, asked for after every one; 16 epochs, here of 100,000 examples",
            )
            for length in (16, 32, 64, 128)
        },
    }

    settings: MajoritySettings

    @property
    def io(self) -> IO:
        """Two bits, END and padding; two answers."""
        return IO(4, 2)

    @property
    def one_vocabulary(self) -> bool:
        """True: answers are bits, as the inputs are."""
        return True

    def chance(self) -> float:
        """Return the accuracy of the likelier answer at every position; ties make one of them likelier."""
        s = self.settings
        lengths = range(s.min_length, s.max_length + 1)
        # by the number of bits, of which ties favour one answer
        likelier = [0.5 + (comb(n, n // 2) / 2 ** (n + 1) if n % 2 == 0 else 0) for n in range(lengths.stop)]
        if self._last:
            return sum(likelier[length - 1] for length in lengths) / len(lengths)
        return sum(sum(likelier[1 : length + 1]) for length in lengths) / sum(lengths)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        length: number of bits. margin: how many more there are of one bit than of the other.
        """
        return {"length": self.settings.max_length + 1, "margin": self.settings.max_length + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; answers are in the order of the bits."""
        s, end = self.settings, int(self._last)
        stream = Stream.of(index, seed=seed, split=split)
        length = draw_length(stream, s.min_length, s.max_length) - end
        bits = words(stream, length, radices=(2,) * s.max_length, shortest=s.min_length - end, split=split)
        more = (2 * bits - 1).cumsum(dim=1)  # ones than zeros
        place = torch.arange(s.max_length, device=index.device).expand_as(bits)
        used = place < length
        inputs = torch.where(used, bits, PAD)
        if self._last:
            inputs = inputs.scatter(1, length, END)
            more = more.gather(1, length - 1)
            return Batch(inputs, length, (more > 0).long(), {"length": length, "margin": more.abs()})
        batch = Batch(
            inputs,
            torch.where(used, place, 0),
            torch.where(used, (more >= 0).long(), IGNORE),
            {"length": torch.where(used, place + 1, 0), "margin": torch.where(used, more.abs(), 0)},
        )
        return thin_labels(batch, s.label_every, split)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "near": accuracy where another value of a single bit would change the answer.

        There both answers are nearly as likely at every position, and the last bit tells little.
        """
        one = batch.targets.clamp(min=0)
        near = batch.slices["margin"] <= (1 + one if self._last else 2 - one)
        right = prediction.answers == batch.targets
        return super().means(batch, prediction) | {"near": WeightedMean(right, near)}

    def solve(self, batch: Batch) -> Tensor:
        """Count ones and all bits."""
        count = torch.zeros_like(batch.inputs[:, 0])
        ones = torch.zeros_like(count)
        states = []
        for token in batch.inputs.unbind(dim=1):
            count, ones = count + (token < END), ones + (token == 1)
            states.append(2 * ones > count if self._last else 2 * ones >= count)
        return torch.stack(states, dim=1).long().gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the bits, and the majorities that are due."""
        due = batch.is_answer[row]
        targets, length = batch.targets[row][due].tolist(), int(batch.slices["length"][row].max())
        bits = "".join(map(str, batch.inputs[row, :length].tolist()))
        if self._last:
            return (
                f"The bits are {bits}. At position {length}, with token END = {END}, the answer is"
                f" {targets[0]}: {bits.count('1')} of {length} are ones."
            )
        asked = count_labelled(len(targets), length)
        return (
            f"The bits are {bits}. At {asked} 1 is due if at least half of those so far are ones, else 0:"
            f" {''.join(map(str, targets))}."
        )
