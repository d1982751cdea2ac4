from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.variable_chain import VariableChain
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        name: dict(preset.task)
        for name, preset in VariableChain.presets.items()
        if not name.startswith("lego")
    },
    "reversed": {"order": "reversed"},
    "no room to spare": {"chains": 2, "hops": 1, "questions": 3, "seq_len": 18, "names": 4, "values": 2},
    "one token over": {"chains": 2, "hops": 1, "questions": 3, "seq_len": 19, "names": 5, "values": 3},
}
Probability = Callable[..., float]


build = partial(build_task, VariableChain)


def statements(tokens: list[int], names: int) -> list[tuple[int, int, int]]:
    """Return each statement: its place, the variable, and what it says.

    A statement is whatever has a name at its left and 1 in its middle.
    """
    return [
        (at, tokens[at], tokens[at + 2])
        for at in range(len(tokens) - 2)
        if tokens[at + 1] == 1 and 3 <= tokens[at] < 3 + names
    ]


task = task_fixture(VariableChain, SETTINGS)


def test_structure(task: VariableChain) -> None:
    s = task.settings
    first_value = 3 + s.names
    batch = sample(task, 30)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        said = statements(tokens, s.names)
        at = {x: place for place, x, _ in said}
        means = {x: y for _, x, y in said}
        assert len(said) == len(means) == s.chains * (s.hops + 1)
        constants = [y for y in means.values() if y >= first_value]
        assert len(set(constants)) == len(constants) == s.chains
        referred = [y for y in means.values() if y < first_value]
        assert len(set(referred)) == len(referred), "chains do not branch"
        in_statements = {place + i for place in at.values() for i in range(3)}
        assert all(token == 0 for i, token in enumerate(tokens[: -2 * s.questions]) if i not in in_statements)
        for n in range(s.questions):
            position = int(batch.positions[row, n])
            assert position == s.seq_len - 2 * s.questions + 2 * n + 1
            assert tokens[position - 1] == 2
            way = [tokens[position]]
            while way[-1] < first_value:
                way.append(means[way[-1]])
            assert int(batch.targets[row, n]) == way[-1]
            hops = len(way) - 2
            assert int(batch.slices["hops"][row, n]) == hops
            assert int(batch.slices["distance"][row, n]) == position - at[tokens[position]]
            assert batch.facts["way"][row, n].tolist() == way[1:-1] + [IGNORE] * (s.hops - hops)
            assert {*batch.facts["constants"][row, n].tolist(), way[-1]} == set(constants)
            places = [at[x] for x in way[:-1]]
            if s.order != "shuffled":
                assert places == sorted(places, reverse=s.order == "topological")
    assert torch.equal(task.solve(batch), batch.targets)
    assert task.io == IO(3 + s.names + s.values, 3 + s.names + s.values)
    assert task.chance() == 1 / s.chains


LEGO: dict[str, Any] = {"negations": True, "values": 2, "chains": 1, "questions": 1, "names": 26}


@pytest.mark.parametrize("chains", [1, 3])
def test_negations(chains: int) -> None:
    """Every answer is worked out statement by statement."""
    task = build(**{**LEGO, "chains": chains, "hops": 4, "questions": 3, "seq_len": 55})
    batch = sample(task, 100)
    zero, negates = 3 + 26, 3 + 26 + 2
    for tokens, targets, hops in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.slices["hops"].tolist(), strict=True
    ):
        said = {
            tokens[at - 1]: (tokens[at] == negates, tokens[at + 1])
            for at in range(1, 49)
            if tokens[at] in (1, negates) and tokens[at - 1] >= 3
        }
        assert len(said) == 5 * chains
        for asked, target, far in zip(tokens[50::2], targets, hops, strict=True):
            negated, meaning = said[asked]
            way = 0
            while meaning < zero:
                more, meaning = said[meaning]
                negated, way = negated ^ more, way + 1
            assert (target - zero, far) == ((meaning - zero) ^ negated, way)
            assert 1 <= far <= 4
    assert torch.equal(task.solve(batch), batch.targets)
    assert task.io == IO(32, 32)
    assert "= not x" in task.explain(batch, 0)
    scores = task.score(batch, Prediction(batch.targets, torch.zeros(batch.targets.shape)))
    assert "wrong_chain" not in scores


@pytest.mark.parametrize(("variables", "chance"), [(3, 0.75), (6, 0.6875), (12, 0.623)])
def test_chance_with_negations(variables: int, chance: float) -> None:
    """One chain of bits: of 12 variables 11 may be asked for."""
    task = build(**{**LEGO, "hops": variables - 1, "seq_len": 3 * variables + 2})
    assert task.chance() == pytest.approx(chance, abs=5e-4)


def test_bits_negations_and_questions_are_even(chi_squared: Probability) -> None:
    task = build(**{**LEGO, "hops": 2, "seq_len": 11})
    batch = sample(task, N)
    bit, far = batch.targets[:, 0] - 29, batch.slices["hops"][:, 0] - 1
    turns = (batch.inputs[:, 1:9:3] == 31).sum(dim=1) % 2
    together = 4 * bit + 2 * far + turns
    assert chi_squared(together.bincount(minlength=8), torch.full((8,), N / 8)) > ALPHA


