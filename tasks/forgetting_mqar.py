"""Multi-query associative recall in which some keys get a second value."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, WeightedMean
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.queries import Filler, PairsThenQueries, PowerA, filler_tokens, power_law_slots
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream


class ForgettingMQARSettings(Settings):
    """Settings of the published generator."""

    seq_len: int = Field(64, ge=6, description="length of a sequence; even")
    kv_pairs: int = Field(8, ge=1, description="key-value pairs, each queried once")
    updates: int = Field(4, ge=1, description="keys whose value is written anew, once, after all pairs")
    vocab_size: int = Field(
        256, ge=4, description="0 is filler, the rest of the lower half keys, the upper half values"
    )
    power_a: PowerA = 0.01
    filler: Filler = "random"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "keys and queries stand at even positions")
        if self.updates > self.kv_pairs:
            raise ValueError(
                f"{self.updates} updates of distinct keys need as many pairs; there are {self.kv_pairs}"
            )
        if (needed := 4 * self.kv_pairs + 2 * self.updates) > self.seq_len:
            raise ValueError(
                f"{self.kv_pairs} pairs, {self.updates} updates and the queries need 4 * kv_pairs + 2 *"
                f" updates <= seq_len: {needed} tokens or more, not {self.seq_len}"
            )
        if (needed := 2 * (self.kv_pairs + self.updates)) > self.vocab_size:
            raise ValueError(
                f"{self.kv_pairs} distinct keys and {self.kv_pairs + self.updates} distinct values need a"
                f" vocabulary of at least {needed}, half of it values; {self.vocab_size} is too small"
            )
        return self


def _published(seq_len: int, kv_pairs: int, examples: int) -> Preset:
    """Return one cell of the published mixture, trained on its own."""
    return Preset(
        f"one of the published lengths, {kv_pairs} pairs in {seq_len} tokens, without the others beside it,"
        " which the suite zoology-forgetting has; rates were 10^-3, 10^-2.5, 10^-2, 10^-1.5",
        task={"seq_len": seq_len, "kv_pairs": kv_pairs, "vocab_size": 8192},
        model={"layers": 2, "norm": "layer", "channel_mixer": "identity", "embedding_dropout": 0.1},
        protocol={
            **{
                "examples": examples,
                "epochs": 32,
                "batch_size": 256,
                "lr": 3.16e-3,
                "schedule": "epoch_cosine",
                "evaluations": 32,
            },
            **{"warmup": 0.0, "beta2": 0.999, "decay": "all", "clip": None, "stop_at": 0.99},
        },
    )


class ForgettingMQAR(PairsThenQueries):
    """After some keys were given a second value, which value has this key now?

    A sequence begins with kv_pairs keys and their values. Then `updates` of these keys return with new
    values, and later every key is asked for. Old values must be replaced, and `stale` is how often the old
    value of an updated key is named. It does not tell how a layer copes with many rewrites of one key, or
    with rewrites between queries.

    Layout: every key is asked for once, alone, at an even position, in early slots rather than late ones by a
    power law.

    Chance: naming the value of the pair that is most likely asked for in this slot.

    The generator forgetting_mqar of Zoology, arXiv:2312.04927. There a new value may not be the old one of
    another key, but may be the key's own old one; here all values of a sequence are distinct, so that an
    answer belongs to one key and one time. Where filler is `published`, random tokens may repeat a queried
    key, so that it appears to be rewritten.
    """

    name = "forgetting_mqar"
    skill = "overwrite"
    solved_by = ("suffix", "beside_last")
    Settings = ForgettingMQARSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "for a laptop: 8 pairs in 64 tokens, half of the keys rewritten",
            task={"filler": "zero"},
            protocol={"lr": 3e-3, "tokens": 1_228_800},
        ),
        "zoology-64-4": _published(64, 4, 100_000),
        "zoology-128-9": _published(128, 9, 20_000),
        "zoology-256-16": _published(256, 16, 20_000),
        "zoology-256-25": _published(256, 25, 20_000),
        "zoology-256-36": _published(256, 36, 20_000),
        "zoology-2048-256": Preset(
            "the longest of the published tests, which nothing was trained on: 256 pairs in 2048 tokens",
            task={"seq_len": 2048, "kv_pairs": 256, "vocab_size": 8192},
        ),
    }

    settings: ForgettingMQARSettings

    @property
    def context(self) -> int:
        """Tokens of pairs and updates."""
        return 2 * (self.settings.kv_pairs + self.settings.updates)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        updated: whether the key has a second value. distance: tokens from the key's last write to its query.
        slot: place in the query region.
        """
        return {"updated": 2, "distance": self.settings.seq_len, "slot": self.slots}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order of the pairs.

        The fact "old" is the first value of an updated key, `IGNORE` for others.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        half = s.vocab_size // 2
        statement = torch.arange(s.kv_pairs + s.updates, device=device).expand(index.shape[0], -1)
        pair, update = statement[:, : s.kv_pairs], statement[:, s.kv_pairs :]
        keys = 1 + stream.child("keys").permutation(half - 1)(pair)
        values = half + stream.child("values").permutation(s.vocab_size - half)(statement)
        updated = stream.child("updated").shuffle(s.kv_pairs)[:, : s.updates]
        written = torch.cat([keys, keys.gather(1, updated)], dim=1)
        last = pair.scatter(1, updated, update)  # the statement that holds in the end

        slots = power_law_slots(stream.child("slots"), s.kv_pairs, of=self.slots, power_a=s.power_a)
        filler = filler_tokens(
            s.filler, stream.child("filler"), s.seq_len - self.context, vocab_size=s.vocab_size, keys=keys
        )
        inputs = torch.cat(
            [torch.stack([written, values], dim=2).flatten(1), filler.scatter(1, 2 * slots, keys)], dim=1
        )
        positions = self.context + 2 * slots
        is_updated = last >= s.kv_pairs
        old = values[:, : s.kv_pairs].masked_fill(~is_updated, IGNORE)
        slices = {"updated": is_updated.long(), "distance": positions - 2 * last, "slot": slots}
        return Batch(inputs, positions, values.gather(1, last), slices, {"old": old})

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "stale": how often the answer for an updated key is its old value."""
        return super().means(batch, prediction) | {
            "stale": WeightedMean(prediction.answers == batch.facts["old"], batch.slices["updated"])
        }

    def solve(self, batch: Batch) -> Tensor:
        """Return the value beside the last statement about the key that stands at the query."""
        keys, values = batch.inputs[:, : self.context : 2], batch.inputs[:, 1 : self.context : 2]
        asked = batch.inputs.gather(1, batch.positions)
        back = (asked[:, :, None] == keys.flip(1)[:, None, :]).byte().argmax(dim=2)
        return values.flip(1).gather(1, back)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the pairs, updates, then the queries in the order they stand."""
        tokens = batch.inputs[row].tolist()
        writings = [f"{tokens[i]} means {tokens[i + 1]}" for i in range(0, self.context, 2)]
        pairs, updates = writings[: self.settings.kv_pairs], writings[self.settings.kv_pairs :]
        due = sorted(
            zip(
                batch.positions[row].tolist(),
                batch.targets[row].tolist(),
                batch.facts["old"][row].tolist(),
                strict=True,
            )
        )
        asked = [
            f"at position {at} stands {tokens[at]}, the answer there is {target}"
            + (f", no longer {old}" if old != IGNORE else "")
            for at, target, old in due
        ]
        return (
            f"In this sequence first {join_examples(pairs, 12)}. From position {2 * len(pairs)} on it is"
            f" otherwise: {join_examples(updates, 12)}. Then {join_examples(asked, 12)}. All other tokens"
            f" after position {self.context - 1} are filler."
        )
