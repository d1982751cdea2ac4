"""Multi-query associative recall."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Prediction, Preset, Split, WeightedMean
from linbench.tasks.blocks.composite_keys import Cluster, CompositeKeys, Parts, Shared
from linbench.tasks.blocks.error_kinds import cluster_kinds
from linbench.tasks.blocks.queries import Filler, PairsThenQueries, PowerA, filler_tokens, power_law_slots
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream


class MQARSettings(Settings):
    """Settings of the published generator."""

    seq_len: int = Field(64, ge=4, description="length of a sequence; even where parts is 1")
    kv_pairs: int = Field(8, ge=1, description="key-value pairs, each queried once")
    vocab_size: int = Field(
        256, ge=4, description="0 is filler, the rest of the lower half keys, the upper half values"
    )
    power_a: PowerA = 0.01
    filler: Filler = "random"
    parts: Parts = 1
    shared: Shared = 0
    cluster: Cluster = 4

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.parts == 1:
            refuse_odd("seq_len", self.seq_len, "keys and queries stand at even positions")
        self.key_law.refuse_impossible("kv_pairs")
        each = 2 * (self.parts + 1)
        if each * self.kv_pairs > self.seq_len:
            raise ValueError(
                f"{self.kv_pairs} pairs and their queries need {each} * kv_pairs <= seq_len: at most"
                f" {self.seq_len // each} pairs fit in {self.seq_len} tokens, or {each * self.kv_pairs}"
                f" tokens hold {self.kv_pairs} pairs"
            )
        half, tokens = self.vocab_size // 2, self.key_law.tokens
        if (needed := 2 * max(tokens + 1, self.kv_pairs)) > self.vocab_size:
            raise ValueError(
                f"{self.kv_pairs} distinct keys, of {tokens} different tokens, need a vocabulary of at least"
                f" {needed}, half of it values and one token filler; {self.vocab_size} allows {half - 1}"
                f" tokens of keys and {self.vocab_size - half} values"
            )
        return self

    @property
    def key_law(self) -> CompositeKeys:
        """The law of keys."""
        return CompositeKeys(self.kv_pairs, self.parts, self.shared, self.cluster)


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


def _composite(parts: int, shared: int, vocab_size: int) -> Preset:
    alike = f"clusters of 4 share the first {shared}" if shared else "no two share one, as a control"
    return Preset(
        f"two minutes on a laptop: 16 keys of {parts} tokens, {alike}; two convolutions of 4 tokens, which"
        " together reach over a key and its value",
        task={
            "seq_len": 32 * (parts + 1),
            "kv_pairs": 16,
            "vocab_size": vocab_size,
            "filler": "zero",
            "parts": parts,
            "shared": shared,
        },
        model={"heads": 2, "canon": "A", "gated_deltanet.output_gate": "none"},
        protocol={"lr": 3e-3, "batch_size": 8, "tokens": 2_560_000},
    )


class MQAR(PairsThenQueries):
    """Given many keys, each followed by its value, which value followed this one?

    A sequence begins with kv_pairs distinct keys, each followed by its value. Later each key stands once
    more, alone, and its value is due there. All associations must be held at once, and each found again by
    content. It does not tell whether a layer can change what it holds, or clear it.

    Layout: pairs stand first (`k1 v1 k2 v2 ...`). Later each key stands at an even position; early query
    slots are likelier than late ones, by a power law.

    With `parts` above 1, keys are several tokens that are alike within clusters. Keys of a cluster share
    their first parts, and the other parts come again in every cluster, so no part names a key. A sum of the
    parts' embeddings spans at most clusters + keys of a cluster - 1 dimensions, whatever is learned, so a
    layer must join parts to tell all keys apart. A value is due at the last token of a question. Wrong
    answers are values of the right cluster (near), of others (far) or of no key (alien); `cluster_chance` is
    the score of naming any value of the right cluster. With `shared` 0 one part is enough: a control. With 2
    parts, 1 shared, and as many clusters as a cluster has keys, keys are those of `compositional_mqar`.

    Chance: naming the value of the pair that is most likely asked for in this slot.

    Arora et al. 2023 (Zoology), arXiv:2312.04927. As published, labels are aligned with the query token and
    the answer is not inserted; where filler is `published`, random tokens may repeat a queried key, so that a
    later value appears to follow it.
    """

    name = "mqar"
    version = 2
    skill = "remember"
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
        **{f"composite-2-{shared}": _composite(2, shared, 66) for shared in (0, 1)},
        "composite-4-0": _composite(4, 0, 130),  # the fewest tokens that have 64 different parts
        **{f"composite-4-{shared}": _composite(4, shared, 34) for shared in (1, 2, 3)},
    }

    settings: MQARSettings

    @property
    def solved_by(self) -> tuple[str, ...]:
        """Finding what stood beside a token of a key, unless keys share tokens."""
        return ("suffix",) if self.settings.shared else ("suffix", "beside_last", "beside_first")

    @property
    def slot(self) -> int:
        """Parts of a key and its value, or what follows a query."""
        return self.settings.parts + 1

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; positions, targets and slices are in the order of the pairs.

        With keys of several parts, the fact "near" [B, V, cluster - 1, 1] holds the values of near keys.
        """
        s, law, device = self.settings, self.settings.key_law, index.device
        stream = Stream.of(index, seed=seed, split=split)
        half = s.vocab_size // 2
        token, pair = (torch.arange(count, device=device) for count in (law.tokens, s.kv_pairs))
        tokens = 1 + stream.child("keys").permutation(half - 1)(token)
        cells = law.cells(stream.child("cells"))
        keys = law.spell(cells, tokens)
        values = half + stream.child("values").permutation(s.vocab_size - half)(pair)
        slots = power_law_slots(stream.child("slots"), s.kv_pairs, of=self.slots, power_a=s.power_a)
        filler = filler_tokens(
            s.filler, stream.child("filler"), s.seq_len - self.context, vocab_size=s.vocab_size, keys=tokens
        )
        batch = self.lay_out(keys, values, slots, filler)
        if s.parts == 1:
            return batch
        near = law.near(cells)
        of_near = values.gather(1, near.flatten(1)).view_as(near)
        return batch._replace(facts={"near": of_near[:, :, :, None]})

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy and, with keys of several parts, what wrong answers are (`cluster_kinds`).

        alien: not a value of the sequence.
        """
        found = super().means(batch, prediction)
        if self.settings.parts == 1:
            return found
        is_value = (prediction.answers[:, :, None] == batch.targets[:, None]).any(dim=2)
        cross = is_value & (prediction.answers != batch.targets)
        kinds = cluster_kinds(batch, prediction, cross=cross, others=self.settings.kv_pairs - 1)
        return found | kinds | {"alien": WeightedMean(~is_value)}

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, then the queries in the order they stand."""
        pairs, asked = self.in_words(batch, row)
        return (
            f"In this sequence {', '.join(pairs)}. Then {'; '.join(asked)}. All other tokens after position"
            f" {self.context - 1} are filler."
        )
