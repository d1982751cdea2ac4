"""Words of uniform letters; short words are divided among the splits.

There are so few short words that tests would otherwise repeat what was trained on.
"""

from itertools import accumulate, takewhile
from operator import mul

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Split
from linbench.tasks.random import Stream, constant

FEW = 1 << 24
"""Lengths with fewer words are divided.

Of longer words, a training set of a million examples holds under 6 % of those that are tested.
"""

SHARED = 64
"""Lengths with fewer words belong to every split: half of them would not show what the rule is.

Where words stand in several contexts, a quarter as many are shared: all contexts show the rule together.
"""

_OWNED = {"train": (0, 2), "validation": (2, 1), "test": (3, 1)}
"""The words that a split owns of every four in order: the first place, and how many places.

Places are counted round from a hashed one.
"""


def words(
    stream: Stream,
    length: Tensor,
    *,
    radices: tuple[int, ...] | Tensor,
    shortest: int,
    split: Split,
    given: Tensor | None = None,
) -> Tensor:
    """Return letters [B, T]; the first `length` [B, 1] of them are the word.

    Words of a length that has from 64 to 2^24 words are divided, whatever the seed: half are train's, a
    quarter validation's, a quarter test's. A split draws uniformly from its own words. So no two splits share
    such a word, and which split owns it says nothing about it.

    Args:
        stream: randomness.
        length: letters of the word, at least `shortest`.
        radices: number of letters at each place, T of them or [B, T], at least 2.
        shortest: length of the shortest word.
        split: whose words to draw.
        given: hash [B] of everything else in the example, if there is more than the word. Words are then
            divided anew
            for each hash, from 16 words on.
    """
    base = radices if isinstance(radices, Tensor) else constant(radices, length.device)[None]
    letters = stream.child("letters").integers(base.shape[1], below=base)
    counts = (
        _word_counts_per_row(radices)
        if isinstance(radices, Tensor)
        else constant(_word_counts(radices), length.device)[None]
    )
    longest = counts.shape[1] - 1
    if shortest > longest:
        return letters
    count = counts.expand(len(length), -1).gather(1, length.clamp(max=longest))
    number = _number(stream.child("number"), length, count, split, given)
    spelt = number // counts[:, :longest] % base[:, :longest]
    few = (length <= longest) & (count < FEW)
    return torch.cat([torch.where(few, spelt, letters[:, :longest]), letters[:, longest:]], dim=1)


def _word_counts(radices: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many words of 0, 1, ... letters there are, as long as these are few."""
    return tuple(takewhile(lambda count: count < FEW, accumulate(radices, mul, initial=1)))


def _word_counts_per_row(radices: Tensor) -> Tensor:
    """Return the same for every row [B, T] -> [B, L], `FEW` where they are not few."""
    near = radices[:, : FEW.bit_length() - 2].double()  # exact, as far as it counts
    return pad(near.cumprod(dim=1).clamp(max=FEW).long(), (1, 0), value=1)


def _number(stream: Stream, length: Tensor, count: Tensor, split: Split, given: Tensor | None) -> Tensor:
    """Return numbers [B, 1], uniform among those below `count` that the split owns at this length."""
    fours = torch.where(count < (SHARED if given is None else SHARED // 4), 0, count // 4)
    first, each = _OWNED[split]
    # what four does not divide is train's, and everybody's where nothing is divided
    own, over = each * fours, count - 4 * fours
    drawn = stream.integers(1, below=own + (over if split == "train" else torch.where(fours == 0, over, 0)))
    four, place = drawn // each, first + drawn % each
    surroundings = torch.zeros_like(count[:1, 0]) if given is None else given
    turn = Stream.of(surroundings, seed=0, split="division").bits(four + (length << 32)) >> 30
    return torch.where(drawn < own, 4 * four + (place + turn) % 4, drawn - own + 4 * fours)
