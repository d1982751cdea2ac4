"""Random arithmetic expressions and their values, flat or nested in brackets."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Split
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, constant, content

LEAF = 4
"""Tokens of the longest bracketed expression with one digit, (-d); longer ones have an operator."""


class Vocabulary(NamedTuple):
    """Token ids; digits and the operators + - * count up from the first."""

    digit: int
    operator: int
    equals: int
    empty: int
    opens: int = -1
    closes: int = -1

    @classmethod
    def of(cls, modulus: int, *, brackets: bool) -> "Vocabulary":
        """Return the published ids: empty, operators, =, digits; or digits, operators, brackets, =, empty."""
        return (
            cls(0, modulus, modulus + 5, modulus + 6, modulus + 3, modulus + 4)
            if brackets
            else cls(5, 1, 4, 0)
        )


class Expressions(NamedTuple):
    """tokens: [B, T], empty after the first `length` [B, 1]. value: [B, 1], modulo the modulus."""

    tokens: Tensor
    length: Tensor
    value: Tensor


def flat_expressions(
    stream: Stream,
    length: Tensor,
    *,
    longest: int,
    shortest: int,
    modulus: int,
    operators: int,
    seq_len: int,
    split: Split,
) -> Expressions:
    """Return expressions d op d op ... d of `length` [B, 1] tokens, an odd number; * comes before + and -.

    Digits and operators are uniform.
    """
    ids = Vocabulary.of(modulus, brackets=False)
    radices = tuple(operators if at % 2 else modulus for at in range(longest))
    letters = words(stream, length, radices=radices, shortest=shortest, split=split)
    at = torch.arange(longest, device=length.device)
    used = at < length
    tokens = torch.where(used, letters + torch.where(at % 2 == 0, ids.digit, ids.operator), ids.empty)
    before = pad(letters[:, 1::2], (1, 0))  # the first digit begins a term, as after a plus
    value = _evaluate(letters[:, ::2], before, used[:, ::2], modulus)
    return Expressions(pad(tokens, (0, seq_len - longest), value=ids.empty), length, value)


class _Map(NamedTuple):
    """Effect of digits [B, C], read from the left, on a sum and the current term.

    (sum, term) -> (sum + adds * term + more, keeps * term + begins).
    """

    adds: Tensor
    more: Tensor
    keeps: Tensor
    begins: Tensor

    def then(self, after: "_Map", modulus: int) -> "_Map":
        """Return the effect of this one followed by `after`."""
        more = self.more + after.more + after.adds * self.begins
        both = (
            self.adds + after.adds * self.keeps,
            more,
            self.keeps * after.keeps,
            after.keeps * self.begins + after.begins,
        )
        return _Map(*(x % modulus for x in both))


_IDENTITY = (0, 0, 1, 0)


def _evaluate(digits: Tensor, before: Tensor, used: Tensor, modulus: int) -> Tensor:
    """Return the value [B, 1] of digits [B, C], each with the operator before it.

    + and - add the term to the sum and begin another; * multiplies the term. Neighbouring maps are combined
    until one is left, which acts on (0, 0): log2(C) steps.
    """
    times, zero = before == 2, torch.zeros_like(digits)
    begins = torch.where(used & ~times, torch.where(before == 1, -digits, digits), zero)
    maps = _Map(
        (used & ~times).to(torch.int64), zero, torch.where(used, torch.where(times, digits, zero), 1), begins
    )
    while (count := maps.adds.shape[1]) > 1:
        if count % 2:
            maps = _Map(*(pad(x, (0, 1), value=neutral) for x, neutral in zip(maps, _IDENTITY, strict=True)))
        maps = _Map(*(x[:, ::2] for x in maps)).then(_Map(*(x[:, 1::2] for x in maps)), modulus)
    return (maps.more + maps.begins) % modulus


def nested_expressions(
    stream: Stream, length: Tensor, *, longest: int, modulus: int, operators: int, seq_len: int, split: Split
) -> Expressions:
    """Return nested expressions of `length` [B, 1] tokens: d, -d, (d), (-d), or (left op right).

    Expressions of more than four tokens are divided, with left uniform in 1 ... length - 4. Parts are
    numbered as they are met, the halves of a part side by side: number 0 is the whole, 2 p - 1 and 2 p are
    the p-th pair, the halves of the p-th part that is divided. Number -1 is an unused column beside the
    whole, so that all pairs are two columns.
    """
    ids, rows, device = Vocabulary.of(modulus, brackets=True), len(length), length.device
    pairs = (longest - 1) // LEAF
    number = torch.arange(-1, 2 * pairs + 1, device=device)
    draws = stream.child("halves").bits(number)
    over, met = _divide_parts(length - LEAF, draws, pairs)
    size = (over + LEAF).masked_fill(number > 2 * met, 0)
    divided = over > 0
    left = 1 + (draws * over >> 32)
    # column of the part that a pair halves
    whole = length.new_zeros(rows, pairs + 1).scatter_(
        1, divided.cumsum(dim=1) * divided, (number + 1) * divided
    )
    leaf = (size > 0) & ~divided
    # of a tree, digits and operators in turn are the word that splits are told apart by
    radices = tuple(operators if i % 2 else modulus for i in range(2 * pairs + 1))
    letters = words(stream, 1 + 2 * met, radices=radices, shortest=1, split=split, given=content(size[:, 1:]))
    place = torch.where(leaf, 2 * leaf.cumsum(dim=1) - 2, 2 * divided.cumsum(dim=1) - 1)
    digit = letters.gather(1, place.clamp(min=0))
    operator = torch.where(divided, digit, 0)
    between = operator.gather(1, whole)
    sums = _sum_over_ancestors(torch.ones_like(whole), 2 + left.gather(1, whole) + (between << 32), whole)
    start, minuses = sums & 0xFFFFFFFF, sums >> 32  # where parts begin, and how often they are taken away
    negative = leaf & (size % 2 == 0)
    tokens = torch.full((rows, seq_len + 1), ids.empty, device=device)
    for there, at, token in (
        (leaf, start + size // 2, ids.digit + digit),
        (negative, start + size // 2 - 1, torch.full_like(size, ids.operator + 1)),
        (divided, start + 1 + left, ids.operator + operator),
        (size > 2, start, torch.full_like(size, ids.opens)),
        (size > 2, start + size - 1, torch.full_like(size, ids.closes)),
    ):
        tokens.scatter_(1, torch.where(there, at, seq_len), token)
    # without products a digit counts by the minuses before it, and pairs need not be gone through again
    value = torch.where(negative, -digit, digit)
    value = (
        _nested_value(value, between, whole, modulus)
        if operators > 2
        else (leaf * value * (1 - 2 * (minuses & 1))).sum(dim=1, keepdim=True)
    )
    return Expressions(tokens[:, :seq_len], length, value % modulus)


def _divide_parts(over: Tensor, draws: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Return how much longer than `LEAF` each part is, and how many pairs there are [B, 1].

    One pair at a time, in few operations: for a part longer by `over`, `taken` >= LEAF decides, and its
    halves are longer by 1 - 2 LEAF + taken and over - taken. Halves of an undivided part are never longer
    than a leaf. They are written as well, where a later pair will overwrite them.

    Args:
        over: how much longer than `LEAF` the whole is [B, 1].
        draws: random bits [B, 2 + 2 pairs].
        pairs: the most pairs there can be.
    """
    count, device = len(over), over.device
    # examples side by side in memory, as all that is done here is done to a few columns
    parts = over.new_full((pairs + 3, 2, 2, count), -LEAF)
    parts[:, 0] = 1 - 2 * LEAF
    parts[0, 1, 1] = over[:, 0]
    least, ways = constant((LEAF << 32,), device), constant((1, -1), device)[:, None]
    draws, free = draws.T.contiguous().view(-1, 2, count), constant((2, 1), device)[:, None]
    for pair in range(pairs):
        longer = parts[pair, 1]
        taken = torch.addcmul(least, draws[pair], longer) >> 32
        halves = torch.addcmul(parts[pair].transpose(0, 1), taken[:, None], ways)
        divided = longer.clamp(0, 1)
        # both the next two free pairs, the first part before the second if it is divided
        at = torch.addcmul(free, divided[0], ways, value=-1)
        parts[:, 1].scatter_(0, at[:, None].expand(-1, 2, -1), halves)
        free = free + divided[0] + divided[1]
    return parts[:-2, 1].flatten(0, 1).T.contiguous(), free[1, :, None] - 1


