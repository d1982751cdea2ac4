from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from linbench.tasks.blocks.automata import (
    CHOICES,
    EDGES,
    Automata,
    _distinct_triples,
    _edges,
    _equivalence_classes,
    automata,
)
from linbench.tasks.random import Stream

CPU = torch.device("cpu")
ALPHA = 1e-3
N = 20_000
Probability = Callable[..., float]


def make(count: int, letters: int = 18, nodes: int = 12, out_degree: int = 3) -> Automata:
    return automata(count, letters=letters, nodes=nodes, out_degree=out_degree, device=CPU)


def moves(letter: Tensor, target: Tensor, letters: int) -> list[dict[int, int]]:
    """Return the moves of one automaton by state."""
    return [
        {a: b for a, b in zip(x, y, strict=True) if a < letters}
        for x, y in zip(letter.tolist(), target.tolist(), strict=True)
    ]


def alike(a: list[dict[int, int]], b: list[dict[int, int]], start: tuple[int, int] = (0, 0)) -> bool:
    """Return whether two automata read the same words, by walking through both side by side."""
    met, open_ = {start}, [start]
    while open_:
        i, j = open_.pop()
        if a[i].keys() != b[j].keys():
            return False
        found = {(a[i][letter], b[j][letter]) for letter in a[i]} - met
        met |= found
        open_ += found
    return True


def test_no_two_speak_the_same_language() -> None:
    made = make(150, letters=4, nodes=4, out_degree=2)
    each = [moves(x, y, 4) for x, y in zip(made.letter, made.target, strict=True)]
    assert not any(alike(a, b) for a, b in combinations(each, 2))


def test_kinds_are_equal_where_languages_are() -> None:
    letter, target = _edges(40, 4, 4, 2)
    kind = _equivalence_classes(letter, target, 4).tolist()
    each = [moves(x, y, 4) for x, y in zip(letter, target, strict=True)]
    states = [(a, i) for a in range(40) for i in range(4)]
    equal = 0
    for (a, i), (b, j) in combinations(states, 2):
        same = alike(each[a], each[b], (i, j))
        assert (kind[a][i] == kind[b][j]) == same
        equal += same
    assert 0 < equal < 1000


def test_a_language_that_was_drawn_before_is_left_out() -> None:
    letter, target = _edges(700, 4, 4, 2)
    start = _equivalence_classes(letter, target, 4)[:, 0].tolist()
    first = [number for number, kind in enumerate(start) if kind not in start[:number]]
    assert len(first) < 690
    assert torch.equal(make(300, letters=4, nodes=4, out_degree=2).letter, letter[first[:300]])


def test_states_that_cannot_be_told_apart_are_one() -> None:
    made = make(300, letters=4, nodes=6, out_degree=2)
    merged = 0
    for letter, target in zip(made.letter, made.target, strict=True):
        each = moves(letter, target, 4)
        reached, open_ = {0}, [0]
        while open_:
            found = set(each[open_.pop()].values()) - reached
            reached |= found
            open_ += found
        assert not any(alike(each, each, pair) for pair in combinations(sorted(reached), 2))
        merged += any(len(set(x.values())) < len(x) or i in x.values() for i, x in enumerate(each))
    assert merged


def test_more_automata_begin_with_the_same() -> None:
    few, many = make(10), make(200)
    assert all(torch.equal(x, y[:10]) for x, y in zip(few, many, strict=True))


def test_a_step_takes_every_edge_alike() -> None:
    made = make(100)
    step = made.step.view(100, 12, CHOICES)
    for a in range(0, 100, 9):
        for state, x in enumerate(moves(made.letter[a], made.target[a], 18)):
            assert int(made.degree[a, state]) == len(x)
            assert int(made.legal[a, state]) == sum(1 << letter for letter in x)
            assert sorted(step[a, state].tolist()) == sorted(
                CHOICES // len(x) * [letter * 16 + to for letter, to in x.items()]
            )


def test_edges_are_drawn_as_published(chi_squared: Probability) -> None:
    letter, target = _edges(N, 18, 12, 3)
    used = letter < 18
    degree = used.sum(dim=2)
    assert chi_squared(degree[:, 3].bincount(minlength=4)[1:], torch.full((3,), N / 3)) > ALPHA
    assert (letter[:, :, 1:] - letter[:, :, :-1] >= used[:, :, 1:].long()).all()
    assert not ((target == torch.arange(12)[:, None]) & used).any()
    for i, j in combinations(range(EDGES), 2):
        assert not ((target[..., i] == target[..., j]) & used[..., i] & used[..., j]).any()
    assert (
        chi_squared(
            letter[:, 0][degree[:, 0] == 1][:, 0].bincount(minlength=18),
            int((degree[:, 0] == 1).sum()) * torch.full((18,), 1 / 18),
        )
        > ALPHA
    )
    sizes = torch.arange(4, 13, dtype=torch.float64)
    reached = torch.stack([(torch.where(node < sizes, 1 / (sizes - 1), 0)).mean() for node in range(1, 12)])
    assert chi_squared(target[:, 0, 0].bincount(minlength=12)[1:], N * reached) > ALPHA
    one = (degree[:, 0] == 1) & (degree[:, 1] == 1)
    same = (letter[one, 0, 0] == letter[one, 1, 0]).long()
    expected = (1 / torch.arange(4, 19, dtype=torch.float64)).mean()  # over the sizes of the alphabet
    assert chi_squared(same.bincount(minlength=2), len(same) * torch.stack([1 - expected, expected])) > ALPHA
    triple = letter[degree[:, 5] == 3, 5]
    assert (
        chi_squared(triple.flatten().bincount(minlength=18), torch.full((18,), triple.numel() / 18)) > ALPHA
    )


def test_alphabets_reach_from_four_letters_to_all() -> None:
    letter, _ = _edges(2000, 5, 12, 3)
    used = torch.stack([(letter == x).flatten(1).any(dim=1) for x in range(5)], dim=1).sum(dim=1)
    # half of the alphabets have five letters, nearly all of which are used
    assert 0.45 < float((used == 5).double().mean()) < 0.53


def test_every_edge_of_a_triple_is_drawn_alike(chi_squared: Probability) -> None:
    """All ordered triples of distinct numbers are as likely."""
    stream = Stream.of(torch.arange(N), seed=3, split="train")
    drawn = _distinct_triples(stream, 1, below=torch.full((N, 1), 4))[:, 0]
    codes = drawn @ torch.tensor([16, 4, 1])
    triples = [
        16 * a + 4 * b + c for a in range(4) for b in range(4) for c in range(4) if len({a, b, c}) == 3
    ]
    assert set(codes.tolist()) == set(triples)
    assert chi_squared(codes.bincount(minlength=64)[triples], torch.full((24,), N / 24)) > ALPHA
