"""Compilation before anything is timed: many cases side by side, as each takes a core and little of a GPU."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from linbench.bench.machine import release_memory
from linbench.engine.measure import says_out_of_memory
from linbench.engine.workers import outcomes

MAX_WORKERS = 12
"""Most cases compiled side by side; each of them holds inputs and outputs in the memory of the GPU."""


def compile_ahead(
    precompile: Callable[[Any], Any], cases: Sequence[Any], *, seconds: float, tell: Callable[[str], None]
) -> dict[int, Any]:
    """Compile cases of a GPU. Those that find no memory beside the others are compiled again alone.

    Args:
        precompile: compiles one case; it must be importable by name.
        seconds: a case that takes longer counts as hung.
        tell: receives a line for each case.

    Returns:
        what `precompile` returned, by index of the case; None if it failed.
    """
    workers = max(1, min(MAX_WORKERS, (os.cpu_count() or 1) - 2))
    values, without_memory = _compile(precompile, cases, range(len(cases)), workers, seconds, tell)
    again, _ = _compile(precompile, cases, without_memory, 1, seconds, tell)
    return values | again


def _compile(
    precompile: Callable[[Any], Any],
    cases: Sequence[Any],
    indices: Sequence[int],
    workers: int,
    seconds: float,
    tell: Callable[[str], None],
) -> tuple[dict[int, Any], list[int]]:
    """Compile the cases at these indices; return values by index, and the indices that found no memory."""
    values: dict[int, Any] = {}
    without_memory: list[int] = []
    chosen = [cases[index] for index in indices]
    for which, outcome in outcomes(
        partial(_compile_and_release, precompile), chosen, workers=workers, seconds=seconds
    ):
        index, failure = indices[which], outcome.failure
        values[index] = outcome.value
        if failure and says_out_of_memory(failure):
            without_memory.append(index)
            failure = "no memory beside the others, once more alone" if workers > 1 else failure
        tell(f"compiled {len(values)}/{len(indices)} {cases[index]}{f': {failure}' if failure else ''}")
    return values, without_memory


def _compile_and_release(precompile: Callable[[Any], Any], case: Any) -> Any:
    value = precompile(case)
    release_memory(case.device)  # others compile on this GPU meanwhile
    return value
