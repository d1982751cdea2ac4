import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import Prediction
from linbench.tasks.modular_arithmetic import ModularArithmetic
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3
BRACKETS = {"brackets": True}


build = partial(build_task, ModularArithmetic)


def written(task: ModularArithmetic, tokens: list[int]) -> str:
    """The published vocabularies; the empty token is a blank."""
    modulus = task.settings.modulus
    digits = [chr(ord("a") + digit) for digit in range(modulus)]
    signs = [*digits, *"+-*()= "] if task.settings.brackets else [*" +-*=", *digits]
    return "".join(signs[token] for token in tokens)


def value(expression: str, modulus: int) -> int:
    """Compute an expression with Python."""
    text = re.sub("[a-z]", lambda found: str(ord(found[0]) - ord("a")), expression)
    return int(eval(text, {"__builtins__": {}})) % modulus


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"min_length": 3, "max_length": 40},
        {"min_length": 3, "max_length": 3},
        {"modulus": 7, "min_length": 60, "max_length": 61, "multiplication": False},
        {**BRACKETS, "min_length": 3, "max_length": 40},
        {**BRACKETS, "min_length": 5, "max_length": 5},
        {**BRACKETS, "modulus": 11, "min_length": 70, "max_length": 75, "multiplication": False},
    ],
)
def test_answers_are_what_the_expressions_are_worth(values: dict[str, Any]) -> None:
    task = build(**values)
    s = task.settings
    batch = sample(task, 100)
    vocabulary = s.modulus + (7 if s.brackets else 5)
    assert (task.io, task.answers, task.chance()) == (IO(vocabulary, vocabulary), 1, 1 / s.modulus)
    for tokens, (at,), (target,), (length,) in zip(
        *(x.tolist() for x in (*batch[:3], batch.slices["length"])), strict=True
    ):
        text = written(task, tokens)
        expression, rest = text.split("=")
        assert rest == " " * (s.max_length - len(expression) - 1)
        assert at == len(expression) + 1
        assert length == at + (2 if s.brackets else 1)
        assert written(task, [target]) == chr(ord("a") + value(expression, s.modulus))
        assert s.multiplication or "*" not in text
        if not s.brackets:
            assert re.fullmatch(r"[a-z]([-+*][a-z])*", expression)


def test_products_come_before_sums_and_signs_before_both() -> None:
    task = build(min_length=9, max_length=9)
    # 3 - 2 * 4 + 1 and 3 * 2 - 4 * 4
    tokens = torch.tensor([[8, 2, 7, 3, 9, 1, 6, 4, 0], [8, 3, 7, 2, 9, 3, 9, 4, 0]])
    assert task.solve(
        sample(task, 2)._replace(inputs=tokens, positions=torch.tensor([[8], [8]]))
    ).tolist() == [[5 + 1], [5 + 0]]
    task = build(**BRACKETS, min_length=13, max_length=13)
    # (3 * (-4)) and ((2 + 3) - -1)
    tokens = torch.tensor(
        [[8, 3, 7, 8, 6, 4, 9, 9, 10, 11, 11, 11, 11], [8, 8, 2, 5, 3, 9, 6, 6, 1, 9, 10, 11, 11]]
    )
    assert task.solve(
        sample(task, 2)._replace(inputs=tokens, positions=torch.tensor([[9], [11]]))
    ).tolist() == [[3], [1]]


def test_digits_operators_and_lengths_are_uniform_in_a_row(chi_squared: Callable[..., float]) -> None:
    batch = sample(build(min_length=20, max_length=28), 6000)
    lengths = batch.slices["length"].flatten().bincount(minlength=29)
    assert chi_squared(lengths[21::2], torch.full((4,), 1500)) > ALPHA
    assert lengths.sum() == lengths[21::2].sum()
    for at in (0, 8, 18):
        assert chi_squared(batch.inputs[:, at].bincount(minlength=10)[5:], torch.full((5,), 1200)) > ALPHA
        assert (
            at == 18
            or chi_squared(batch.inputs[:, at + 1].bincount(minlength=10)[1:4], torch.full((3,), 2000))
            > ALPHA
        )


def halves(tokens: Tensor, length: int) -> Tensor:
    """[B] tokens of the left half of (left op right), found by counting brackets."""
    depth = ((tokens == 8).long() - (tokens == 9).long()).cumsum(dim=1)
    operator = (tokens >= 5) & (tokens <= 7)
    digit_before = torch.cat(
        [torch.zeros_like(operator[:, :1]), (tokens[:, :-1] < 5) | (tokens[:, :-1] == 9)], dim=1
    )
    middle = operator & digit_before & (depth == 1) & (torch.arange(tokens.shape[1]) < length)
    assert (middle.sum(dim=1) == 1).all()
    return middle.long().argmax(dim=1) - 1


def test_brackets_are_halved_anywhere(chi_squared: Callable[..., float]) -> None:
    """An expression of 14 tokens has a left half of 1 to 10."""
    batch = sample(build(**BRACKETS, min_length=17, max_length=17), 5000)
    left = halves(batch.inputs, 14)
    assert chi_squared(left.bincount(minlength=11)[1:], torch.full((10,), 500)) > ALPHA
    inner = left == 9  # that one again, where it begins with a bracket: 1 to 5
    again = halves(batch.inputs[inner][:, 1:10], 9)
    assert chi_squared(again.bincount(minlength=6)[1:], torch.full((5,), int(inner.sum()) / 5)) > ALPHA


