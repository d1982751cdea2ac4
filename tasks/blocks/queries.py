"""Queries of keys later in a sequence: their slots, and the filler between them."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.tasks.base import Batch, Task
from linbench.tasks.blocks.chance import nth_draw_probabilities
from linbench.tasks.random import Stream, constant, inverse_powers

PowerA = Annotated[
    float,
    Field(
        gt=0,
        le=2,
        description=(
            "slot i of the query region is taken with weight a * i^(a-1); 1 is uniform, small is early"
        ),
    ),
]

Filler = Annotated[
    Literal["zero", "random", "published"],
    Field(
        description=(
            "what stands where nothing is asked: 0, random tokens but no queried key, or (published) any"
            " token"
        )
    ),
]


class PairsThenQueries(Task):
    """A task that begins with pairs and asks for each key once, later, in one of the remaining slots.

    Its settings have at least seq_len, kv_pairs, vocab_size and power_a. A key is all tokens of a slot but
    the last.
    """

    @property
    def slot(self) -> int:
        """Tokens of a pair, and of a query with what follows it."""
        return 2

    @property
    def answers(self) -> int:
        """One per pair."""
        return int(self.settings.kv_pairs)

    @property
    def context(self) -> int:
        """Tokens before the slots."""
        return self.slot * int(self.settings.kv_pairs)

    @property
    def slots(self) -> int:
        """Number of slots."""
        return (self.seq_len - self.context) // self.slot

    def chance(self) -> float:
        """Return the accuracy of naming the value of the pair that is most likely asked for in this slot.

        Pairs draw their slots in turn, so early slots are more likely the first pair's. Of a single pair: any
        value there is.
        """
        s = self.settings
        if s.kv_pairs == 1:
            return 1 / int(s.vocab_size - (self.slot - 1) * (s.vocab_size // self.slot))
        return float(
            nth_draw_probabilities(s.kv_pairs, of=self.slots, power_a=s.power_a).amax(dim=1).sum()
        ) / int(s.kv_pairs)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: tokens from the pair's key to its query. slot: place in the query region, 0 is nearest to
        the pairs.
        """
        return {"distance": self.seq_len, "slot": self.slots}

    def lay_out(self, keys: Tensor, values: Tensor, slots: Tensor, filler: Tensor) -> Batch:
        """Return pairs, then each key in its slot; places and slices are in the order of the pairs.

        Args:
            keys: [B, V, slot - 1].
            values: [B, V].
            slots: of the queries [B, V].
            filler: what stands where nothing is asked [B, seq_len - context].
        """
        parts = keys.shape[2]
        starts = self.slot * slots
        places = (starts[:, :, None] + torch.arange(parts, device=keys.device)).flatten(1)
        pairs = torch.cat([keys, values[:, :, None]], dim=2).flatten(1)
        inputs = torch.cat([pairs, filler.scatter(1, places, keys.flatten(1))], dim=1)
        pair = torch.arange(keys.shape[1], device=keys.device)
        slices = {"distance": self.context + starts - self.slot * pair, "slot": slots}
        return Batch(inputs, self.context + starts + parts - 1, values, slices)

    def solve(self, batch: Batch) -> Tensor:
        """Return the value beside the pair whose key ends at the query."""
        pairs = batch.inputs[:, : self.context].reshape(len(batch.inputs), -1, self.slot)
        keys, values = pairs[:, :, :-1], pairs[:, :, -1]
        parts = torch.arange(2 - self.slot, 1, device=keys.device)
        places = batch.positions[:, :, None] + parts
        asked = batch.inputs.gather(1, places.flatten(1)).view_as(places)
        pair = (asked[:, :, None] == keys[:, None]).all(dim=3).byte().argmax(dim=2)
        return values.gather(1, pair)

    def in_words(self, batch: Batch, row: int) -> tuple[list[str], list[str]]:
        """Return the pairs and the queries of an example in words, in the order they stand."""
        tokens = [str(token) for token in batch.inputs[row].tolist()]
        parts = self.slot - 1
        pairs = [
            f"{' '.join(tokens[i : i + parts])} means {tokens[i + parts]}"
            for i in range(0, self.context, self.slot)
        ]
        due = sorted(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True))
        asked = [
            f"at {_stand_at(at, parts)} {' '.join(tokens[at + 1 - parts : at + 1])}, the answer"
            f" {f'at {at}' if parts > 1 else 'there'} is {target}"
            for at, target in due
        ]
        return pairs, asked


def _stand_at(last: int, count: int) -> str:
    """Return where so many tokens stand, the last of them at this position."""
    if count == 1:
        return f"position {last} stands"
    return f"positions {last + 1 - count} {'and' if count == 2 else 'to'} {last} stand"


def power_law_slots(stream: Stream, count: int, *, of: int, power_a: float) -> Tensor:
    """Draw distinct slots [B, count] one after another, slot i = 1, 2, ... with weight i^(power_a - 1).

    Slots are numbered from 0 in the result.
    """
    weights = constant(inverse_powers(of, round(power_a - 1, 12)), stream.key.device)
    return stream.weighted_order(weights)[:, :count]


def filler_tokens(kind: str, stream: Stream, length: int, *, vocab_size: int, keys: Tensor) -> Tensor:
    """Return filler tokens [B, length].

    Args:
        kind: one of `Filler`.
        stream: randomness.
        length: tokens.
        vocab_size: tokens there are.
        keys: distinct tokens [B, M] that "random" filler avoids.
    """
    if kind == "zero":
        return torch.zeros(keys.shape[0], length, dtype=torch.int64, device=keys.device)
    if kind == "published":
        return stream.integers(length, below=vocab_size)
    count = keys.shape[1]
    draw = stream.integers(length, below=vocab_size - count)
    # how many tokens below each key are no keys
    smaller_others = keys.sort(dim=1).values - torch.arange(count, device=keys.device)
    return draw + torch.searchsorted(smaller_others, draw, right=True)
