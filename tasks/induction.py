"""Induction heads."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.next_token import ALL_LABELLED, Labels, label_next_tokens
from linbench.tasks.blocks.previous_occurrence import token_after_previous
from linbench.tasks.blocks.seq_icl import LATER, seq_icl_preset
from linbench.tasks.blocks.validation import refuse_too_many_unused
from linbench.tasks.random import Stream


class InductionSettings(Settings):
    """Settings: length, vocabulary, labels, and how early the special token stands."""

    seq_len: int = Field(64, ge=4, description="length of a sequence")
    vocab_size: int = Field(16, ge=3, description="0 is the special token, the rest are ordinary")
    early: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of the sequence, from its start, in which the special token stands first",
    )
    unused: int = Field(
        0,
        ge=0,
        description="tokens of the vocabulary that never occur, the last ones",
        json_schema_extra={ABSENT: 0},
    )
    labels: Labels = "answer"

    @property
    def ordinary(self) -> int:
        """Number of ordinary tokens, 1, 2, ..."""
        return self.vocab_size - self.unused - 1

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_too_many_unused(self.vocab_size, self.unused, least=3)
        return self


class Induction(Task):
    """When the special token stood here before, which token followed it?

    One of the early tokens is replaced by a special token. The last token is the special token again, and the
    token that followed the first one is due. A layer must notice the one pair that matters, and carry it past
    all other tokens. It does not tell how much a layer can hold, since that is a single value.

    Chance: any ordinary token.

    After Gu & Dao 2023 (Mamba), arXiv:2312.00752, where lengths of 64 to 1,048,576 are tested after training
    at 256. How early Mamba's special token stands is not published; here it stands anywhere in the first
    half, so scores may not be read beside Mamba's.

    The presets `seq-icl` and `seq-icl-2024` are the task of Akyürek et al. 2024, arXiv:2401.12973, in their
    code (`quick` and `mamba` are not): the special token stands anywhere before the last three tokens, one
    token never occurs, training labels all tokens, and it goes through 5,000 sequences again and again. Not
    as there: the channel mixer is swiglu for GELU, weights of attention have no dropout, a batch may hold
    the end of an epoch and the start of the next, tests are not the examples that are validated on, and the
    learning rate falls to zero, not to a tenth.

    Published for `seq-icl`, one seed and 500 tests, in percent: H3 100.0, Transformer 97.2, S4D 8.8, GILR
    6.2, RWKV 6.0, LSTM 4.8, LRU 4.8. For `seq-icl-2024`, the later state of that code, no scores were found.
    """

    name = "induction"
    skill = "remember"
    solved_by = ("suffix", "beside_last", "beside_first")
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
        # `early` gives the published number of places: all but the last three of 31 or 257 tokens
        "seq-icl": seq_icl_preset(
            "30 tokens of 18 kinds before the last",
            task={"seq_len": 31, "vocab_size": 20, "early": 0.9, "unused": 1},
            protocol={"warmup": 0.1},
        ),
        "seq-icl-2024": seq_icl_preset(
            "256 tokens of 14 kinds before the last",
            task={"seq_len": 257, "vocab_size": 16, "early": 0.99, "unused": 1},
            model=LATER,
            protocol={"warmup": 0.1, "batch_size": 8},
        ),
    }

    settings: InductionSettings

    @property
    def answers(self) -> int:
        """One, at the end; or a place at every token."""
        return 1 if self.settings.labels == "answer" else self.seq_len

    def chance(self) -> float:
        """Return the accuracy of any ordinary token, blind to the sequence, which has one answer."""
        return 1 / self.settings.ordinary

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the special token to its second place.
        """
        return {"distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; the special token overwrites ordinary ones."""
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        ordinary = 1 + stream.child("ordinary").integers(s.seq_len, below=s.ordinary)
        last = torch.full_like(index[:, None], s.seq_len - 1)
        places = max(1, min(s.seq_len - 2, round(s.early * s.seq_len)))  # its successor is not the last token
        early = stream.child("place").integers(1, below=places)
        inputs = ordinary.scatter(1, torch.cat([early, last], dim=1), 0)
        batch = Batch(inputs, last, ordinary.gather(1, early + 1), {"distance": last - early})
        return batch if s.labels == "answer" else label_next_tokens(batch, split=split)

    def solve(self, batch: Batch) -> Tensor:
        """Return the token after the first special one, before the last."""
        return token_after_previous(batch.inputs, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the special token and what surrounds it."""
        at = int(batch.positions[row, -1])
        first = at - int(batch.slices["distance"][row, -1])
        around = " ".join(map(str, batch.inputs[row, max(0, first - 8) : min(at, first + 10)].tolist()))
        more = "" if self.settings.labels == "answer" else f" {ALL_LABELLED}"
        return (
            f"The special token 0 stands at positions {first} and {at} of {self.seq_len}. It was followed by"
            f" {int(batch.targets[row, -1])} (... {around} ...), and that is the answer due at position"
            f" {at}.{more}"
        )