@pytest.mark.parametrize("length", [20, 60])
def test_digits_and_operators_are_uniform_in_brackets(chi_squared: Callable[..., float], length: int) -> None:
    """Operators between two halves, that is; a sign before a digit is always a minus."""
    tokens = sample(build(**BRACKETS, min_length=length, max_length=length), 3000).inputs
    digit = tokens < 5
    assert chi_squared(tokens[digit].bincount(minlength=5), torch.full((5,), int(digit.sum()) / 5)) > ALPHA
    before = torch.nn.functional.pad(digit | (tokens == 9), (1, -1))
    operators = tokens[before & (tokens >= 5) & (tokens < 8)]
    assert chi_squared(operators.bincount(minlength=8)[5:], torch.full((3,), len(operators) / 3)) > ALPHA


def test_short_expressions_in_brackets_have_their_four_forms() -> None:
    task = build(**BRACKETS, min_length=4, max_length=7)
    forms = {
        re.sub("[a-e]", "d", written(task, row).split("=")[0]) for row in sample(task, 200).inputs.tolist()
    }
    assert forms == {"-d", "(d)", "(-d)"}


def test_lengths_in_brackets_are_no_shorter_than_five(chi_squared: Callable[..., float]) -> None:
    lengths = sample(build(**BRACKETS, min_length=3, max_length=12), 5000).slices["length"].flatten()
    assert chi_squared(lengths.bincount(minlength=13)[5:], torch.tensor([1500.0, *[500.0] * 7])) > ALPHA


def test_products_favour_zero_and_the_score_says_so() -> None:
    found = {}
    for products in (True, False):
        task = build(min_length=5, max_length=5, multiplication=products)
        batch = sample(task, 5000)
        scores = task.score(batch, Prediction(batch.targets, torch.zeros(5000, 1)))
        zeros, counted = (float(x) for x in scores["majority"])
        assert (zeros, counted) == (int((batch.targets == 5).sum()), 5000)
        assert scores["majority/length"][0][5] == zeros
        found[products] = zeros / counted
    assert found[True] > 0.22  # of all 75 expressions 19 are 0
    assert abs(found[False] - 0.2) < 4 * (0.16 / 5000) ** 0.5


def shared(task: ModularArithmetic, train: int) -> Tensor:
    """Return which of 2000 test examples are among the first `train` training examples."""
    trained = set(map(tuple, sample(task, train).inputs.tolist()))
    return torch.tensor([row in trained for row in map(tuple, sample(task, 2000, "test").inputs.tolist())])


def test_the_quick_preset_tests_nothing_that_was_trained_on() -> None:
    assert not shared(build(**ModularArithmetic.presets["quick"].task), 10_000).any()


def test_splits_share_nothing_in_brackets_but_single_digits() -> None:
    task = build(**ModularArithmetic.presets["grazzi-brackets"].task)
    known, lengths = shared(task, 10_000), sample(task, 2000, "test").slices["length"].flatten()
    assert known[lengths <= 7].all()
    assert not known[lengths > 7].any()


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_every_split_has_every_form_and_operator_in_brackets(split: str) -> None:
    """The words of (d op d) are divided, and each split still has all digits and operators."""
    tokens = sample(build(**BRACKETS, min_length=8, max_length=8), 1000, split).inputs
    assert [sorted(set(tokens[:, at].tolist())) for at in (1, 2, 3)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7],
        [0, 1, 2, 3, 4],
    ]


def test_every_published_setting_has_its_test_which_differs_in_lengths_alone() -> None:
    trained = [
        which
        for which in ModularArithmetic.presets
        if which.startswith("grazzi") and not which.endswith("-test")
    ]
    assert len(trained) == 3
    for which in trained:
        train, judged = (ModularArithmetic.presets[name] for name in (which, f"{which}-test"))
        assert judged.task == {**train.task, "min_length": 40, "max_length": 256}
        assert judged.model == train.model


def test_longer_sequences_are_longer_at_both_ends() -> None:
    assert build().longer(2) == {"min_length": 10, "max_length": 38}


def test_explain_says_what_is_due(snapshot: SnapshotAssertion) -> None:
    task = build(min_length=5, max_length=7)
    batch = sample(task, 1)._replace(
        inputs=torch.tensor([[8, 3, 9, 4, 0, 0, 0]]),
        positions=torch.tensor([[4]]),
        targets=torch.tensor([[7]]),
    )
    assert task.explain(batch, 0) == snapshot(name="no brackets")
    task = build(**BRACKETS, min_length=9, max_length=9)
    batch = sample(task, 1)._replace(
        inputs=torch.tensor([[8, 3, 5, 6, 4, 9, 10, 11, 11]]),
        positions=torch.tensor([[7]]),
        targets=torch.tensor([[4]]),
    )
    assert task.explain(batch, 0) == snapshot(name="brackets")


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({**BRACKETS, "min_length": 3, "max_length": 4}, "brackets 5 max_length 4"),
        ({"min_length": 8, "max_length": 8}, "brackets min_length 8 max_length"),
        ({"min_length": 2}, "min_length 2 3"),
        ({"min_length": 20}, "min_length max_length 20 19"),
        ({"modulus": 1}, "modulus 1 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(ModularArithmetic, values, facts)
