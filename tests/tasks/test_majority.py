from functools import partial
from itertools import product
from math import comb
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.majority import END, PAD, Majority
from tests.helpers.tasks import assert_refused, build_task, sample

build = partial(build_task, Majority)


@pytest.mark.parametrize("answer", ["last", "cumulative"])
def test_every_row_is_counted_by_hand(answer: str) -> None:
    last = answer == "last"
    task = build(min_length=2, max_length=9, answer=answer)
    batch = sample(task, 300)
    assert (task.io, task.answers) == (IO(4, 2), 1 if last else 9)
    for row in range(300):
        tokens = batch.inputs[row].tolist()
        bits = [token for token in tokens if token < END]
        count = len(bits)
        sums = [sum(2 * bit - 1 for bit in bits[: i + 1]) for i in range(count)]
        assert tokens == bits + ([END] if last else []) + [PAD] * (9 - count - last)
        found = [x[row].tolist() for x in (*batch[1:3], *batch.slices.values())]
        if last:
            assert found == [[count], [int(sums[-1] > 0)], [count], [abs(sums[-1])]]
        else:
            unused = [0] * (9 - count)
            assert found == [
                [*range(count), *unused],
                [int(more >= 0) for more in sums] + [IGNORE] * len(unused),
                [*range(1, count + 1), *unused],
                [abs(more) for more in sums] + unused,
            ]


def all_words(length: int, answer: str) -> Batch:
    """Every sequence of so many bits, as the task shows them."""
    last = answer == "last"
    bits = torch.tensor(list(product((0, 1), repeat=length)))
    more = (2 * bits - 1).cumsum(dim=1)
    if last:
        more = more[:, -1:]
        inputs = torch.cat([bits, torch.full_like(more, END)], dim=1)
        return Batch(inputs, torch.full_like(more, length), (more > 0).long(), {"margin": more.abs()})
    place = torch.arange(length).expand_as(bits)
    return Batch(bits, place, (more >= 0).long(), {"margin": more.abs()})


@pytest.mark.parametrize("answer", ["last", "cumulative"])
@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_near_is_where_another_bit_would_change_the_answer(answer: str, length: int) -> None:
    task = build(min_length=9, max_length=9, answer=answer)
    batch = all_words(length, answer)
    means = task.means(batch, Prediction(batch.targets, torch.zeros(batch.targets.shape)))
    ends = [length] if answer == "last" else range(1, length + 1)
    for row, bits in enumerate(product((0, 1), repeat=length)):
        for n, end in enumerate(ends):
            flipped = [[*bits[:i], 1 - bits[i], *bits[i + 1 : end]] for i in range(end)]
            others = {2 * sum(x) >= end + (answer == "last") for x in flipped}
            changes = bool(others - {bool(batch.targets[row, n])})
            assert bool(means["near"].weight[row, n]) == changes  # type: ignore[index]


@pytest.mark.parametrize("answer", ["last", "cumulative"])
@pytest.mark.parametrize("length", [2, 3, 8, 9])
def test_chance_is_the_likelier_answer_at_each_position(answer: str, length: int) -> None:
    targets = all_words(length - (answer == "last"), answer).targets.double().mean(dim=0)
    task = build(min_length=length, max_length=length, answer=answer)
    assert task.chance() == pytest.approx(float(targets.maximum(1 - targets).mean()), abs=1e-12)


@pytest.mark.parametrize(
    ("length", "always", "last_bit", "end"),
    [
        (16, 0.573, 0.671, 0.605),
        (32, 0.557, 0.627, 0.572),
        (64, 0.543, 0.592, 0.550),
        (128, 0.532, 0.567, 0.535),
    ],
)
def test_what_little_of_a_sequence_tells(length: int, always: float, last_bit: float, end: float) -> None:
    """The last bit, exactly: of t bits, of which `half` decide, it is one of the more common ones."""
    task = build(min_length=length, max_length=length)
    assert task.chance() == pytest.approx(always, abs=6e-4)
    batch = sample(task, 4000)
    assert float((batch.inputs == batch.targets).double().mean()) == pytest.approx(last_bit, abs=4e-3)
    assert 0.5 + comb(length - 2, length // 2 - 1) / 2 ** (length - 1) == pytest.approx(end, abs=6e-4)


def test_the_last_eight_bits_tell_much_and_least_where_it_is_near() -> None:
    """Always answering 1 is right in .519 of near cases, and naming the last bit in .562."""
    task = build()
    batch = sample(task, 4000)
    more = torch.nn.functional.pad((2 * batch.inputs - 1).cumsum(dim=1), (8, 0))
    eight = (more[:, 8:] >= more[:, :-8]).long()
    means = task.means(batch, Prediction(eight, torch.zeros(eight.shape)))
    assert float(means["accuracy"].value.double().mean()) == pytest.approx(0.721, abs=4e-3)
    near = means["near"].weight
    assert near is not None
    assert float(batch.targets[near].double().mean()) == pytest.approx(0.519, abs=6e-3)
    assert float((batch.inputs == batch.targets)[near].double().mean()) == pytest.approx(0.562, abs=6e-3)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"min_length": 9, "max_length": 8}, "min_length max_length 9 8"),
        ({"min_length": 1}, "min_length 1 2"),
        ({"answer": "first"}, "answer"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Majority, values, facts)


@pytest.mark.parametrize(
    ("answer", "said"), [("last", "the answer is 1: 3 of 5 are ones"), ("cumulative", "else 0: 11110")]
)
def test_explain_says_what_is_due(answer: str, said: str) -> None:
    task = build(min_length=5 + (answer == "last"), max_length=5 + (answer == "last"), answer=answer)
    bits, targets = ([1, 0, 1, 1, 0, END], [1]) if answer == "last" else ([1, 0, 1, 0, 0], [1, 1, 1, 1, 0])
    batch = sample(task, 1)._replace(inputs=torch.tensor([bits]), targets=torch.tensor([targets]))
    assert said in task.explain(batch, 0)
