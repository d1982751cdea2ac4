"""Random arithmetic expressions and their values: with operators in a row, or nested in brackets."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Split
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, content

LEAF = 4
"""Tokens of the longest expression in brackets that holds one digit, (-d); all that are longer have an operator in their middle, as (d+d)."""


class Vocabulary(NamedTuple):
    """Ids; digits and the operators + - * count up from the first."""

    digit: int
    operator: int
    equals: int
    empty: int
    opens: int = -1
    closes: int = -1

    @classmethod
    def of(cls, modulus: int, *, brackets: bool) -> "Vocabulary":
        """As published: empty, operators, =, digits; or digits, operators, brackets, =, empty."""
        return cls(0, modulus, modulus + 5, modulus + 6, modulus + 3, modulus + 4) if brackets else cls(5, 1, 4, 0)


class Expressions(NamedTuple):
    """tokens: [B, T], empty after the first `length` [B, 1]. value: [B, 1], modulo the modulus."""

    tokens: Tensor
    length: Tensor
    value: Tensor


def in_a_row(stream: Stream, length: Tensor, *, longest: int, shortest: int, modulus: int, operators: int, seq_len: int, split: Split) -> Expressions:
    """d op d op ... d of `length` [B, 1] tokens, an odd number: digits and operators uniform, * before + and -."""
    ids = Vocabulary.of(modulus, brackets=False)
    radices = tuple(operators if at % 2 else modulus for at in range(longest))
    letters = words(stream, length, radices=radices, shortest=shortest, split=split)
    at = torch.arange(longest, device=length.device)
    used = at < length
    tokens = torch.where(used, letters + torch.where(at % 2 == 0, ids.digit, ids.operator), ids.empty)
    before = pad(letters[:, 1::2], (1, 0))  # the first digit begins a term, as after a plus
    value = _evaluated(letters[:, ::2], before, used[:, ::2], modulus)
    return Expressions(pad(tokens, (0, seq_len - longest), value=ids.empty), length, value)


class _Map(NamedTuple):
    """What digits [B, C] do from the left to a sum and the term that grows: (sum, term) -> (sum + adds * term + more, keeps * term + begins)."""

    adds: Tensor
    more: Tensor
    keeps: Tensor
    begins: Tensor

    def then(self, after: "_Map", modulus: int) -> "_Map":
        """Both, this one first."""
        more = self.more + after.more + after.adds * self.begins
        both = (self.adds + after.adds * self.keeps, more, self.keeps * after.keeps, after.keeps * self.begins + after.begins)
        return _Map(*(x % modulus for x in both))


_NOTHING = (0, 0, 1, 0)


def _evaluated(digits: Tensor, before: Tensor, used: Tensor, modulus: int) -> Tensor:
    """[B, 1] the value of digits [B, C], each with the operator before it: + and - add the term to the sum and begin another, * multiplies it.

    Neighbours become one map until one is left, which acts on (0, 0); in log2(C) steps.
    """
    times, zero = before == 2, torch.zeros_like(digits)
    begins = torch.where(used & ~times, torch.where(before == 1, -digits, digits), zero)
    maps = _Map((used & ~times).to(torch.int64), zero, torch.where(used, torch.where(times, digits, zero), 1), begins)
    while (count := maps.adds.shape[1]) > 1:
        if count % 2:
            maps = _Map(*(pad(x, (0, 1), value=neutral) for x, neutral in zip(maps, _NOTHING, strict=True)))
        maps = _Map(*(x[:, ::2] for x in maps)).then(_Map(*(x[:, 1::2] for x in maps)), modulus)
    return (maps.more + maps.begins) % modulus


def nested(stream: Stream, length: Tensor, *, longest: int, modulus: int, operators: int, seq_len: int, split: Split) -> Expressions:
    """One of `length` [B, 1] tokens: d, -d, (d), (-d) where it has at most four, else (left op right) with left uniform in 1 ... length - 4.

    Parts are numbered as they are met, the halves of a part side by side, so that a loop over the numbers goes through every row's tree from the
    whole down, and back up for the values. A row has at most `parts`; two more columns take what is not there.
    """
    ids, rows, device = Vocabulary.of(modulus, brackets=True), len(length), length.device
    parts = 2 * ((longest - 1) // LEAF) + 1
    size, start = length.new_zeros(2, rows, parts + 2)
    size[:, :1] = length
    draws = stream.child("halves").bits(parts)
    met, left, children = torch.ones_like(length), [], []
    for i in range(parts):
        whole, first = size[:, i : i + 1], start[:, i : i + 1]
        divided = whole > LEAF
        left.append(1 + ((draws[:, i : i + 1] * (whole - LEAF).clamp(min=0)) >> 32))
        children.append(torch.where(divided, met, parts) + torch.arange(2, device=device))
        size.scatter_(1, children[i], torch.cat([left[i], whole - 3 - left[i]], dim=1))
        start.scatter_(1, children[i], torch.cat([first + 1, first + 2 + left[i]], dim=1))
        met = met + 2 * divided
    size, start = size[:, :parts], start[:, :parts]

    divided = size > LEAF
    leaf = (size > 0) & ~divided
    # of a tree, digits and operators in turn are the word that splits are told apart by
    radices = tuple(operators if i % 2 else modulus for i in range(parts))
    letters = words(stream, met, radices=radices, shortest=1, split=split, given=content(size))
    place = torch.where(leaf, 2 * leaf.cumsum(dim=1) - 2, 2 * divided.cumsum(dim=1) - 1)
    digit = letters.gather(1, place.clamp(min=0))
    operator = torch.where(divided, digit, 0)
    negative = leaf & (size % 2 == 0)
    tokens = torch.full((rows, seq_len + 1), ids.empty, device=device)
    for there, at, token in (
        (leaf, start + size // 2, ids.digit + digit),
        (negative, start + size // 2 - 1, torch.full_like(size, ids.operator + 1)),
        (divided, start + 1 + torch.cat(left, dim=1), ids.operator + operator),
        (size > 2, start, torch.full_like(size, ids.opens)),
        (size > 2, start + size - 1, torch.full_like(size, ids.closes)),
    ):
        tokens.scatter_(1, torch.where(there, at, seq_len), token)

    value = pad(torch.where(negative, -digit, digit), (0, 2))
    for i in reversed(range(parts)):
        a, b = torch.split(value.gather(1, children[i]), 1, dim=1)
        applied = torch.cat([a + b, a - b, a * b], dim=1).gather(1, operator[:, i : i + 1])
        value[:, i : i + 1] = torch.where(divided[:, i : i + 1], applied, value[:, i : i + 1]) % modulus
    return Expressions(tokens[:, :seq_len], length, value[:, :1])
