"""The exact law of the next token of a grammar, from products of matrices."""

from math import exp
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.blocks.grammar import BEGIN, Grammar, Rule

__all__ = ["next_token_law"]

LONGEST = 81
"""Symbols of at most so many tokens have a matrix, but roots. Vectors go through the rules of all others."""

AT_ONCE = 1 << 14
"""Tokens of the rows that are computed at once."""


def next_token_law(grammar: Grammar, inputs: Tensor) -> Tensor:
    """Return the probabilities of `BEGIN`, which ends a sentence, and of all terminals after each token.

    Let M_A[i, j] be the weight with which symbol A gives exactly the tokens i + 1 ... j. For a terminal it is
    c at [i, i + 1] where token i + 1 is that terminal; for other symbols it is the mean over their rules
    A -> x y z of M_x M_y M_z. Let out_A[i] be the weight with which the tokens up to i are such that A begins
    after them. For the roots it is 1 at each `BEGIN`, and a rule of A, one of r, adds out_A / r to out_x,
    out_A M_x / r to out_y and out_A M_x M_y / r to out_z. Then the probabilities are proportional to out_t[i]
    for the terminals t, and to (out_root M_root)[i] for the end.

    The factor c per token is e^h, with h the entropy per token, so that the weight of a usual sentence of any
    length is near 1.

    Args:
        grammar: the rules.
        inputs: tokens [B, T]: sentences with `BEGIN` before each; the last one may be cut off.

    Returns float64 [B, T, 1 + terminals]; zeros where no sentence begins with the tokens so far.
    """
    rows = max(1, AT_ONCE // inputs.shape[1])
    return torch.cat([_law(grammar, some) for some in torch.split(inputs, rows)])


class _Spans(NamedTuple):
    """The matrix of a symbol of a limited number of tokens.

    weights: of the tokens up to j, the last `longest` - w of them [B, T, W]. longest: the most tokens.
    """

    weights: Tensor
    longest: int

    def through(self, vector: Tensor) -> Tensor:
        """Return the product of a row vector [B, T] and this matrix."""
        length, width = self.weights.shape[1:]
        before = pad(vector, (self.longest, 0)).unfold(1, width, 1)[:, :length]
        return (before * self.weights).sum(dim=2)

    def then(self, after: "_Spans") -> "_Spans":
        """Return the product of two matrices."""
        rows, length, width = self.weights.shape
        found = self.weights.new_zeros(rows, length, width + after.weights.shape[2] - 1)
        for w in range(after.weights.shape[2]):
            tokens = after.longest - w
            before, weight = self.weights[:, : max(0, length - tokens)], after.weights[:, tokens:, w, None]
            found[:, tokens:, w : w + width] += before * weight
        return _Spans(found, self.longest + after.longest)


class _Matrices:
    """The matrices of all symbols of a grammar, for some rows of tokens [B, T]."""

    def __init__(self, grammar: Grammar, inputs: Tensor) -> None:
        self.rules = {symbol: rules for level in grammar.levels for symbol, rules in level}
        token_weight = exp(grammar.entropy() / grammar.length())
        self.spans = {
            terminal: _Spans(((inputs == terminal) * token_weight).double()[:, :, None], 1)
            for terminal in range(1, grammar.terminals + 1)
        }
        lengths = grammar.lengths()
        for level in reversed(grammar.levels[1:]):
            for symbol, rules in level:
                shortest, longest = lengths[symbol]
                if longest <= LONGEST:
                    self.spans[symbol] = self._mean(rules, longest, longest - shortest + 1)

    def _mean(self, rules: tuple[Rule, ...], longest: int, width: int) -> _Spans:
        rows, length, _ = self.spans[1].weights.shape
        found = self.spans[1].weights.new_zeros(rows, length, width)
        for first, *rest in rules:
            product = self.spans[first]
            for symbol in rest:
                product = product.then(self.spans[symbol])
            w = longest - product.longest
            found[:, :, w : w + product.weights.shape[2]] += product.weights / len(rules)
        return _Spans(found, longest)

    def through(self, vector: Tensor, symbol: int) -> Tensor:
        """Return the product of a row vector [B, T] and the matrix of a symbol."""
        if symbol in self.spans:
            return self.spans[symbol].through(vector)
        found = torch.zeros_like(vector)
        for rest, reached in self.within(vector, self.rules[symbol]).items():
            if len(rest) == 1:
                found = found + self.through(reached, rest[0])
        return found

    def within(self, vector: Tensor, rules: tuple[Rule, ...]) -> dict[Rule, Tensor]:
        """Return the vectors that reach the symbols of a rule, by the symbols that are still to come.

        Rules with the same first symbol, or with the same end, share their products.

        Args:
            vector: where the rules begin [B, T].
            rules: rules of one symbol.
        """
        share = vector / len(rules)
        after = {first: self.through(share, first) for first in sorted({rule[0] for rule in rules})}
        ends: dict[Rule, Tensor] = {}
        for rule in rules:
            ends[rule[1:]] = ends.get(rule[1:], 0) + after[rule[0]]
        for length in range(max(map(len, ends)), 1, -1):
            for end in [end for end in ends if len(end) == length]:
                ends[end[1:]] = ends.get(end[1:], 0) + self.through(ends[end], end[0])
        return ends


def _law(grammar: Grammar, inputs: Tensor) -> Tensor:
    matrices = _Matrices(grammar, inputs)
    begins = (inputs == BEGIN).double() / len(grammar.roots)
    end = sum((matrices.through(begins, root) for root in grammar.roots), torch.zeros_like(begins))
    out = dict.fromkeys(grammar.roots, begins)
    for level in grammar.levels:
        below: dict[int, Tensor] = {}
        for symbol, rules in level:
            if symbol not in out:
                continue
            for rule in rules:
                below[rule[0]] = below.get(rule[0], 0) + out[symbol] / len(rules)
            for rest, reached in matrices.within(out[symbol], rules).items():
                below[rest[0]] = below.get(rest[0], 0) + reached
        out = below
    terminals = [out.get(terminal, torch.zeros_like(end)) for terminal in range(1, grammar.terminals + 1)]
    weights = torch.stack([end, *terminals], dim=2)
    total = weights.sum(dim=2, keepdim=True)
    return torch.where(total > 0, weights / total, 0)
