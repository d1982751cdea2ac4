"""The longest match by a suffix automaton that grows with every key, and the relaxed match as a loop.

The automaton is that of Blumer et al. 1985: its states are classes of substrings that end at the same places.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.suffix_match.copying import MISMATCH, NOTHING, SLOPE, WINDOW

ROOT = 0


class SuffixAutomaton:
    """All substrings of the symbols so far, and the place where each of them ended last.

    steps: the state that each symbol leads to, for each state. link: the state of the longest suffix that has
    ended elsewhere, too. longest: length of a state's longest substring. last: its latest end.
    """

    def __init__(self) -> None:
        self.steps: list[dict[int, int]] = [{}]
        self.link, self.longest, self.last = [-1], [0], [-1]
        self.whole = ROOT

    def append(self, symbol: int) -> None:
        """Append a symbol."""
        place = self.longest[self.whole]
        new, state = self._add({}, ROOT, place + 1), self.whole
        while state >= 0 and symbol not in self.steps[state]:
            self.steps[state][symbol] = new
            state = self.link[state]
        if state >= 0:
            target = self.steps[state][symbol]
            if self.longest[target] != self.longest[state] + 1:
                target = self._split(target, state, symbol)
            self.link[new] = target
        self.whole = state = new
        while state > ROOT:
            self.last[state] = place
            state = self.link[state]

    def _add(self, steps: dict[int, int], link: int, longest: int) -> int:
        self.steps.append(steps)
        self.link.append(link)
        self.longest.append(longest)
        self.last.append(-1)
        return len(self.steps) - 1

    def _split(self, target: int, state: int, symbol: int) -> int:
        """Give the shorter substrings of `target` a state of their own, and return it."""
        shorter = self._add(dict(self.steps[target]), self.link[target], self.longest[state] + 1)
        self.last[shorter], self.link[target] = self.last[target], shorter
        while state >= 0 and self.steps[state].get(symbol) == target:
            self.steps[state][symbol] = shorter
            state = self.link[state]
        return shorter

    def follow(self, state: int, length: int, symbol: int) -> tuple[int, int]:
        """Return the longest suffix that is a substring, after one more symbol: its state and length.

        Args:
            state, length: the same before; symbols may have been appended since.
        """
        while state > ROOT and length <= self.longest[self.link[state]]:
            state = self.link[state]  # which has been split
        while state > ROOT and symbol not in self.steps[state]:
            state = self.link[state]
            length = self.longest[state]
        if symbol not in self.steps[state]:
            return ROOT, 0
        return self.steps[state][symbol], length + 1


def find(q: Tensor, k: Tensor, runs: Tensor | None, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return places and runs; arguments and results are those of `pairwise.find`."""
    places, after = [], []
    for row in range(len(q)):
        before = [0] * k.shape[1] if runs is None else runs[row].tolist()
        found = _find(q[row].tolist(), k[row].tolist(), before, 0 if seen is None else int(seen[row]))
        places.append(found[0])
        after.append(found[1])
    return torch.tensor(places, device=q.device), torch.tensor(after, dtype=torch.int32, device=q.device)


def _find(q: list[int], k: list[int], runs: list[int], seen: int) -> tuple[list[int], list[int]]:
    automaton = SuffixAutomaton()
    for symbol in k[: max(0, seen - 1)]:
        automaton.append(symbol)
    state, length = ROOT, max(runs)
    end = runs.index(length) + 1
    for matched, symbol in enumerate(k[end - length : end]):
        state, _ = automaton.follow(state, matched, symbol)
    places = []
    for at, symbol in enumerate(q, start=seen):
        if at:
            automaton.append(k[at - 1])
        state, length = automaton.follow(state, length, symbol)
        places.append(automaton.last[state] + 1 if length else 0)
        # of each key by its definition
        runs = [(1 + (runs[j - 1] if j else 0)) if j < at and k[j] == symbol else 0 for j in range(len(runs))]
    return places, runs


def gradients(q: Tensor, k: Tensor, v: Tensor, of_copies: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of signs; arguments and results are those of `pairwise.gradients`."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(relaxed(*leaves), leaves, of_copies, materialize_grads=True)


def relaxed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the relaxed copies [N, T, b] that `copying.Copy` defines, of signs [N, T, b]."""
    copies = [0 * (q + k + v)[:, 0]]  # nothing comes before
    for t in range(1, q.shape[1]):
        suffix, product = q.new_zeros(len(q), t), q.new_ones(len(q), t + 1)
        for back in range(min(WINDOW, t)):  # q_{t - back} beside k_{j - back}, for back <= j < t
            differ = (1 - (q[:, t - back, None] * k[:, : t - back]).mean(dim=-1)) / 2
            product = product[:, 1:] * (-MISMATCH * differ).exp()
            suffix = suffix + F.pad(product, (back, 0))
        weights = (SLOPE * ((1 + suffix).sqrt() - 1)).exp() / t
        weights = weights / (math.exp(NOTHING) + weights.sum(dim=1, keepdim=True))
        copies.append((weights[..., None] * v[:, 1 : t + 1]).sum(dim=1))
    return torch.stack(copies, dim=1)
