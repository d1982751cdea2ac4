"""Multi-query associative recall of vectors, with key and value in one token."""

from functools import cache
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.common.hashing import stable_key
from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.random import Stream


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
        keys = stream.child("keys").permutation(self._half)(pair)
        targets = stream.child("values").permutation(s.vocab_size - self._half)(pair)
        positions = s.seq_len - s.kv_pairs + stream.child("queries").shuffle(s.kv_pairs)
        # the table's last row: zeros
        tokens = torch.full((index.shape[0], s.seq_len, 2), s.vocab_size, device=device)
        tokens[:, : s.kv_pairs] = torch.stack([keys, self._half + targets], dim=2)
        tokens[:, :, 0].scatter_(1, positions, keys)
        inputs = nn.functional.embedding(tokens, self._vectors(device)).flatten(2)
        return Batch(inputs, positions, targets, {"distance": positions - pair})

    def _read(self, inputs: Tensor) -> Tensor:
        """Return the rows of the table that stand in inputs [B, T, 2 * dim]: [B, T, 2]."""
        rows, order = _bits(self._vectors(inputs.device)).sort()
        return order[torch.searchsorted(rows, _bits(inputs.reshape(*inputs.shape[:2], 2, -1)))]

    def solve(self, batch: Batch) -> Tensor:
        """Look vectors up in the table; the answer is the value beside the key that stands at the query."""
        keys, values = self._read(batch.inputs).unbind(2)
        asked = keys.gather(1, batch.positions)
        pair = (asked[:, :, None] == keys[:, None, : self.settings.kv_pairs]).byte().argmax(dim=2)
        return values.gather(1, pair) - self._half

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, then the queries in the order they stand, by their numbers in the table."""
        tokens = self._read(batch.inputs[row : row + 1])[0].tolist()
        count, half, zeros = self.settings.kv_pairs, self._half, self.seq_len - 2 * self.settings.kv_pairs
        pairs = [f"key {key} with value {value - half}" for key, value in tokens[:count]]
        due = sorted(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True))
        asked = [
            f"at position {at} stands key {tokens[at][0]}, the answer there is {target}" for at, target in due
        ]
        pause = f" Then come {zeros} tokens of zeros." if zeros else ""
        return (
            f"Each token is two vectors, here named by their numbers. First come {join_examples(pairs, 16)}."
            f"{pause} At the end, {join_examples(asked, 16)}."
        )
