"""Multi-query associative recall with keys of two tokens."""

from math import isqrt
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.composite_keys import CompositeKeys
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.queries import Filler, PairsThenQueries, PowerA, filler_tokens, power_law_slots
from linbench.tasks.random import Stream


class CompositionalMQARSettings(Settings):
    """Settings of the published generator."""

    seq_len: int = Field(64, ge=6, description="length of a sequence, at least 6 tokens for each pair")
    kv_pairs: int = Field(
        9,
        ge=1,
        description=(
            "key-value pairs, each queried once; a square number, since the keys are all cells of a grid"
        ),
    )
    vocab_size: int = Field(
        256,
        ge=6,
        description=(
            "0 is filler. The rest of the first third are first tokens of keys, the second third are"
            " second tokens, the last third are values"
        ),
    )
    power_a: PowerA = 0.01
    filler: Filler = "random"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        side = isqrt(self.kv_pairs)
        if side**2 != self.kv_pairs:
            raise ValueError(
                f"kv_pairs must be a square, since keys are all cells of a grid; {self.kv_pairs} lies between"
                f" {side**2} and {(side + 1) ** 2}"
            )
        if 6 * self.kv_pairs > self.seq_len:
            raise ValueError(
                f"{self.kv_pairs} pairs and their queries need {6 * self.kv_pairs} tokens, three for each;"
                f" seq_len is {self.seq_len}"
            )
        third = max(self.kv_pairs, side + 1)
        if third > self.vocab_size // 3:
            raise ValueError(
                f"keys from {side} first and {side} second tokens, {self.kv_pairs} distinct values and a"
                f" token of filler need a vocabulary of {3 * third} or more; {self.vocab_size} is too small"
            )
        return self


def _long(seq_len: int, kv_pairs: int) -> Preset:
    return Preset(
        f"{kv_pairs} pairs in {seq_len} tokens, as published for forgetting_mqar, whose counts are the"
        " squares that are needed here",
        task={"seq_len": seq_len, "kv_pairs": kv_pairs, "vocab_size": 8192},
    )


class CompositionalMQAR(PairsThenQueries):
    """If two tokens make one key and neither is enough, which value followed these two?

    A sequence begins with all cells of a grid of first and second tokens, each followed by its value. Later
    it asks for each cell at its second token. A layer must join two tokens to one key before it looks the key
    up; a layer that reads only one of them is right in 1 of n cases. It does not tell whether a layer could
    join tokens that are further apart.

    Layout: a key is one of n first tokens, then one of n second tokens. A sequence begins with all kv_pairs =
    n * n keys, each followed by its value (`a1 b2 v1 a2 b2 v2 ...`). Later each key stands once more, in
    slots of three tokens, early ones being likelier by a power law; its value is due at its second token.

    Chance: naming the value of the pair that is most likely asked for in this slot.

    The generator compositional_mqar of Zoology, arXiv:2312.04927. Chosen here: the keys stand in random
    order, and values are distinct. Where filler is `published`, random tokens may repeat a queried key, so
    that a later token appears to be its value.
    """

    name = "compositional_mqar"
    skill = "remember"
    solved_by = ("suffix",)
    Settings = CompositionalMQARSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "for a laptop: a grid of 3 by 3 keys in 64 tokens",
            task={"filler": "zero"},
            protocol={"lr": 3e-3, "tokens": 1_228_800},
        ),
        "zoology-64-4": _long(64, 4),
        "zoology-128-9": _long(128, 9),
        "zoology-256-16": _long(256, 16),
        "zoology-256-25": _long(256, 25),
        "zoology-256-36": _long(256, 36),
        "zoology-2048-256": _long(2048, 256),
    }

    settings: CompositionalMQARSettings

    @property
    def slot(self) -> int:
        """Two tokens of a key and its value, or what follows a query."""
        return 3

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; positions, targets and slices are in the order of the pairs."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        side, third = isqrt(s.kv_pairs), s.vocab_size // 3
        pair, line = torch.arange(s.kv_pairs, device=device), torch.arange(side, device=device)
        firsts = 1 + stream.child("first tokens").permutation(third - 1)(line)
        seconds = third + stream.child("second tokens").permutation(third)(line)
        tokens = torch.cat([firsts, seconds], dim=1)
        law = CompositeKeys(s.kv_pairs, parts=2, shared=1, cluster=side)
        keys = law.spell(law.cells(stream.child("cells")), tokens)
        values = 2 * third + stream.child("values").permutation(s.vocab_size - 2 * third)(pair)
        slots = power_law_slots(stream.child("slots"), s.kv_pairs, of=self.slots, power_a=s.power_a)
        filler = filler_tokens(
            s.filler, stream.child("filler"), s.seq_len - self.context, vocab_size=s.vocab_size, keys=tokens
        )
        return self.lay_out(keys, values, slots, filler)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, then the queries in the order they stand."""
        pairs, asked = self.in_words(batch, row)
        return (
            f"In this sequence {join_examples(pairs, 9)}. Then {join_examples(asked, 9)}. All other tokens"
            f" after position {self.context - 1} are filler."
        )
