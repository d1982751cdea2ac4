"""Sizes of models that are compared: what they were matched by, and how far it lies apart."""

from collections.abc import Sequence

from linbench.experiments.sizing import TOLERANCE
from linbench.results.schema.cells import State

STATE, RECURRENT = "state floats", "recurrent floats"
"""Quantities that models can be matched by: their state, or the floats of its recurrence alone."""


def spread(counts: Sequence[float]) -> float:
    """Return the largest of some counts over the smallest, less 1; 0 for fewer than two, or with a zero."""
    return max(counts) / min(counts) - 1 if len(counts) > 1 and min(counts) > 0 else 0.0


def matched_part(groups: Sequence[Sequence[State]]) -> str:
    """Return what the models of each group were matched by, `STATE` or `RECURRENT`.

    A result does not say it. It is the whole state, unless that differs by more than `TOLERANCE` and by more
    than the floats of the recurrence alone.

    Args:
        groups: states without a cache, of models that stand side by side.
    """

    def difference(part: str) -> float:
        return max((spread([count_of(state, part) for state in group]) for group in groups), default=0.0)

    whole = difference(STATE)
    return RECURRENT if whole > TOLERANCE and difference(RECURRENT) < whole else STATE


def count_of(state: State, part: str) -> int:
    """Return the floats of a state, or of its recurrence."""
    return state["recurrent"] if part == RECURRENT else state["total"]
