"""Helpers of tests of the tokens that it takes to learn: times on a grid, and runs that learn on it."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from linbench.results.survival import Time

GRID = (100, 200, 400, 800, 1600)
"""The tokens at which runs are validated."""


def on_grid(values: Sequence[float], budget: float = inf) -> list[Time]:
    """Return whole numbers as times on a grid of all whole numbers, looked at up to a budget."""
    return [Time(value - 1, value) if value <= budget else Time(budget, inf) for value in values]


def a_curve(learned_at: float, budget: float = GRID[-1]) -> list[dict[str, float]]:
    """Return a curve that is at chance until it learns, at once, at one of the points of the grid."""
    return [
        {
            "step": i,
            "tokens": tokens,
            "loss": 1.0,
            "accuracy": 1.0 if tokens >= learned_at else 0.125,
            "nll": 1.0,
        }
        for i, tokens in enumerate(GRID, 1)
        if tokens <= budget
    ]


def learners(a_result: Callable[..., Any], label: str, times: Sequence[float], **more: Any) -> list[Any]:
    """Return a result for each seed of a variant that learns at these times; infinity for never."""
    return [
        a_result(label, seed, 1.0 if time < inf else 0.125, curve=a_curve(time), **more)
        for seed, time in enumerate(times)
    ]
