"""Induction heads."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.random import Stream


class InductionSettings(Settings):
    """Settings: length, vocabulary, and how early the special token stands."""

    seq_len: int = Field(64, ge=4, description="length of a sequence")
    vocab_size: int = Field(16, ge=3, description="0 is the special token, the rest are ordinary")
    early: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of the sequence, from its start, in which the special token stands first",
    )


class Induction(Task):
    """When the special token stood here before, which token followed it?

    One of the early tokens is replaced by a special token. The last token is the special token again, and the
    token that followed the first one is due. A layer must notice the one pair that matters, and carry it past
    all other tokens. It does not tell how much a layer can hold, since that is a single value.

    Chance: any ordinary token.

    After Gu & Dao 2023 (Mamba), arXiv:2312.00752, where lengths of 64 to 1,048,576 are tested after training
    at 256, and Akyürek et al. 2024, arXiv:2401.12973, but neither of these tasks, so scores may not be read
    beside the published ones. How early Mamba's special token stands is not published; here it stands
    anywhere in the first half. In the latter's code it stands anywhere, the sequence is one token longer than
    `seq_len` says, and every token has a label in training; here only the answer has one.
    """

    name = "induction"
    skill = "remember"
    Settings = InductionSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "64 tokens, the shortest of Mamba's tests", protocol={"lr": 3e-3, "tokens": 1_638_400}
        ),
        "mamba": Preset(
            "length and training of Mamba's: 256 tokens, two layers of width 64, 204,800 steps of 8"
            " sequences",
            task={"seq_len": 256},
            model={"layers": 2, "d_model": 64},
            protocol={"lr": 1e-3, "batch_size": 8, "tokens": 204_800 * 8 * 256},
        ),
    }

    settings: InductionSettings

    @property
    def answers(self) -> int:
        """One, at the end."""
        return 1

    def chance(self) -> float:
        """Return the accuracy of any ordinary token, blind to the sequence, which has one answer."""
        return 1 / (self.settings.vocab_size - 1)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the special token to its second place.
        """
        return {"distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; the special token overwrites ordinary ones."""
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        ordinary = 1 + stream.child("ordinary").integers(s.seq_len, below=s.vocab_size - 1)
        last = torch.full_like(index[:, None], s.seq_len - 1)
        places = max(1, min(s.seq_len - 2, round(s.early * s.seq_len)))  # its successor is not the last token
        early = stream.child("place").integers(1, below=places)
        inputs = ordinary.scatter(1, torch.cat([early, last], dim=1), 0)
        return Batch(inputs, last, ordinary.gather(1, early + 1), {"distance": last - early})

    def solve(self, batch: Batch) -> Tensor:
        """Return the token after the first special one."""
        first = (batch.inputs == 0).long().argmax(dim=1, keepdim=True)
        return batch.inputs.gather(1, first + 1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the special token and what surrounds it."""
        at = int(batch.positions[row, 0])
        first = at - int(batch.slices["distance"][row, 0])
        around = " ".join(map(str, batch.inputs[row, max(0, first - 8) : min(at, first + 10)].tolist()))
        return (
            f"The special token 0 stands at positions {first} and {at} of {self.seq_len}. It was followed by"
            f" {int(batch.targets[row, 0])} (... {around} ...), and that is the answer due at position {at}."
        )
