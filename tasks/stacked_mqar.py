"""Multi-query associative recall of vectors, with key and value in one token."""

from functools import cache
from math import sqrt
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.common.hashing import stable_key
from linbench.common.settings import ABSENT, Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.error_kinds import near_kinds
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.similar_vectors import similar_vectors
from linbench.tasks.random import Stream

MOST_SIMILAR = 0.999
"""Largest cosine of two keys: vectors in float32 are still told apart."""


class StackedMQARSettings(Settings):
    """Settings: number of pairs, their vectors, and how long they must be held."""

    seq_len: int = Field(64, ge=2, description="length of a sequence; between pairs and queries stand zeros")
    kv_pairs: int = Field(16, ge=1, description="key-value pairs, one token each, each queried once")
    vocab_size: int = Field(256, ge=2, description="the lower half keys, the upper half values")
    dim: int = Field(
        32,
        ge=2,
        description="dimensions of the vector that stands for a key or value; a token has twice as many",
    )
    embeddings: int = Field(
        0,
        ge=0,
        description="which table of random vectors stands for keys and values; the same in every example",
    )
    similarity: float | None = Field(
        None,
        ge=0,
        le=MOST_SIMILAR,
        description=(
            "cosine of two keys of a cluster, whose vectors are then drawn anew for every example; null: keys"
            " are from the table"
        ),
        json_schema_extra={ABSENT: None},
    )
    cluster: int | None = Field(
        None,
        ge=2,
        description="keys of a cluster, which are as much alike as similarity says; it must divide kv_pairs",
        json_schema_extra={ABSENT: None},
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if 2 * self.kv_pairs > self.seq_len:
            raise ValueError(
                f"{self.kv_pairs} pairs and their queries need {2 * self.kv_pairs} tokens; seq_len is"
                f" {self.seq_len}"
            )
        if 2 * self.kv_pairs > self.vocab_size:
            raise ValueError(
                f"{self.kv_pairs} distinct keys and values need a vocabulary of {2 * self.kv_pairs} or more;"
                f" {self.vocab_size} is too small"
            )
        return self

    @model_validator(mode="after")
    def _clusters_of_similar_keys(self) -> Self:
        if (self.similarity is None) != (self.cluster is None):
            given, needed = ("similarity", "cluster") if self.cluster is None else ("cluster", "similarity")
            raise ValueError(f"{given} needs {needed}; give both or neither")
        if self.cluster is not None and self.kv_pairs % self.cluster:
            raise ValueError(f"cluster must divide kv_pairs = {self.kv_pairs}; {self.cluster} does not")
        if self.similarity is not None and self.kv_pairs > self.dim == 2:
            raise ValueError(
                f"{self.kv_pairs} keys with a similarity need a dim of 3 or more, not 2, in which two of them"
                " may be the same"
            )
        return self


@cache
def _table(rows: int, dim: int, embeddings: int, device: torch.device) -> Tensor:
    """Return a table [rows + 1, dim] of float32 draws from N(0, 1), with zeros as the last row.

    It is made once on the CPU, from where all devices copy it.
    """
    stream = Stream(torch.tensor([stable_key("stacked_mqar", embeddings)]))
    return nn.functional.pad(stream.normals(rows * dim).view(rows, dim), (0, 0, 0, 1)).to(device)


def _bits(vectors: Tensor) -> Tensor:
    """Return the bits of two components of vectors [..., dim] as one integer.

    They tell the rows of a table apart.
    """
    return vectors[..., :2].contiguous().view(torch.int64).squeeze(-1)


class StackedMQAR(Task):
    """If key and value are vectors in one token, which value stood with this key?

    Each of the first kv_pairs tokens is a key with its value. The last tokens are the keys once more, beside
    zeros, and values are due there. Key and value arrive together, so one layer without a convolution can
    solve the task, and only the number of pairs makes it hard. It does not tell how a layer would join keys
    and values in separate tokens, which is half of the work there.

    Layout: a token is two vectors side by side. Keys are asked for in random order, and values are named by
    their number in their half of the vocabulary. All tokens between are zeros.

    With the setting `similarity` keys come in clusters of `cluster` keys, and the cosine of two keys of a
    cluster is given; keys of different clusters are at right angles. With G the matrix of these cosines, the
    keys of an example are the rows of sqrt(dim) [G^(1/2), 0] Q, in random order, where Q is a uniform
    rotation drawn anew for each example. So a layer cannot learn a map that makes keys less alike, as it
    could if keys were from a table. Keys have norm sqrt(dim), about that of keys from the table, so that
    nothing but their similarity differs. With more keys than dimensions each cluster has a random direction
    c, and a key is sqrt(similarity) c + sqrt(1 - similarity) g, with g at right angles to c; cosines are then
    right on average. Values are from the table. A wrong answer is the value of another key of the cluster
    (`near`), of a key of another cluster (`far`), or of no key (`alien`). `near_excess` is the share of near
    among near and far answers, over (cluster - 1) / (kv_pairs - 1), what it is if the cluster does not
    matter. A layer that finds the cluster and no more is right in 1 / cluster of cases.

    Chance: any value of the sequence.

    The generator stacked_mqar of Zoology, arXiv:2312.04927. Chosen here: components of vectors are from N(0,
    1), in a table given by the setting `embeddings` and the same for all examples, seeds and splits; an
    example's keys are distinct, and so are its values; each key is asked for once; zeros stand beside a query
    and between pairs and queries.
    """

    name = "stacked_mqar"
    skill = "remember"
    Settings = StackedMQARSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "for a laptop: 16 pairs in 64 tokens, vectors of 32 dimensions",
            protocol={"lr": 3e-3, "tokens": 1_228_800},
        ),
        "quick-hard": Preset(
            "32 pairs in 64 tokens, vectors of 16 dimensions: twice as many keys as can be orthogonal",
            task={"kv_pairs": 32, "dim": 16},
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        **{
            f"similar-{percent}": Preset(
                f"{kind}; 16 pairs in 64 tokens, vectors of 64 dimensions",
                task={"similarity": percent / 100, "cluster": 4, "dim": 64},
                model={"d_model": 128},
                protocol={"lr": 3e-3, "tokens": 1_228_800},
            )
            for percent, kind in (
                (0, "keys at right angles to each other"),
                *((percent, f"clusters of 4 keys of cosine .{percent // 10}") for percent in (30, 60, 90)),
            )
        },
    }

    settings: StackedMQARSettings

    @property
    def io(self) -> IO:
        """Vectors in, numbers of values out."""
        return IO(None, self.settings.vocab_size - self._half, d_in=2 * self.settings.dim)

    @property
    def answers(self) -> int:
        """One per pair."""
        return self.settings.kv_pairs

    @property
    def _half(self) -> int:
        return self.settings.vocab_size // 2

    def _vectors(self, device: torch.device) -> Tensor:
        return _table(self.settings.vocab_size, self.settings.dim, self.settings.embeddings, device)

    def chance(self) -> float:
        """Return 1 / kv_pairs: any value of the sequence, blind to its key.

        Of a single pair, any value there is.
        """
        s = self.settings
        return 1 / (s.kv_pairs if s.kv_pairs > 1 else s.vocab_size - self._half)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the pair to its query.
        """
        return {"distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; positions, targets and slices are in the order of the pairs."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        pair = torch.arange(s.kv_pairs, device=device)
        targets = stream.child("values").permutation(s.vocab_size - self._half)(pair)
        positions = s.seq_len - s.kv_pairs + stream.child("queries").shuffle(s.kv_pairs)
        keys, facts = self._keys(stream, pair)
        values = nn.functional.embedding(self._half + targets, self._vectors(device))
        inputs = torch.zeros(len(index), s.seq_len, 2 * s.dim, device=device)
        inputs[:, : s.kv_pairs] = torch.cat([keys, values], dim=2)
        inputs[:, :, : s.dim].scatter_(1, positions[:, :, None].expand_as(keys), keys)
        return Batch(inputs, positions, targets, {"distance": positions - pair}, facts)

    def _keys(self, stream: Stream, pair: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the keys [B, kv_pairs, dim] in the order of the pairs, and the cluster of each as a fact.

        Similar keys are drawn in float64 and rounded once, so that devices agree.
        """
        s = self.settings
        if s.similarity is None or s.cluster is None:
            ids = stream.child("keys").permutation(self._half)(pair)
            return nn.functional.embedding(ids, self._vectors(pair.device)), {}
        drawn = similar_vectors(
            stream.child("keys"), s.kv_pairs, s.dim, cosine=s.similarity, cluster=s.cluster
        )
        return (sqrt(s.dim) * drawn.vectors).float(), {"cluster": drawn.cluster}

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy, and kinds of errors where keys are similar; place i is for the key of pair i."""
        s, found = self.settings, super().means(batch, prediction)
        if s.cluster is None:
            return found
        cluster = batch.facts["cluster"]
        said = prediction.answers[:, :, None] == batch.targets[:, None]
        near = (said & (cluster[:, :, None] == cluster[:, None])).any(dim=2)
        cross = said.any(dim=2) & (prediction.answers != batch.targets)
        kinds = near_kinds(cross=cross, near=near, share=(s.cluster - 1) / (s.kv_pairs - 1))
        return found | kinds | {"alien": WeightedMean(~said.any(dim=2))}

    def _read(self, vectors: Tensor) -> Tensor:
        """Return the rows of the table that stand in vectors [B, T, dim]: [B, T]."""
        rows, order = _bits(self._vectors(vectors.device)).sort()
        return order[torch.searchsorted(rows, _bits(vectors))]

    def _asked(self, batch: Batch) -> Tensor:
        """Return the pair whose key stands at each place [B, N]: keys have the same bits there."""
        keys = _bits(batch.inputs[..., : self.settings.dim])
        asked = keys.gather(1, batch.positions)
        return (asked[:, :, None] == keys[:, None, : self.settings.kv_pairs]).byte().argmax(dim=2)

    def solve(self, batch: Batch) -> Tensor:
        """Return the value beside the key that stands at the query, looked up in the table."""
        values = self._read(batch.inputs[..., self.settings.dim :])
        return values.gather(1, self._asked(batch)) - self._half

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, then the queries in the order they stand.

        Vectors are named by their numbers in the table, but similar keys by their places among the pairs.
        """
        s, inputs = self.settings, batch.inputs[row : row + 1]
        targets, positions = batch.targets[row].tolist(), batch.positions[row].tolist()
        asked = self._asked(batch)[row].tolist()
        if s.similarity is None:
            told = "Each token is two vectors, here named by their numbers."
            keys = [str(key) for key in self._read(inputs[:, : s.kv_pairs, : s.dim])[0].tolist()]
            named = keys
        else:
            told = (
                "Each token is two vectors, a key named by its place, with its cluster in brackets, and a"
                f" value by its number. Two keys of a cluster have cosine {s.similarity:g}."
            )
            keys = [str(place) for place in range(s.kv_pairs)]
            clusters = batch.facts["cluster"][row].tolist()
            named = [f"{key} ({cluster})" for key, cluster in zip(keys, clusters, strict=True)]
        values = (self._read(inputs[:, : s.kv_pairs, s.dim :])[0] - self._half).tolist()
        pairs = [f"key {key} with value {value}" for key, value in zip(named, values, strict=True)]
        due = [
            f"at position {at} stands key {keys[pair]}, the answer there is {target}"
            for at, pair, target in sorted(zip(positions, asked, targets, strict=True))
        ]
        zeros = self.seq_len - 2 * s.kv_pairs
        pause = f" Then come {zeros} tokens of zeros." if zeros else ""
        return f"{told} First come {join_examples(pairs, 16)}.{pause} At the end, {join_examples(due, 16)}."
