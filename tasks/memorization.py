"""MAD's memorization."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.macro_accuracy import MacroAccuracy
from linbench.tasks.blocks.mad import mad_preset
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream


class MemorizationSettings(Settings):
    """Settings of the published generator."""

    vocab_size: int = Field(
        256,
        ge=5,
        description="number of tokens: keys, as many values or one more, and the token that asks for a value",
    )
    seq_len: int = Field(32, ge=2, description="length of a sequence; even")
    map_seed: int = Field(
        0, ge=0, description="decides which value goes with which key, in training and tests alike"
    )

    @property
    def keys(self) -> int:
        """Number of keys."""
        return (self.vocab_size - 1) // 2

    @property
    def values(self) -> int:
        """Number of values; a value belongs to one key or none."""
        return self.vocab_size - 1 - self.keys

    @model_validator(mode="after")
    def _even(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "each key has its answer after it")
        return self


class Memorization(MacroAccuracy):
    """When no sequence says so, which value goes with this key?

    Every other token is a key, and the token after it asks for the key's value. Values are never inputs and
    are the same in all sequences, so they are learned from targets alone and kept in the weights, those of
    embeddings and channel mixers included. It does not tell what a layer's state holds.

    Layout: keys are drawn anew for every example; the token after a key is always the same.

    Chance: any value that some key has.

    MAD, Poli et al. 2024, arXiv:2403.17844. Tests ask for the facts that were trained on, as published; only
    the order of keys is new.
    """

    name = "memorization"
    skill = "remember"
    solved_by = ("question", "ngram", "bag", "suffix", "beside_last", "beside_first")
    Settings = MemorizationSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "127 facts, the published baseline trained on fresh examples",
            protocol={"tokens": 1_000_000, "lr": 3e-3},
        ),
        "mad": mad_preset("the baseline, 127 facts", examples=256),
        "mad-vocab-8192": mad_preset("4095 facts", examples=256, vocab_size=8192),
    }

    settings: MemorizationSettings

    @property
    def answers(self) -> int:
        """One for each key."""
        return self.settings.seq_len // 2

    def chance(self) -> float:
        """Return 1 / keys: any value that some key has, blind to the key."""
        return 1 / self.settings.keys

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        order: of the question in its sequence.
        """
        return {"order": self.answers}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; keys are drawn with replacement."""
        s, rows = self.settings, len(index)
        keys = Stream.of(index, seed=seed, split=split).child("keys").integers(self.answers, below=s.keys)
        inputs = torch.stack([keys, torch.full_like(keys, s.vocab_size - 1)], dim=2).flatten(1)
        order = torch.arange(self.answers, device=index.device)
        return Batch(
            inputs,
            (2 * order + 1).repeat(rows, 1),
            self._facts(index.device)[keys],
            {"order": order.repeat(rows, 1)},
        )

    def _facts(self, device: torch.device) -> Tensor:
        """Return the value of each key [keys]: as many values in a random order."""
        s = self.settings
        stream = Stream.of(torch.zeros(1, dtype=torch.int64, device=device), seed=s.map_seed, split="facts")
        return s.keys + stream.permutation(s.values)(torch.arange(s.keys, device=device))[0]

    def solve(self, batch: Batch) -> Tensor:
        """Look up the key before each question among the facts, which are known."""
        return self._facts(batch.inputs.device)[batch.inputs.gather(1, batch.positions - 1)]

    def explain(self, batch: Batch, row: int) -> str:
        """Return the keys and their values."""
        tokens = batch.inputs[row].tolist()
        due = [
            f"at position {at} for key {tokens[at - 1]} it is {target}"
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        ]
        return (
            f"Tokens 0 to {self.settings.keys - 1} are keys; after each stands"
            f" {self.settings.vocab_size - 1}, and there its value is due: {join_examples(due)}."
        )
