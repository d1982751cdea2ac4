"""Words of uniform letters, the short ones divided among the splits: there are so few that what is tested
would have been trained on."""

from itertools import accumulate, takewhile
from operator import mul

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Split
from linbench.tasks.random import Stream, constant

FEW = 1 << 24
"""Lengths with fewer words are divided. Of more, a training set of a million examples holds under 6 % of
those that are tested."""

SHARED = 64
"""Lengths with fewer words belong to every split: half of them would not show what the rule is. Where words
stand in several surroundings, a quarter as many do: all surroundings show it together."""

_OWNED = {"train": (0, 2), "validation": (2, 1), "test": (3, 1)}
"""Of every four words in the order of their numbers: the first place a split owns and how many, counted round
from a place that is hashed."""


def words(
    stream: Stream,
    length: Tensor,
    *,
    radices: tuple[int, ...] | Tensor,
    shortest: int,
    split: Split,
    given: Tensor | None = None,
) -> Tensor:
    """[B, T] letters, the one at t uniform below radices[t] (or radices [B, T], at least 2); of them the
    first `length` [B, 1], at least `shortest`, are the word.

    Words of a length that has from 64 to 2^24 of them are divided: half of them are train's, a quarter
    validation's, a quarter test's, whatever the seed; a split draws uniformly from its own. So no two splits
    share such a word, and which split owns it says nothing about it.

    given: [B], a hash of all else that the example holds, if more than the word. Then words are divided anew
        for each of these, from 16 words on.
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
    """How many words of 0, 1, ... letters there are, as long as these are few."""
    return tuple(takewhile(lambda count: count < FEW, accumulate(radices, mul, initial=1)))


def _word_counts_per_row(radices: Tensor) -> Tensor:
    """The same of every row [B, T] -> [B, L], of the longest that may be few; `FEW` where they are not."""
    near = radices[:, : FEW.bit_length() - 2].double()  # exact, as far as it counts
    return pad(near.cumprod(dim=1).clamp(max=FEW).long(), (1, 0), value=1)


def _number(stream: Stream, length: Tensor, count: Tensor, split: Split, given: Tensor | None) -> Tensor:
    """[B, 1] uniform among those below `count` that the split owns at this length."""
    fours = torch.where(count < (SHARED if given is None else SHARED // 4), 0, count // 4)
    first, each = _OWNED[split]
    # what four does not divide is train's, and everybody's where nothing is divided
    own, over = each * fours, count - 4 * fours
    drawn = stream.integers(1, below=own + (over if split == "train" else torch.where(fours == 0, over, 0)))
    four, place = drawn // each, first + drawn % each
    surroundings = torch.zeros_like(count[:1, 0]) if given is None else given
    turn = Stream.of(surroundings, seed=0, split="division").bits(four + (length << 32)) >> 30
    return torch.where(drawn < own, 4 * four + (place + turn) % 4, drawn - own + 4 * fours)
