from collections.abc import Callable
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import Batch
from linbench.tasks.p_hop import PHop
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: dict(preset.task) for name, preset in PHop.presets.items()},
    "one hop": {"hops": 1, "seq_len": 16},
    "three symbols": {"alphabet": 3, "hops": 3, "questions": 2, "seq_len": 24},
    "no room to spare": {"hops": 3, "questions": 2, "beyond": 1, "gap": 2, "seq_len": 12},
    "varied, no room to spare": {"hops": 3, "varied": True, "gap": 4, "seq_len": 15},
}
Probability = Callable[..., float]


build = partial(build_task, PHop)


def hop(tokens: list[int], at: int) -> int:
    """The definition: the place after the last earlier occurrence."""
    return max(j for j in range(at) if tokens[j] == tokens[at]) + 1


task = task_fixture(PHop, SETTINGS)


def test_answers_are_where_the_hops_lead(task: PHop) -> None:
    s = task.settings
    batch = sample(task, 40)
    for row in range(40):
        tokens = batch.inputs[row].tolist()
        hops = tokens[0] - s.alphabet + 1 if s.varied else s.hops
        chain = [s.seq_len - 1]
        for _ in range(s.chain):
            chain.append(hop(tokens, chain[-1]))
        assert min(a - b for a, b in pairwise(chain)) >= s.gap
        assert chain[-1] > s.varied
        assert batch.positions[row].tolist() == chain[: s.questions]
        assert batch.targets[row].tolist() == [tokens[chain[q + hops]] for q in range(s.questions)]
        assert batch.slices["hops"][row].tolist() == [hops] * s.questions
        assert batch.slices["distance"][row].tolist() == [
            chain[q] - chain[q + hops] for q in range(s.questions)
        ]
    assert torch.equal(task.solve(batch), batch.targets)


def test_a_hand_made_sequence() -> None:
    task = build(hops=2, questions=2, seq_len=12)
    inputs = torch.tensor([[3, 1, 2, 2, 0, 1, 3, 3, 0, 2, 0, 1]])
    # 1 at 11 stood at 5, so to 3 at 6; 3 stood at 0, so to 1 at 1. From 2 at 9: it stood at 3, so to 0 at 4,
    # which stood nowhere
    batch = Batch(inputs, torch.tensor([[11, 6]]), torch.zeros(1, 2, dtype=torch.int64), {})
    assert task.solve(batch)[0, 0] == 1
    varied = build(hops=3, varied=True, seq_len=13, gap=2)
    for asked, answer in ((1, 3), (2, 1)):
        told = torch.cat([torch.tensor([[3 + asked]]), inputs], dim=1)
        assert (
            varied.solve(Batch(told, torch.tensor([[12]]), torch.zeros(1, 1, dtype=torch.int64), {}))
            == answer
        )


def places_of(task: PHop, batch: Batch) -> list[tuple[int, ...]]:
    found = []
    for tokens in batch.inputs.tolist():
        chain = [task.seq_len - 1]
        for _ in range(task.settings.chain):
            chain.append(hop(tokens, chain[-1]))
        found.append(tuple(chain[1:]))
    return found


def test_all_places_of_a_chain_are_as_likely(chi_squared: Probability) -> None:
    task = build(hops=2, gap=3, seq_len=12)
    allowed = [(a, b) for b, a in combinations(range(1, 12), 2) if a - b >= 3 and 11 - a >= 3]
    found = places_of(task, sample(task, N))
    assert len(allowed) == 15
    counts = torch.tensor([found.count(pair) for pair in allowed])
    assert chi_squared(counts, torch.full((15,), N / 15)) > ALPHA


def test_symbols_of_a_chain_are_any_but_the_last(chi_squared: Probability) -> None:
    batch = sample(build(hops=1, alphabet=4, seq_len=16), N)
    first, reached = batch.inputs[:, -1], batch.targets[:, 0]
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    counts = torch.tensor([int(((first == a) & (reached == b)).sum()) for a, b in pairs])
    assert counts.sum() == N
    assert chi_squared(counts, torch.full((12,), N / 12)) > ALPHA


