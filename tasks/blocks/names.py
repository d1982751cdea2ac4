"""Names of one or several tokens, and sequences that are spelt with them."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from linbench.common.settings import Settings
from linbench.tasks.random import Stream, constant

__all__ = ["Names", "draw_names", "read_words", "shared_prefix_share", "write_words"]

MOST_NAMES = 1 << 24
"""Names of one length, at most."""

SETS = 256
"""Sets of names from which `shared_prefix_share` is estimated."""


class Names(Settings):
    """Settings of tasks whose names have one or several tokens."""

    letters: int = Field(
        32,
        ge=2,
        description="tokens that names are made of; with longer names as many again, which end them",
    )
    shortest: int = Field(1, ge=1, description="tokens of the shortest name")
    longest: int = Field(1, ge=1, description="tokens of the longest name; all lengths are drawn alike")

    @property
    def name_tokens(self) -> int:
        """Return how many tokens names are made of."""
        return self.letters * (1 + (self.longest > 1))

    @model_validator(mode="after")
    def _namable(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest must be at most longest; {self.shortest} is above {self.longest}")
        if self.letters**self.longest > MOST_NAMES:
            raise ValueError(
                f"{self.letters} letters make over {MOST_NAMES:,} names of {self.longest} tokens; use fewer"
                " letters or a smaller longest"
            )
        return self

    def refuse_few_names(self, nodes: int) -> None:
        """Raise ValueError, in one sentence, unless so many nodes can have different names."""
        names = sum(self.letters**length for length in range(self.shortest, self.longest + 1))
        if names < nodes:
            raise ValueError(
                f"{nodes} nodes have different names; {self.letters} letters make only {names} of"
                f" {self.shortest} to {self.longest} tokens"
            )


def draw_names(
    stream: Stream, count: int, *, letters: int, shortest: int, longest: int
) -> tuple[Tensor, Tensor]:
    """Draw different names: their tokens [B, count, longest], 0 after the last, and lengths [B, count].

    A name has a uniform length and uniform letters, 0 ... letters - 1. If names can have several, `letters`
    is added to the last one, which so ends the name. Names are drawn until `count` are different, and stand
    in the order in which they were first drawn: the first n of them are such a draw of n names. This is the
    law of arXiv:2512.17351.
    """
    number = torch.arange(count, device=stream.key.device)
    times, spelt, lengths = [], [], []
    for length in range(shortest, longest + 1):
        # new names of one length come in random order; the fewer of them are left, the longer each takes
        size = letters**length
        new = number[: min(size, count)]
        waiting = stream.child(f"times {length}").exponentials(len(new)) * size // (size - new)
        times.append(waiting.cumsum(dim=1))
        word = stream.child(f"names {length}").permutation(size)(new)
        place = torch.arange(length, device=new.device)
        powers = constant(tuple(letters**power for power in range(length)), new.device)
        ends = letters * ((place == length - 1) & (longest > 1)).to(torch.int64)
        spelt.append(pad(word[:, :, None] // powers % letters + ends, (0, longest - length)))
        lengths.append(torch.full_like(new, length))
    first = torch.cat(times, dim=1).argsort(dim=1, stable=True)[:, :count]
    return torch.cat(spelt, dim=1).take_along_dim(first[:, :, None], dim=1), torch.cat(lengths)[first]


def write_words(words: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens of words one after another [B, W * L], then zeros; and where each begins [B, W].

    Args:
        words: tokens [B, W, L].
        length: how many of them belong to each word [B, W]; words without any are left out.
    """
    room = words.shape[1] * words.shape[2]
    start = length.cumsum(dim=1) - length
    token = torch.arange(words.shape[2], device=words.device)
    place = torch.where(token < length[:, :, None], start[:, :, None] + token, room)
    written = torch.zeros(len(words), room + 1, dtype=torch.int64, device=words.device)
    return written.scatter(1, place.flatten(1), words.flatten(1))[:, :room], start


def read_words(tokens: Sequence[int], names: Names, first: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the words of a row, each with the position of its first token.

    Args:
        tokens: of the row.
        names: how names are made.
        first: the first token of names; each token below it is a word.
    """
    ends = first + (names.letters if names.longest > 1 else 0)
    begun = 0
    for at, token in enumerate(tokens):
        if token < first or token >= ends:
            yield begun, tuple(tokens[begun : at + 1])
            begun = at + 1


@cache
def shared_prefix_share(count: int, *, letters: int, shortest: int, longest: int) -> float:
    """Return how often the commonest next token is right, given the tokens of a name before it.

    The name is any of `count` that are known. Of one-token names it is 1 / count; others are estimated from
    256 sets of names.
    """
    names, length = draw_names(
        Stream.of(torch.arange(SETS), seed=0, split="chance"),
        count,
        letters=letters,
        shortest=shortest,
        longest=longest,
    )
    right = 0
    said = torch.arange(SETS)[:, None].expand_as(length)  # the set, then the tokens so far, as one number
    for place in range(longest):
        due = length > place
        ids, times = torch.unique((said * 2 * letters + names[:, :, place])[due], return_counts=True)
        same, which = torch.unique(ids // (2 * letters), return_inverse=True)
        right += int(torch.zeros_like(same).scatter_reduce(0, which, times, "amax").sum())
        said = said * 2 * letters + names[:, :, place]
    return right / int(length.sum())
