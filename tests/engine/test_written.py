"""Rows that trained models write by themselves."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.engine.stack import Stack
from linbench.engine.written import NAME, add_generated, write
from linbench.tasks.base import Writing
from linbench.tasks.random import Stream
from tests.helpers.cells import plan
from tests.helpers.groups import FEW, TINY, results

V = 5


class Counts:
    """Models that say after token t that t + their step comes next, with certainty or by a law."""

    def __init__(self, steps: list[int], law: Tensor | None = None) -> None:
        self.steps, self.law = steps, law

    def __call__(self, inputs: Tensor, positions: Tensor) -> Tensor:
        last = inputs.gather(2, positions)
        following = torch.stack([(x + step) % V for x, step in zip(last, self.steps, strict=True)])
        if self.law is not None:
            return self.law.log().expand(*following.shape, V)
        return torch.nn.functional.one_hot(following, V).float()


def written(
    models: Any, prompt: list[int], tokens: int, *, length: int = 8, draws: Stream | None = None
) -> Tensor:
    stack: Stack = models
    inputs = torch.ones(len(models.steps), len(prompt), length, dtype=torch.int64)
    writing = Writing(tokens, end=0, drawn=draws is not None)
    return write(stack, inputs, torch.tensor(prompt).expand(len(models.steps), -1), writing, draws)


def test_each_row_goes_on_after_its_own_prompt_up_to_its_end() -> None:
    """Tokens after the prompt are not read, and zeros follow the end, which is 0 itself."""
    found = written(Counts([1, 2]), [1, 3], tokens=8)
    assert found.tolist() == [
        [[1, 2, 3, 4, 0, 0, 0, 0], [1, 1, 1, 2, 3, 4, 0, 0]],
        [[1, 3, 0, 0, 0, 0, 0, 0], [1, 1, 1, 3, 0, 0, 0, 0]],
    ]


def test_no_more_is_written_than_was_asked_for_or_fits() -> None:
    assert written(Counts([1]), [1, 3], tokens=2).tolist() == [
        [[1, 2, 3, 0, 0, 0, 0, 0], [1, 1, 1, 2, 3, 0, 0, 0]]
    ]
    assert written(Counts([1]), [2, 3], tokens=9, length=4).tolist() == [[[1, 1, 2, 3], [1, 1, 1, 2]]]


def test_tokens_are_drawn_by_their_law(chi_squared: Any) -> None:
    count, law = 4000, torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    draws = Stream.of(torch.arange(count), seed=0, split="written")
    found = written(Counts([0, 0], law), [1] * count, tokens=2, length=3, draws=draws)
    assert torch.equal(found[0], found[1])
    for place in (1, 2):
        assert chi_squared(found[0, :, place].bincount(minlength=V)[1:], count * law[1:]) > 1e-3
    pairs = (V * found[0, :, 1] + found[0, :, 2]).bincount(minlength=V * V).view(V, V)[1:, 1:]
    assert chi_squared(pairs.flatten(), count * torch.outer(law, law)[1:, 1:].flatten()) > 1e-3


SMALL = FEW | {name: value for name, value in TINY.items() if not name.startswith("task.")}


@pytest.mark.parametrize("task", ["brevo", "lano"])
def test_results_of_each_replica_have_the_share(task: str) -> None:
    cells = plan(task, ["deltanet"], device="cpu", seeds=[0, 1], settings=SMALL)
    for result in results(cells):
        assert 0 <= result["metrics"][NAME] <= 1
        assert NAME not in result["curve"][0]


def test_tasks_in_which_nothing_is_written_have_none() -> None:
    (result,) = results(plan("mqar", ["deltanet"], device="cpu", seeds=[0], settings=TINY | FEW))
    assert NAME not in result["metrics"]


def test_they_cost_such_a_task_nothing_and_leave_its_models_in_training() -> None:
    untouched: Any = object()
    assert (
        add_generated([], untouched, plan("mqar", ["deltanet"], device="cpu", seeds=[0], settings=TINY)) == []
    )
