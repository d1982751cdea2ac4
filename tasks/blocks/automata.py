"""Random finite automata, no two of which accept the same language."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import Stream

FEWEST = 4
"""Smallest number of states and of letters of an automaton."""

EDGES = 3
"""Largest number of edges that leave a state."""

CHOICES = 6
"""A common multiple of all numbers of edges, so that a uniform number below it gives a uniform edge."""


class Automata(NamedTuple):
    """Minimal deterministic automata, every state of which accepts; words begin in state 0.

    letter: letters on the edges of a state, ascending, `letters` where there are no more [A, nodes, EDGES].
    target: states that the edges lead to [A, nodes, EDGES]. degree: number of edges [A, nodes]. legal: bit x
    says that an edge has letter x [A, nodes]. step: letter * 16 + target of the edge that each choice takes
    [A, nodes * CHOICES].
    """

    letter: Tensor
    target: Tensor
    degree: Tensor
    legal: Tensor
    step: Tensor


@cache
def automata(count: int, *, letters: int, nodes: int, out_degree: int, device: torch.device) -> Automata:
    """Return the first `count` automata with different languages; made once and kept on the device.

    Each has 4 to `nodes` states, some of which may be unreachable, 4 to `letters` letters, and 1 to
    `out_degree` edges from each state, with distinct letters, to distinct other states. All of this is
    uniform.
    """
    if device.type != "cpu":
        cpu = torch.device("cpu")
        known = automata(count, letters=letters, nodes=nodes, out_degree=out_degree, device=cpu)
        return Automata(*(x.to(device) for x in known))
    drawn = count
    while True:  # some of those drawn are alike: draw more until enough differ
        drawn += drawn // 4 + 64
        letter, target = _edges(drawn, letters, nodes, out_degree)
        kind = _equivalence_classes(letter, target, letters)
        language, number = torch.unique(kind[:, 0], return_inverse=True)
        if len(language) >= count:
            break
    first = torch.full_like(language, drawn).scatter_reduce(0, number, torch.arange(drawn), "amin")
    first = first.sort().values[:count]  # of each language the first automaton drawn
    letter, target, kind = letter[first], target[first], kind[first]

    alike = (kind[:, :, None] == kind[:, None, :]).long().argmax(dim=2)  # the first state of its kind
    target = alike.gather(1, target.flatten(1)).view_as(target)
    degree = (letter < letters).sum(dim=2)
    chosen = torch.arange(CHOICES) % degree[:, :, None]
    step = letter.gather(2, chosen) * 16 + target.gather(2, chosen)
    return Automata(letter, target, degree, _legal(letter, letters), step.flatten(1))


def _edges(count: int, letters: int, nodes: int, out_degree: int) -> tuple[Tensor, Tensor]:
    """Return letters and targets [count, nodes, EDGES].

    No edge leads to a state beyond an automaton's size.
    """
    stream = Stream.of(torch.arange(count), seed=0, split="automata")
    size = FEWEST + stream.child("nodes").integers(1, below=nodes - FEWEST + 1)
    alphabet = FEWEST + stream.child("alphabet").integers(1, below=letters - FEWEST + 1)
    degree = 1 + stream.child("degrees").integers(nodes, below=out_degree)
    letter = _distinct_triples(stream.child("letters on edges"), nodes, below=alphabet)
    letter = stream.child("letters").shuffle(letters).gather(1, letter.flatten(1)).view_as(letter)
    target = _distinct_triples(stream.child("targets"), nodes, below=size - 1)
    target = target + (target >= torch.arange(nodes)[:, None])
    missing = torch.arange(EDGES) >= degree[:, :, None]
    letter, order = letter.masked_fill(missing, letters).sort(dim=2, stable=True)
    return letter, target.masked_fill(missing, 0).gather(2, order)


def _distinct_triples(stream: Stream, count: int, *, below: Tensor) -> Tensor:
    """Return numbers [B, count, EDGES] below `below` [B, 1] >= 3; the numbers of a triple differ."""
    first, second, third = (
        stream.child(draw).integers(count, below=below - taken)
        for taken, draw in enumerate(("first", "second", "third"))
    )
    second = second + (second >= first)
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    third = third + (third >= low)
    return torch.stack([first, second, third + (third >= high)], dim=2)


def _equivalence_classes(letter: Tensor, target: Tensor, letters: int) -> Tensor:
    """Return classes [A, nodes]; states of one class, of any automata, allow the same words.

    This is Moore's partition refinement, of all states together.
    """
    kind = _renumber(_legal(letter, letters))
    while True:
        refined = kind
        for edge in range(EDGES):
            reached = kind.gather(1, target[:, :, edge]).masked_fill(letter[:, :, edge] == letters, 0)
            refined = _renumber(refined * kind.numel() + reached)
        if refined.max() == kind.max():
            return kind
        kind = refined


def _renumber(x: Tensor) -> Tensor:
    """Return numbers from 0 on, the same for equal entries."""
    number: Tensor = torch.unique(x, return_inverse=True)[1]
    return number


def _legal(letter: Tensor, letters: int) -> Tensor:
    return (1 << letter).masked_fill(letter == letters, 0).sum(dim=2)