def _sum_over_ancestors(left: Tensor, right: Tensor, whole: Tensor) -> Tensor:
    """Return what a part's half and all halves that contain it add up to [B, 2 P].

    Args:
        left, right: what the left and right halves of `whole` add [B, P].
        whole: the part that a pair divides [B, P].
    """
    summed = torch.stack([left, right], dim=2)
    summed[:, 0] = 0  # of the whole, and of nothing
    summed, within = summed.flatten(1), whole[:, :, None].expand(-1, -1, 2).flatten(1)
    for _ in range((whole.shape[1] - 1).bit_length()):
        summed += summed.gather(1, within)
        within = within.gather(1, within)
    return summed


def _nested_value(value: Tensor, operator: Tensor, whole: Tensor, modulus: int) -> Tensor:
    """Return the value of the expression [B, 1], computed pair by pair, the last first.

    a op b is x + y b with (x, y) = (0, s) + a (p, q): a + b, a - b, or 0 + a b.

    Args:
        value: of the leaves [B, 2 P].
        operator: between the halves of `whole` [B, P].
    """
    operator, whole, value = (x.T.contiguous() for x in (operator, whole, value))
    fixed, factors = (
        constant(table, value.device).view(2, 3)[:, operator]
        for table in ((0, 0, 0, 1, -1, 0), (1, 1, 0, 0, 0, 1))
    )
    for pair in reversed(range(1, len(whole))):
        a, b = value[2 * pair], value[2 * pair + 1]
        x, y = torch.addcmul(fixed[:, pair], a, factors[:, pair])
        value.scatter_(0, whole[pair : pair + 1], torch.addcmul(x, y, b)[None] % modulus)
    return value[1, :, None]