def test_what_stands_between_is_even_over_what_may(chi_squared: Probability) -> None:
    batch = sample(build(hops=1, alphabet=4, seq_len=16), N)
    crossed = (batch.inputs[:, -2] - batch.inputs[:, -1]) % 4
    assert chi_squared(crossed.bincount(minlength=4)[1:], torch.full((3,), N / 3)) > ALPHA
    assert not (crossed == 0).any()
    # the first place is not the one before the first of the chain
    free = batch.inputs[batch.slices["distance"][:, 0] < 14, 0]
    assert chi_squared(free.bincount(minlength=4), torch.full((4,), len(free) / 4)) > ALPHA


def test_varied_hops_are_even(chi_squared: Probability) -> None:
    batch = sample(build(**SETTINGS["quick-varied"]), N)
    assert chi_squared(batch.slices["hops"][:, 0].bincount(minlength=5)[1:], torch.full((4,), N / 4)) > ALPHA
    assert torch.equal(batch.inputs[:, 0], 3 + batch.slices["hops"][:, 0])


@pytest.mark.parametrize(
    ("name", "chance"), [("one hop", 1 / 3), ("quick", 1 / 3), ("three symbols", 3 / 8), ("looped-32", 0.25)]
)
def test_chance_is_the_likeliest_answer_to_a_symbol(name: str, chance: float) -> None:
    task = build(**SETTINGS[name])
    assert task.chance() == pytest.approx(chance)
    count = 5000
    batch = sample(task, count)
    returns = (batch.targets[:, 0] - batch.inputs[:, -1]) % task.settings.alphabet
    best = float(returns.bincount().max()) / count
    assert best == pytest.approx(chance, abs=4 * (chance * (1 - chance) / count) ** 0.5)


def test_chance_of_varied_hops_is_their_mean() -> None:
    chances = [build(hops=hops).chance() for hops in (1, 2, 3, 4)]
    assert build(**SETTINGS["quick-varied"]).chance() == pytest.approx(sum(chances) / 4)


def linear_probe(task: PHop) -> float:
    """Return how often the answer is the commonest symbol of a few first places.

    A chain that ends there gives its answer away.
    """
    batch = sample(task, 4000)
    votes = torch.nn.functional.one_hot(batch.inputs[:, 1:12], 4).sum(dim=1)
    return float((votes.argmax(dim=1) == batch.targets[:, 0]).double().mean())


def test_a_chain_that_goes_on_does_not_tell_where_the_answer_stands() -> None:
    assert linear_probe(build(**SETTINGS["looped-32"])) > 0.31
    assert linear_probe(build(seq_len=256, hops=32, beyond=16)) < 0.28


def test_tokens() -> None:
    assert build(alphabet=5).io == IO(5, 5)
    assert build(alphabet=5, hops=3, varied=True).io == IO(8, 8)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"hops": 8, "seq_len": 25}, "8 hops questions 1 beyond 3 seq_len 26 25"),
        (
            {"hops": 4, "questions": 3, "beyond": 2, "varied": True, "seq_len": 26},
            "8 hops questions 1 beyond 3 seq_len 27 26",
        ),
        ({"alphabet": 2}, "alphabet 2 3"),
        ({"gap": 1}, "gap 1 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(PHop, values, facts)


def test_explain_follows_the_hops(task: PHop) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    tokens = batch.inputs[1].tolist()
    at = task.seq_len - 1
    assert (
        f"{tokens[at]} at {at} stood last at {hop(tokens, at) - 1}, before {tokens[hop(tokens, at)]}" in text
    )
    assert f"{int(batch.targets[1, 0])} at position {at}" in text
    assert len(text) < 1500
    first: Tensor = batch.inputs[1, 0]
    assert (f"first token says ({int(first)})" in text) == task.settings.varied
