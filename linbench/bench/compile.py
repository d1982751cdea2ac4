"""Everything is compiled before anything is timed: side by side, since that takes a core each and little of a
GPU but memory."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from linbench.bench.machine import give_back
from linbench.engine.measure import says_out_of_memory
from linbench.engine.workers import outcomes


def compiled_ahead(
    compile_all: Callable[[Any], Any], cases: Sequence[Any], *, seconds: float, tell: Callable[[str], None]
) -> dict[int, Any]:
    """What `compile_all`, importable by name, returned for each case of a GPU, by its place; None where it
    failed. What did not fit beside the others is compiled again alone.

    Args:
        seconds: what takes longer hangs.
        tell: hears a line for each.
    """
    side_by_side = max(1, min(12, (os.cpu_count() or 1) - 2))
    found, crowded = _compiled(compile_all, cases, range(len(cases)), side_by_side, seconds, tell)
    return found | _compiled(compile_all, cases, crowded, 1, seconds, tell)[0]


def _compiled(
    compile_all: Callable[[Any], Any],
    cases: Sequence[Any],
    places: Sequence[int],
    workers: int,
    seconds: float,
    tell: Callable[[str], None],
) -> tuple[dict[int, Any], list[int]]:
    """Of the cases at these places what was returned, and those for which memory did not suffice."""
    found: dict[int, Any] = {}
    crowded: list[int] = []
    for which, outcome in outcomes(
        partial(_alone, compile_all), [cases[place] for place in places], workers=workers, seconds=seconds
    ):
        place = places[which]
        found[place] = outcome.value
        why = outcome.failure
        if why and says_out_of_memory(why):
            crowded.append(place)
            why = "no memory beside the others, once more alone" if workers > 1 else why
        tell(f"compiled {len(found)}/{len(places)} {cases[place]}{f': {why}' if why else ''}")
    return found, crowded


def _alone(compile_all: Callable[[Any], Any], case: Any) -> Any:
    """Leaves the GPU's memory to others that are compiled meanwhile."""
    value = compile_all(case)
    give_back(case.device)
    return value