def test_older_cells_keep_their_identity() -> None:
    assert "negations" not in build().settings.identity()


def test_a_hand_made_sequence() -> None:
    """a = b, c = 8, b = 9, d = c; then d, a and b are asked for."""
    task = build(**SETTINGS["no room to spare"])
    a, b, c, d = 3, 4, 5, 6
    inputs = torch.tensor([[a, 1, b, c, 1, 7, b, 1, 8, d, 1, c, 2, d, 2, a, 2, b]])
    batch = Batch(inputs, torch.tensor([[13, 15, 17]]), torch.zeros(1, 3, dtype=torch.int64), {})
    assert task.solve(batch).tolist() == [[7, 8, 8]]


def test_shuffled_statements_stand_in_any_order(chi_squared: Probability) -> None:
    """Whatever the asked variable's number in its chain, its statement stands in any slot."""
    task = build(chains=2, hops=1, questions=1, seq_len=20)
    batch = sample(task, N)
    slot = (19 - batch.slices["distance"][:, 0]) // 3
    for hops in (0, 1):
        slots = slot[batch.slices["hops"][:, 0] == hops]
        assert chi_squared(slots.bincount(minlength=6), torch.full((6,), len(slots) / 6)) > ALPHA


@pytest.mark.parametrize("order", ["topological", "reversed"])
def test_chains_interleave_in_any_way(chi_squared: Probability, order: str) -> None:
    batch = sample(build(chains=2, hops=1, questions=1, seq_len=14, order=order), N)
    is_constant = batch.inputs[:, 2:12:3] >= 3 + 64
    ends = [*combinations(range(4), 2)]
    patterns = torch.tensor([[i in end for i in range(4)] for end in ends])
    counts = (is_constant[:, None] == patterns).all(dim=2).sum(dim=0)
    # of the six ways to interleave, two chains' constants are at 0, 1 in four and at 0, 2 in two; reversed
    # likewise from the end
    two, one = (
        (ends.index((0, 1)), ends.index((0, 2)))
        if order == "topological"
        else (ends.index((2, 3)), ends.index((1, 3)))
    )
    assert counts.sum() == counts[two] + counts[one] == N
    assert chi_squared(counts[[two, one]], N * torch.tensor([2 / 3, 1 / 3])) > ALPHA


def test_questions_names_and_constants_are_even(chi_squared: Probability) -> None:
    batch = sample(build(chains=2, hops=2, questions=2, seq_len=24, names=6, values=5), N)
    hops = batch.slices["hops"]
    assert chi_squared((3 * hops[:, 0] + hops[:, 1]).bincount(minlength=9), torch.full((9,), N / 9)) > ALPHA
    asked = batch.inputs[:, -1]
    assert chi_squared(asked.bincount(minlength=9)[3:], torch.full((6,), N / 6)) > ALPHA
    assert chi_squared(batch.targets[:, 0].bincount(minlength=14)[9:], torch.full((5,), N / 5)) > ALPHA


def test_errors_are_told_apart() -> None:
    """Let x = 9, y = x, z = y, and 10 elsewhere.

    The answers for z are 9, 10, z, y, x and filler; the answer for x is y, which is not on its way.
    """
    targets = torch.tensor([[9] * 6 + [9]])
    way = torch.tensor([[[4, 3]] * 6 + [[IGNORE, IGNORE]]])
    constants = torch.tensor([[[10]] * 7])
    hops = torch.tensor([[2] * 6 + [0]])
    task = build(chains=2, hops=2, questions=7, seq_len=40)
    batch = Batch(
        torch.zeros(1, 40),
        torch.zeros_like(targets),
        targets,
        {"hops": hops, "distance": hops},
        {"way": way, "constants": constants},
    )
    answers = torch.tensor([[9, 10, 5, 4, 3, 0, 4]])
    scores = task.score(batch, Prediction(answers, torch.zeros(1, 7)))
    assert {name: float(value) for name, (value, _) in scores.items() if "/" not in name} == {
        "accuracy": 1,
        "nll": 0,
        "wrong_chain": 1,
        "partial_hop": 2,
    }
    assert scores["partial_hop/hops"][0].tolist() == [0, 0, 2]
    assert scores["partial_hop/hops"][1].tolist() == [1, 0, 6]


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"chains": 8, "hops": 8}, "8 chains 9 72 names 64"),
        ({"chains": 4, "values": 3}, "4 chains 3 values"),
        ({"chains": 4, "hops": 4}, "20 3 4 questions 2 seq_len 68 64"),
        ({"chains": 1}, "chains 1 2 negations"),
        ({"negations": True}, "negations values 2 64"),
        ({"order": "sorted"}, "order"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(VariableChain, values, facts)


def test_explain_tells_statements_and_answers(task: VariableChain) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    names = task.settings.names
    tokens = batch.inputs[1].tolist()
    _, x, y = statements(tokens, names)[0]
    assert f"x{x - 3} = " + (f"x{y - 3}" if y < 3 + names else str(y - 3 - names)) in text
    at, target, hops = int(batch.positions[1, 0]), int(batch.targets[1, 0]), int(batch.slices["hops"][1, 0])
    assert f"at position {at} for x{tokens[at] - 3}, which is {target - 3 - names} ({hops} hops)" in text
    assert len(text) < 1500
