"""Queries of keys later in a sequence: their slots, and the filler between them."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.tasks.base import Task
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

    Its settings have at least seq_len, kv_pairs, vocab_size and power_a.
    """

    slot: ClassVar[int] = 2
    """Tokens of a pair, and of a query with what follows it."""

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
