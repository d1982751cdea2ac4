"""Multi-query associative recall."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.queries import Filler, PairsThenQueries, PowerA, filler_tokens, power_law_slots
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream


class MQARSettings(Settings):
    """Settings of the published generator."""

    seq_len: int = Field(64, ge=4, description="length of a sequence; even")
    kv_pairs: int = Field(8, ge=1, description="key-value pairs, each queried once")
    vocab_size: int = Field(
        256, ge=4, description="0 is filler, the rest of the lower half keys, the upper half values"
    )
    power_a: PowerA = 0.01
    filler: Filler = "random"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "keys and queries stand at even positions")
        if 4 * self.kv_pairs > self.seq_len:
            raise ValueError(
                f"{self.kv_pairs} pairs and their queries need 4 * kv_pairs <= seq_len: at most"
                f" {self.seq_len // 4} pairs fit in {self.seq_len} tokens, or {4 * self.kv_pairs} tokens hold"
                f" {self.kv_pairs} pairs"
            )
        if self.kv_pairs > self.vocab_size // 2 - 1:
            raise ValueError(
                f"{self.kv_pairs} distinct keys need a vocabulary of at least {2 * self.kv_pairs + 2}, half"
                f" of it keys and one token filler; {self.vocab_size} allows {self.vocab_size // 2 - 1} pairs"
            )
        return self


def _zoology(length: int, pairs: int, batch: int) -> Preset:
    return Preset(
        f"Zoology's figure 2: {pairs} pairs in {length} tokens, vocabulary 8192; its protocol is --protocol"
        " zoology, its grid the suite zoology-figure2",
        task={"seq_len": length, "kv_pairs": pairs, "vocab_size": 8192, "filler": "zero"},
        protocol={"batch_size": batch},
    )


def _mamba2(length: int) -> Preset:
    return Preset(
        f"Mamba-2's (2405.21060) hardest for {length} tokens: {length // 4} pairs, vocabulary 8192; with its"
        f" curriculum from {length // 32} pairs on in the suite mamba2-mqar",
        task={"seq_len": length, "kv_pairs": length // 4, "vocab_size": 8192, "filler": "published"},
        model={"layers": 2},
        protocol={"examples": 1 << 18, "epochs": 8, "batch_size": (1 << 18) // length},
    )


class MQAR(PairsThenQueries):
    """Given many keys, each followed by its value, which value followed this one?

    A sequence begins with kv_pairs distinct keys, each followed by its value. Later each key stands once
    more, alone, and its value is due there. All associations must be held at once, and each found again by
    content. It does not tell whether a layer can change what it holds, or clear it.

    Layout: pairs stand first (`k1 v1 k2 v2 ...`). Later each key stands at an even position; early query
    slots are likelier than late ones, by a power law.

    Chance: naming the value of the pair that is most likely asked for in this slot.

    Arora et al. 2023 (Zoology), arXiv:2312.04927. As published, labels are aligned with the query token and
    the answer is not inserted; where filler is `published`, random tokens may repeat a queried key, so that a
    later value appears to follow it.
    """

    name = "mqar"
    version = 2
    skill = "remember"
    solved_by = ("suffix", "beside_last", "beside_first")
    Settings = MQARSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a minute on a laptop: 8 pairs in 64 tokens, which two layers with a short convolution learn",
            task={"filler": "zero"},
            model={"heads": 2, "gated_deltanet.output_gate": "none"},
            protocol={"lr": 5e-3, "tokens": 1_228_800},
        ),
        "quick-hard": Preset(
            "16 pairs for keys of 12 dimensions per head: more than can be kept apart, so that memories"
            " differ; controlled form",
            task={"kv_pairs": 16, "filler": "zero"},
            model={"heads": 4, "head_dim": 12, "form": "controlled"},
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        **{
            f"zoology-{length}-{pairs}": _zoology(length, pairs, batch)
            for length, pairs, batch in ((64, 4, 512), (128, 8, 512), (256, 16, 256), (512, 64, 128))
        },
        "based-256-64": Preset(
            "the hardest that Based (2402.18668) trains on: 64 pairs in 256 tokens, vocabulary 8192, random"
            " tokens as published",
            task={"seq_len": 256, "kv_pairs": 64, "vocab_size": 8192, "filler": "published"},
        ),
        **{f"mamba2-{length}": _mamba2(length) for length in (256, 512, 1024)},
    }

    settings: MQARSettings

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the pair's key to its query. slot: place in the query region, 0 is nearest to
        the pairs.
        """
        return {"distance": self.settings.seq_len, "slot": self.slots}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; positions, targets and slices are in the order of the pairs."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        half = s.vocab_size // 2
        pair = torch.arange(s.kv_pairs, device=device)
        keys = 1 + stream.child("keys").permutation(half - 1)(pair)
        values = half + stream.child("values").permutation(s.vocab_size - half)(pair)
        slots = power_law_slots(stream.child("slots"), s.kv_pairs, of=self.slots, power_a=s.power_a)
        filler = filler_tokens(
            s.filler, stream.child("filler"), s.seq_len - self.context, vocab_size=s.vocab_size, keys=keys
        )
        inputs = torch.cat(
            [torch.stack([keys, values], dim=2).flatten(1), filler.scatter(1, 2 * slots, keys)], dim=1
        )
        positions = self.context + 2 * slots
        return Batch(inputs, positions, values, {"distance": positions - 2 * pair, "slot": slots})

    def solve(self, batch: Batch) -> Tensor:
        """Return the value beside the pair whose key stands at the query."""
        keys, values = batch.inputs[:, : self.context : 2], batch.inputs[:, 1 : self.context : 2]
        asked = batch.inputs.gather(1, batch.positions)
        pair = (asked[:, :, None] == keys[:, None, :]).long().argmax(dim=2)
        return values.gather(1, pair)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, then the queries in the order they stand."""
        tokens = batch.inputs[row].tolist()
        pairs = ", ".join(f"{tokens[i]} means {tokens[i + 1]}" for i in range(0, self.context, 2))
        due = sorted(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True))
        asked = "; ".join(
            f"at position {at} stands {tokens[at]}, the answer there is {target}" for at, target in due
        )
        return (
            f"In this sequence {pairs}. Then {asked}. All other tokens after position {self.context - 1} are"
            " filler."
        )
