"""Rungs: the same training with larger and larger budgets, and when no more of them are needed."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from linbench.results.schema.cells import CellResult, Ending
from linbench.results.scores import AT_CHANCE, Levels, validation_accuracy, validation_loss

NEAR_OPTIMUM = 0.995
"""Share of the optimum at which a ladder ends. The figure is a convention of linbench."""

LEAST_GAIN = 0.01
"""Change of validation accuracy from rung to rung below which a rung is flat, by convention: one point.

A fall by more is no sign of rest: after it most gain (decision 13).
"""

LEAST_LOSS_GAIN = 0.02
"""Share of the validation loss by which a flat rung lowers it at most: chosen, not measured."""

FLAT_RUNGS = 2
"""Flat rungs, one after the other, at which a ladder ends. One says next to nothing (decision 13)."""


class Rung(NamedTuple):
    """The score of a rung: final validation accuracy, None if it measured nothing, and loss."""

    accuracy: float | None
    loss: float

    @classmethod
    def of(cls, result: CellResult) -> "Rung":
        """Return the score of a result."""
        accuracy = validation_accuracy(result) if result["status"] == "ok" else None
        return cls(accuracy, validation_loss(result))


def ending(rungs: Sequence[Rung], levels: Levels, *, most: int, flat: int = FLAT_RUNGS) -> Ending | None:
    """Return why a ladder ends after these rungs; None if it goes on.

    What is at chance is never flat: it has not begun to learn, and may do so after many rungs (decision 11).

    Args:
        rungs: the scores of the rungs so far, the lowest first.
        levels: chance and optimum of what is validated on.
        most: the number of rungs at which every ladder ends.
        flat: the number of flat rungs, one after the other, at which it ends.
    """
    last = rungs[-1].accuracy
    if last is None:
        return "failed"
    if last >= NEAR_OPTIMUM * levels.optimum:
        return "optimum"
    if last > levels.chance + AT_CHANCE and _ends_flat(rungs, flat):
        return "flat"
    return "cap" if len(rungs) >= most else None


def _ends_flat(rungs: Sequence[Rung], count: int) -> bool:
    """Return whether the last `count` rungs are flat."""
    return len(rungs) > count and all(
        _is_flat(before, after) for before, after in pairwise(rungs[-count - 1 :])
    )


def _is_flat(before: Rung, after: Rung) -> bool:
    if before.accuracy is None or after.accuracy is None:
        return False
    stays = abs(after.accuracy - before.accuracy) < LEAST_GAIN
    return stays and after.loss > (1 - LEAST_LOSS_GAIN) * before.loss
