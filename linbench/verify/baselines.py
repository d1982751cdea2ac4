"""Scores of a task's baselines, with nothing trained: rows to read a trained model's beside."""

import torch

from linbench.engine.evaluate import EXAMPLES, Scores, TestMetrics, add_scores, collect_metrics
from linbench.tasks.base import Prediction, Task

__all__ = ["baselines", "has_baselines"]


def has_baselines(task: type[Task]) -> bool:
    """Tell whether a task has any baseline beside the exact solver."""
    return task.baselines is not Task.baselines


def baselines(task: Task, *, examples: int, seed: int = 0, device: str = "cpu") -> dict[str, TestMetrics]:
    """Return the scores of each baseline by its name, and of the exact solver by `task.optimum_kind`.

    They are of the examples that a model of that seed is tested on. There is no "nll": an exact solver gives
    answers alone, and n-grams give answers that they never saw no probability.
    """
    totals: dict[str, Scores] = {}
    for index in torch.split(torch.arange(examples, device=device), EXAMPLES):
        batch = task.sample(index, seed=seed, split="test")
        solved = Prediction(task.solve(batch), torch.zeros(batch.positions.shape, device=device))
        for name, prediction in {**task.baselines(batch), task.optimum_kind: solved}.items():
            scores = {
                metric: pair for metric, pair in task.score(batch, prediction).items() if metric != "nll"
            }
            add_scores(totals.setdefault(name, {}), scores)
    return dict(zip(totals, collect_metrics(list(totals.values())), strict=True))
