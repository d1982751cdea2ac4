"""Associative recall with a single question."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.chance import NEGLIGIBLE, most_common_share, occupied_boxes
from linbench.tasks.blocks.next_token import ALL_LABELLED, Labels, label_next_tokens
from linbench.tasks.blocks.previous_occurrence import token_after_previous
from linbench.tasks.blocks.seq_icl import LATER, seq_icl_preset
from linbench.tasks.blocks.validation import refuse_odd, refuse_too_many_unused
from linbench.tasks.random import Stream


class AssociativeRecallSettings(Settings):
    """Settings: length, vocabulary and labels."""

    seq_len: int = Field(40, ge=4, description="length of a sequence; even")
    vocab_size: int = Field(
        20, ge=4, description="0 announces the question, half of the rest are keys, the others values"
    )
    unused: int = Field(
        0,
        ge=0,
        description="tokens of the vocabulary that never occur, the last ones",
        json_schema_extra={ABSENT: 0},
    )
    labels: Labels = "answer"

    @property
    def keys(self) -> int:
        """Number of keys, tokens 1, 2, ..."""
        return (self.vocab_size - self.unused - 1) // 2

    @property
    def values(self) -> int:
        """Number of values, the tokens after the keys."""
        return self.vocab_size - self.unused - 1 - self.keys

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "pairs and the question take two tokens each")
        refuse_too_many_unused(self.vocab_size, self.unused, least=4)
        return self


class AssociativeRecall(Task):
    """Given pairs of keys and values, which value goes with the key in the last token?

    Pairs of a key and its value fill the sequence. A key that returns has the same value again, and the last
    token is a key that was shown. A layer must bind neighbours, and find one of the pairs by content. It does
    not tell how much a layer holds, since there are few tokens.

    Layout: `key value key value ... 0 key`, and the value is due at the last token. Every key has a uniform
    value of its own, so keys may share one. Keys of pairs are uniform, with repetition; of the keys that were
    there, each is equally likely to be asked for.

    Chance: the share of the keys with the most common value among those that were there.

    After Fu et al. 2022 (H3), arXiv:2212.14052, and Akyürek et al. 2024, arXiv:2401.12973. The presets
    `seq-icl` and `seq-icl-2024` are the task of the latter's code (`quick` and `wide` are not): one token
    never occurs, training labels all tokens, and it goes through 5,000 sequences again and again. Not as
    there: the channel mixer is swiglu for GELU, weights of attention have no dropout, a batch may hold the
    end of an epoch and the start of the next, and tests are not the examples that are validated on.

    Published for `seq-icl`, one seed and 500 tests, in percent: Transformer 100.0, H3 98.2, GILR 50.2, LSTM
    36.2, S4D 32.4, RWKV 30.0, LRU 11.6. For `seq-icl-2024`, the later state of that code, no scores were
    found.
    """

    name = "associative_recall"
    skill = "remember"
    solved_by = ("suffix", "beside_last", "beside_first")
    Settings = AssociativeRecallSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset("40 tokens of 20 kinds", protocol={"lr": 3e-3, "tokens": 1_280_000}),
        "wide": Preset(
            "256 tokens of 256 kinds",
            task={"seq_len": 256, "vocab_size": 256},
            protocol={"tokens": 20_000_000},
        ),
        "seq-icl": seq_icl_preset(
            "20 pairs, 9 keys and 9 values",
            task={"seq_len": 42, "unused": 1},
            protocol={"schedule": "linear", "warmup": 0.1},
        ),
        "seq-icl-2024": seq_icl_preset(
            "192 pairs, 19 keys and 19 values",
            task={"seq_len": 386, "vocab_size": 40, "unused": 1},
            model=LATER,
            protocol={"schedule": "linear", "warmup": 0.1, "epochs": 200},
        ),
    }

    settings: AssociativeRecallSettings

    @property
    def answers(self) -> int:
        """One, at the end; or a place at every token."""
        return 1 if self.settings.labels == "answer" else self.seq_len

    @property
    def _pairs(self) -> int:
        return self.settings.seq_len // 2 - 1

    def chance(self) -> float:
        """Return the accuracy of naming the most common value among the keys that were there.

        Of a single key, any value.
        """
        s = self.settings
        present = occupied_boxes(self._pairs, s.keys)
        if len(present) == 2:
            return 1 / s.values
        return sum(
            p * most_common_share(count, s.values) for count, p in enumerate(present) if p > NEGLIGIBLE
        )

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens since the key last stood. mentions: how often it stood.
        """
        return {"distance": self.settings.seq_len, "mentions": self._pairs + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; in the code keys are numbered from 0, their tokens from 1."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        values = 1 + s.keys + stream.child("values").integers(s.keys, below=s.values)
        keys = stream.child("keys").integers(self._pairs, below=s.keys)
        pairs = torch.stack([1 + keys, values.gather(1, keys)], dim=2).flatten(1)

        there = torch.zeros_like(values).scatter(1, keys, 1).cumsum(dim=1)  # of keys 0 ... k, how many
        nth = stream.child("question").integers(1, below=there[:, -1:])
        asked = (there <= nth).sum(dim=1, keepdim=True)
        inputs = torch.cat([pairs, torch.zeros_like(asked), 1 + asked], dim=1)
        position = torch.full_like(asked, s.seq_len - 1)
        stood = keys == asked
        last = (stood * torch.arange(self._pairs, device=device)).amax(dim=1, keepdim=True)
        slices = {"distance": position - 2 * last, "mentions": stood.sum(dim=1, keepdim=True)}
        batch = Batch(inputs, position, values.gather(1, asked), slices)
        return batch if s.labels == "answer" else label_next_tokens(batch, split=split)

    def solve(self, batch: Batch) -> Tensor:
        """Return the token after the key's last place."""
        return token_after_previous(batch.inputs, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return what each key means, then the question."""
        tokens = batch.inputs[row].tolist()
        means = dict(zip(tokens[:-2:2], tokens[1:-2:2], strict=True))
        pairs = ", ".join(f"{key} means {value}" for key, value in list(means.items())[:60]) + (
            ", ..." if len(means) > 60 else ""
        )
        asked, at, mentions = tokens[-1], self.seq_len - 1, int(batch.slices["mentions"][row, -1])
        more = "" if self.settings.labels == "answer" else f" {ALL_LABELLED}"
        return (
            f"In {self._pairs} pairs {pairs}. Token 0 announces the question: at position {at} stands"
            f" {asked}, which stood in {mentions} of the pairs, and the answer due there is"
            f" {int(batch.targets[row, -1])}.{more}"
        )
