"""Random finite automata of which no two speak the same language."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import Stream

FEWEST = 4
"""States and letters that an automaton has at least."""

EDGES = 3
"""That leave a state at most."""

CHOICES = 6
"""A multiple of every number of edges: a uniform number below it, modulo the edges of a state, is a uniform
edge."""


class Automata(NamedTuple):
    """Deterministic, every state accepting, states that cannot be told apart made one; words begin in state
    0.

    letter: [A, nodes, EDGES] on the edges of a state, ascending, `letters` where there are no more. target:
        [A, nodes, EDGES], where they lead.
    degree: [A, nodes], how many there are. legal: [A, nodes], bit x says that an edge has letter x.
    step: [A, nodes * CHOICES], letter * 16 + target of the edge that each choice takes.
    """

    letter: Tensor
    target: Tensor
    degree: Tensor
    legal: Tensor
    step: Tensor


@cache
def automata(count: int, *, letters: int, nodes: int, out_degree: int, device: torch.device) -> Automata:
    """The first `count` that differ; made once and then kept on the device. Each has 4 to `nodes` states, of
    which some may be out of reach, 4 to `letters` letters, and 1 to `out_degree` edges from each state, with
    distinct letters, to distinct other states: all uniform."""
    if device.type != "cpu":
        return Automata(
            *(
                x.to(device)
                for x in automata(
                    count, letters=letters, nodes=nodes, out_degree=out_degree, device=torch.device("cpu")
                )
            )
        )
    drawn = count
    while True:
        drawn += drawn // 4 + 64
        letter, target = _edges(drawn, letters, nodes, out_degree)
        kind = _equivalence_classes(letter, target, letters)
        language, number = torch.unique(kind[:, 0], return_inverse=True)
        if len(language) >= count:
            break
    first = (
        torch.full_like(language, drawn)
        .scatter_reduce(0, number, torch.arange(drawn), "amin")
        .sort()
        .values[:count]
    )
    letter, target, kind = letter[first], target[first], kind[first]

    alike = (kind[:, :, None] == kind[:, None, :]).long().argmax(dim=2)  # the first state of its kind
    target = alike.gather(1, target.flatten(1)).view_as(target)
    degree = (letter < letters).sum(dim=2)
    chosen = torch.arange(CHOICES) % degree[:, :, None]
    step = letter.gather(2, chosen) * 16 + target.gather(2, chosen)
    return Automata(letter, target, degree, _legal(letter, letters), step.flatten(1))


def _edges(count: int, letters: int, nodes: int, out_degree: int) -> tuple[Tensor, Tensor]:
    """Letters and targets [count, nodes, EDGES] of that many automata. States from an automaton's size on are
    led to by none."""
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
    """[B, count, EDGES] numbers below `below` [B, 1], at least three, of which no two of a triple are
    equal."""
    first, second, third = (
        stream.child(draw).integers(count, below=below - taken)
        for taken, draw in enumerate(("first", "second", "third"))
    )
    second = second + (second >= first)
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    third = third + (third >= low)
    return torch.stack([first, second, third + (third >= high)], dim=2)


def _equivalence_classes(letter: Tensor, target: Tensor, letters: int) -> Tensor:
    """[A, nodes], equal for two states, of whichever automata, if and only if the same words can be read from
    them: Moore's partition refinement of all states together."""
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
    """The same for equal numbers, from 0 on."""
    number: Tensor = torch.unique(x, return_inverse=True)[1]
    return number


def _legal(letter: Tensor, letters: int) -> Tensor:
    return (1 << letter).masked_fill(letter == letters, 0).sum(dim=2)
