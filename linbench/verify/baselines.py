"""What a task's baselines score, with nothing trained: the rows that a trained model is read beside."""

import torch

from linbench.engine.evaluate import EXAMPLES, Marks, Scores, add, marks
from linbench.tasks.base import Prediction, Task

__all__ = ["baselines", "has_baselines"]


def has_baselines(task: type[Task]) -> bool:
    """Whether there is anything but the exact solver."""
    return task.baselines is not Task.baselines


def baselines(task: Task, *, examples: int, seed: int = 0, device: str = "cpu") -> dict[str, Marks]:
    """Each baseline by its name, then the exact solver by what it is, `task.bound`, on the examples that a
    model of that seed is tested on.

    There is no "nll": an exact solver gives answers alone, and n-grams hold what they never saw for
    impossible.
    """
    totals: dict[str, Scores] = {}
    for index in torch.split(torch.arange(examples, device=device), EXAMPLES):
        batch = task.sample(index, seed=seed, split="test")
        solved = Prediction(task.solve(batch), torch.zeros(batch.positions.shape, device=device))
        for name, prediction in {**task.baselines(batch), task.bound: solved}.items():
            scores = task.score(batch, prediction)
            add(
                totals.setdefault(name, {}),
                {metric: pair for metric, pair in scores.items() if metric != "nll"},
            )
    return dict(zip(totals, marks(list(totals.values())), strict=True))
