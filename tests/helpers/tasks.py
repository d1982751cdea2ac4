"""Helpers of tests of tasks: build one, draw examples, and look at what it refuses."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.tasks.base import IGNORE, Batch, Prediction, Split, Task
from linbench.tasks.random import Stream


def build_task(cls: type[Task], **settings: Any) -> Any:
    """Build a task with settings as a user gives them."""
    return cls(cls.Settings.parse(settings, where="task"))


def task_fixture(cls: type[Task], settings: Mapping[str, Mapping[str, Any]]) -> Callable[..., Any]:
    """Return a fixture with a task for each of the named settings."""

    @pytest.fixture(params=settings)
    def task(request: pytest.FixtureRequest) -> Task:
        return build_task(cls, **settings[request.param])

    return task


def sample(
    task: Task, count: int, split: Split = "train", *, first: int = 0, seed: int | torch.Tensor = 0
) -> Batch:
    """Draw examples number `first`, `first` + 1, ... of a task."""
    return task.sample(torch.arange(first, first + count), seed=seed, split=split)


def stream(count: int, *, seed: int = 0, split: str = "train") -> Stream:
    """Return the streams of examples 0, 1, ..."""
    return Stream.of(torch.arange(count), seed=seed, split=split)


def unanswered(batch: Batch) -> Batch:
    """Return the batch as a model and a solver may see it: without answers, slices and facts."""
    return Batch(batch.inputs, batch.positions, torch.full_like(batch.targets, IGNORE), {}, {})


def solved(task: Task, batch: Batch) -> Prediction:
    """Return the exact solver's answers as a prediction without losses."""
    answers = task.solve(unanswered(batch))
    return Prediction(answers, torch.zeros(batch.positions.shape))


def accuracy(task: Task, batch: Batch, answers: torch.Tensor) -> float:
    """Return the accuracy of answers to a batch."""
    value, weight = task.score(batch, Prediction(answers, torch.zeros(batch.positions.shape)))["accuracy"]
    return float(value / weight)


def names_and_numbers(message: str, cls: type[Task]) -> list[str]:
    """Return the numbers, names of settings and words with an underscore in a message, each once."""
    words = re.findall(r"\d+(?:\.\d+)?|[A-Za-z_]\w*", message)
    found = [word for word in words if word[0].isdigit() or "_" in word or word in cls.Settings.model_fields]
    return list(dict.fromkeys(found))


def assert_refused(cls: type[Task], settings: Mapping[str, Any], facts: str) -> None:
    """Check that settings are refused in one sentence with these names and numbers."""
    with pytest.raises(UserError) as refused:
        build_task(cls, **settings)
    message = str(refused.value)
    assert "task" in message
    assert "\n" not in message
    assert re.search(r"[^.?][.?]$", message), message
    missing = set(facts.split()) - set(names_and_numbers(message, cls))
    assert not missing, f"{message} lacks {missing}"
