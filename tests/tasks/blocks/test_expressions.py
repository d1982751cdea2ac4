from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.blocks.expressions import LEAF, nested_expressions
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, content

PLUS, OPENS, CLOSES, EMPTY = 5, 8, 9, 11
MODULUS = 5


class Halved(Stream):
    """A stream by which every part is divided at one place, given by its key: at the first, at the last, or
    in the middle."""

    def child(self, draw: str) -> Stream:
        return Same(self.key) if draw == "halves" else super().child(draw)


class Same(Stream):
    """Bits that are the key itself."""

    def bits(self, counter: int | Tensor) -> Tensor:
        return self.key[:, None].expand(-1, counter if isinstance(counter, int) else len(counter))


class Part(NamedTuple):
    start: int
    size: int
    left: int | None
    first: int
    """Number of its left half."""


def queued(bits: list[int], length: int) -> list[Part]:
    """A tree part by part, each divided with the bits of its number."""
    waiting, parts = [(0, length)], []
    for number, (start, size) in enumerate(waiting):  # which grows meanwhile
        left = 1 + (bits[number] * (size - LEAF) >> 32) if size > LEAF else None
        parts.append(Part(start, size, left, len(waiting)))
        if left is not None:
            waiting += [(start + 1, left), (start + 2 + left, size - 3 - left)]
    return parts


def told(parts: list[Part], letters: list[int]) -> tuple[list[int], int]:
    """Tokens and value; leaves take every other letter, operators those between."""
    digits, operators = iter(letters[::2]), iter(letters[1::2])
    tokens, values = [EMPTY] * parts[0].size, []
    for start, size, left, _ in parts:
        letter = next(digits if left is None else operators)
        if size > 2:
            tokens[start], tokens[start + size - 1] = OPENS, CLOSES
        if left is not None:
            tokens[start + 1 + left] = PLUS + letter
        else:
            tokens[start + size // 2] = letter
            if size % 2 == 0:
                tokens[start + size // 2 - 1] = PLUS + 1
        values.append(letter if left is not None or size % 2 else -letter)
    for number, part in reversed([*enumerate(parts)]):
        if part.left is not None:
            a, b = values[part.first : part.first + 2]
            values[number] = (a + b, a - b, a * b)[values[number]]
    return tokens, values[0] % MODULUS


@pytest.mark.parametrize("operators", [2, 3])
@pytest.mark.parametrize("longest", [1, 4, 5, 8, 9, 37, 120])
@pytest.mark.parametrize("bits", [None, 0, 1 << 31, (1 << 32) - 1])
def test_parts_are_divided_as_in_a_queue(longest: int, operators: int, bits: int | None) -> None:
    """Expressions have all lengths; parts are divided at random, or at their first, middle or last place."""
    length = 1 + torch.arange(longest)
    stream = Stream.of(length, seed=0, split="test") if bits is None else Halved(torch.full((longest,), bits))
    found = nested_expressions(
        stream,
        length[:, None],
        longest=longest,
        modulus=MODULUS,
        operators=operators,
        seq_len=longest + 2,
        split="test",
    )

    most = 2 * ((longest - 1) // LEAF) + 1
    trees = [
        queued(row, size)
        for row, size in zip(stream.child("halves").bits(most).tolist(), length.tolist(), strict=True)
    ]
    sizes = torch.tensor([[*(part.size for part in tree), *[0] * (most - len(tree))] for tree in trees])
    radices = tuple((MODULUS, operators)[i % 2] for i in range(most))
    letters = words(
        stream,
        torch.tensor([[len(tree)] for tree in trees]),
        radices=radices,
        shortest=1,
        split="test",
        given=content(sizes),
    )
    for row, tree in enumerate(trees):
        tokens, value = told(tree, letters[row].tolist())
        assert torch.equal(found.tokens[row], pad(torch.tensor(tokens), (0, longest + 1 - row), value=EMPTY))
        assert int(found.value[row]) == value
