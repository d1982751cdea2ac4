"""Grammars with levels: each rule replaces a symbol by two or three symbols of the next level."""

from functools import cache
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.random import Stream, constant

__all__ = ["BEGIN", "Grammar", "Rule", "Sentences", "sentences"]

BEGIN = 0
"""The token that begins a sentence, and so ends the one before. Terminals are numbered from 1 on."""

Rule = tuple[int, ...]
Level = tuple[tuple[int, tuple[Rule, ...]], ...]


class Grammar(NamedTuple):
    """A grammar by its levels, the roots first; the rules of the last level give terminals.

    levels: for each level its symbols, each with its rules. The roots are equally likely, and so are the
    rules of a symbol.
    """

    levels: tuple[Level, ...]

    @classmethod
    def parse(cls, text: str) -> "Grammar":
        """Return the grammar of a text: lines such as `7: 1 2 / 3 2 2`, and an empty one between levels."""
        return cls(tuple(_parse_level(level) for level in text.strip().split("\n\n")))

    def below(self, level: int) -> "Grammar":
        """Return the grammar whose roots are the symbols of a level, counted from 0."""
        return Grammar(self.levels[level:])

    @property
    def roots(self) -> tuple[int, ...]:
        """Symbols that a sentence may come from."""
        return tuple(symbol for symbol, _ in self.levels[0])

    @property
    def terminals(self) -> int:
        """Number of terminals."""
        return max(child for _, rules in self.levels[-1] for rule in rules for child in rule)

    def lengths(self) -> dict[int, tuple[int, int]]:
        """Return the fewest and the most tokens that each symbol gives, itself if it is a terminal."""
        found = dict.fromkeys(range(1, self.terminals + 1), (1, 1))
        for symbol, rules in self._upwards():
            sums = [[sum(found[child][end] for child in rule) for rule in rules] for end in (0, 1)]
            found[symbol] = min(sums[0]), max(sums[1])
        return found

    def counts(self) -> dict[int, float]:
        """Return how often each symbol is expected in the tree of a sentence."""
        found = dict.fromkeys(self.roots, 1 / len(self.roots))
        for level in self.levels:
            for symbol, rules in level:
                for child in (child for rule in rules for child in rule):
                    found[child] = found.get(child, 0.0) + found.get(symbol, 0.0) / len(rules)
        return found

    def length(self) -> float:
        """Return the expected number of tokens of a sentence."""
        counts = self.counts()
        return sum(counts.get(terminal, 0.0) for terminal in range(1, self.terminals + 1))

    def entropy(self) -> float:
        """Return the entropy of the tree of a sentence in nats."""
        counts = self.counts()
        chosen = (counts.get(symbol, 0.0) * log(len(rules)) for symbol, rules in self._upwards())
        return log(len(self.roots)) + sum(chosen)

    def _upwards(self) -> list[tuple[int, tuple[Rule, ...]]]:
        return [symbol for level in reversed(self.levels) for symbol in level]


class Sentences(NamedTuple):
    """tokens: `BEGIN`, a sentence, `BEGIN`, and so on [B, W].

    ended: how many nested parts of the sentence end before this token: 0 within a part of the last level, as
    many as the grammar has levels at a `BEGIN` [B, W].
    """

    tokens: Tensor
    ended: Tensor


def sentences(grammar: Grammar, stream: Stream, *, count: int, width: int) -> Sentences:
    """Draw `count` sentences for every row, lay them out one after another and keep the first tokens.

    All rows are rewritten level by level. Symbols that stand too far behind to give one of the first `width`
    tokens are dropped on the way. What sentences do not fill is `BEGIN`.
    """
    device, depth = stream.key.device, len(grammar.levels)
    rules, children = (constant(x, device) for x in _tables(grammar.levels))
    nothing, most = len(rules) - 1, len(children) // len(rules) // _CHILDREN
    children = children.view(-1, most, _CHILDREN)

    root = constant(grammar.roots, device)[stream.child("roots").integers(count, below=len(grammar.roots))]
    row = torch.stack([torch.full_like(root, BEGIN), root], dim=2).flatten(1)
    row = pad(row, (0, 1), value=BEGIN)
    ended = (row == BEGIN) * depth
    lengths = grammar.lengths()
    for number, level in enumerate(grammar.levels, 1):
        chosen = stream.child(f"rules {number}").integers(row.shape[1], below=rules[row])
        made = children[row, chosen]
        inner = torch.full_like(ended, depth - number)
        ended = torch.stack([ended, inner, inner], dim=2).flatten(1)
        shortest = min(lengths[child] for _, some in level for rule in some for child in rule)[0]
        # at least every second symbol is more than a BEGIN
        kept = min(made[0].numel(), 2 * -(-width // (shortest + 1)) + 1)
        row, ended = _close_up(made.flatten(1), ended, kept, nothing)
    missing = max(0, width - row.shape[1])
    row, ended = (pad(x, (0, missing), value=nothing)[:, :width] for x in (row, ended))
    return Sentences(row.where(row != nothing, BEGIN), ended.where(row != nothing, 0))


def _close_up(row: Tensor, ended: Tensor, width: int, nothing: int) -> tuple[Tensor, Tensor]:
    """Return the first `width` symbols that are not `nothing`, each with its `ended`."""
    used = row != nothing
    place = (used.cumsum(dim=1) - 1).where(used, width).clamp(max=width)
    empty = row.new_full((len(row), width + 1), nothing)
    row, ended = (empty.scatter(1, place, x)[:, :width] for x in (row, ended))
    return row, ended


_CHILDREN = 3
"""The most symbols that a rule gives."""


@cache
def _tables(levels: tuple[Level, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many rules each symbol has, and their symbols, of which each has as many places.

    `BEGIN` stays as it is, and so does the last symbol, which stands for nothing.
    """
    rules = {symbol: some for level in levels for symbol, some in level}
    nothing = max(rules) + 1
    rules |= {BEGIN: ((BEGIN,),)}
    most = max(map(len, rules.values()))
    counts = tuple(len(rules.get(symbol, ((),))) for symbol in range(nothing + 1))
    padded = [nothing] * _CHILDREN
    children = tuple(
        child
        for symbol in range(nothing + 1)
        for rule in [*rules.get(symbol, ()), *[()] * most][:most]
        for child in [*rule, *padded][:_CHILDREN]
    )
    return counts, children


def _parse_level(text: str) -> Level:
    lines = (line.split(":") for line in text.splitlines())
    return tuple(
        (int(symbol), tuple(tuple(map(int, rule.split())) for rule in rules.split("/")))
        for symbol, rules in lines
    )
