"""Shares of the tokens of a grammar at every place of a sentence and of a row."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.blocks.grammar import BEGIN, Grammar, Rule

__all__ = ["commonest_share", "sentence_places"]


class _Places(NamedTuple):
    """Tokens that a symbol gives, in float64.

    tokens: probabilities of 0, 1, ... tokens [L + 1]. terminal: probabilities that a token is there and is
    each terminal [L + 1, 1 + terminals].
    """

    tokens: Tensor
    terminal: Tensor


@cache
def sentence_places(grammar: Grammar) -> Tensor:
    """Return the probability that token k of a sentence is `BEGIN`, its end, or each terminal.

    Shape [L + 1, 1 + terminals], float64, for sentences of up to L tokens. Row k adds up to the probability
    that a sentence has at least k tokens.
    """
    of = {terminal: _terminal(terminal, grammar.terminals) for terminal in range(1, grammar.terminals + 1)}
    for level in reversed(grammar.levels):
        for symbol, rules in level:
            of[symbol] = _mean([_in_order(of, rule) for rule in rules])
    root = _mean([of[symbol] for symbol in grammar.roots])
    return root.terminal.index_put((torch.arange(len(root.tokens)), torch.tensor(BEGIN)), root.tokens)


@cache
def commonest_share(grammar: Grammar, seq_len: int, *, packed: bool) -> float:
    """Return how often the commonest token of each place of a row is the token that follows there.

    Args:
        grammar: the rules.
        seq_len: tokens of a row, which begins with `BEGIN`.
        packed: whether sentences follow one another to the end; else there is one, up to and with its end.
    """
    one = sentence_places(grammar)[:seq_len]
    if not packed:
        return float(one.amax(dim=1).sum() / one.sum())
    one = pad(one, (0, 0, 0, seq_len - len(one)))
    begun = torch.zeros(seq_len, dtype=torch.float64)
    begun[0] = 1
    following = torch.zeros_like(one)
    for at in range(seq_len):
        # of sentences that begin at this place
        following[at:] += begun[at] * one[: seq_len - at]
        begun[at + 1 :] += begun[at] * one[: seq_len - at - 1, BEGIN]
    return float(following.amax(dim=1).sum() / seq_len)


def _terminal(number: int, terminals: int) -> _Places:
    terminal = torch.zeros(2, 1 + terminals, dtype=torch.float64)
    terminal[0, number] = 1
    return _Places(torch.tensor([0.0, 1.0], dtype=torch.float64), terminal)


def _in_order(of: dict[int, _Places], rule: Rule) -> _Places:
    before, *rest = (of[symbol] for symbol in rule)
    for after in rest:
        moved = torch.stack([_convolved(before.tokens, x) for x in after.terminal.unbind(1)], dim=1)
        terminal = moved + pad(before.terminal, (0, 0, 0, len(moved) - len(before.terminal)))
        before = _Places(_convolved(before.tokens, after.tokens), terminal)
    return before


def _convolved(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.conv1d(x[None, None], y.flip(0)[None, None], padding=len(y) - 1)[0, 0]


def _mean(places: list[_Places]) -> _Places:
    most = max(len(one.tokens) for one in places)
    tokens = torch.stack([pad(one.tokens, (0, most - len(one.tokens))) for one in places])
    terminal = torch.stack([pad(one.terminal, (0, 0, 0, most - len(one.terminal))) for one in places])
    return _Places(tokens.mean(dim=0), terminal.mean(dim=0))
