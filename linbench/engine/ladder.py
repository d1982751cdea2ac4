"""Ladders: a cell trained with larger and larger budgets until it has learned its task.

The rungs of a ladder are cells of their own, each with twice the budget of the one before, so that each has a
result. What a memory can hold is read from the last rung.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from linbench.engine.progress import Progress
from linbench.engine.runner import run_cells
from linbench.engine.trunk import Trunks
from linbench.experiments.cell import Cell
from linbench.results.record import UNDERTRAINED
from linbench.results.schema.cells import CellResult, Ending
from linbench.results.schema.cells import Ladder as LadderSummary
from linbench.results.scores import AT_CHANCE, validation_accuracy, validation_loss
from linbench.results.store import Store

NEAR_OPTIMUM = 0.995
"""Share of the optimum at which a ladder ends. The figure is a convention of linbench."""

LEAST_GAIN = 0.01
"""Gain in validation accuracy from rung to rung below which a rung is flat, by convention: one point."""

LEAST_LOSS_GAIN = 0.02
"""Share of the validation loss by which a flat rung lowers it at most: chosen, not measured."""

FLAT_RUNGS = 2
"""Flat rungs, one after the other, at which a ladder ends."""


class Rung(NamedTuple):
    """The score of a rung: final validation accuracy, None if it measured nothing, and loss."""

    accuracy: float | None
    loss: float


LookUp = Callable[[Cell], CellResult | None]
"""A look-up of a cell's result."""


def run_ladders(cells: Sequence[Cell], store: Store, progress: Progress, **how: Any) -> list[CellResult]:
    """Run cells, each as far as its ladder goes, and return the results of the last rungs, in order.

    Args:
        cells: a cell with a single rung is run as it is.
        store, progress, how: as of `linbench.engine.runner.run_cells`.

    Raises UserError, StorageError and DeviceLostError: as of `run_cells`.
    """
    ladders = Ladders(store)
    each = list({cell.id: cell for cell in cells}.values())

    def next_cells(results: Mapping[str, CellResult]) -> Iterator[Cell]:
        for cell in each:
            yield from ladders.climb(cell, results)

    run_cells([first_rung(cell) for cell in each], store, progress, next_cells=next_cells, **how)
    return [ladders.ended[cell.id] for cell in each]


class Ladders:
    """The ladders of some cells, each as far as results lead. A cell with a single rung is its own ladder."""

    def __init__(self, store: Store) -> None:
        self.store, self.trunks = store, Trunks(store.checkpoints)
        self.ended: dict[str, CellResult] = {}
        """The annotated result of the last rung by the id of the cell that is climbed."""

    def climb(self, cell: Cell, results: Mapping[str, CellResult]) -> list[Cell]:
        """Return the rungs of a cell that are done, and the one to run now if its ladder has not ended.

        The result of the last rung is kept with what is known of all rungs.
        """
        if cell.protocol.rungs == 1:
            if cell.id in results:
                self.ended[cell.id] = results[cell.id]
            return [cell]
        rungs = known_rungs(cell, lambda rung: results.get(rung.id))
        if cell.id not in self.ended and rungs[-1].id in results:
            self.ended[cell.id] = self._end(cell, [results[rung.id] for rung in rungs])
        return rungs

    def _end(self, cell: Cell, done: Sequence[CellResult]) -> CellResult:
        """Keep the result of the last rung with what is known of all, and return it."""
        summary = summarize(cell, done)
        *lower, last = done
        for result in lower:
            if result["purpose"] == "report":  # of a ladder that had fewer rungs
                self.store.put({**without_ladder(result), "purpose": "rung"})
        others = [mark for mark in last["marks"] if mark != UNDERTRAINED]
        rising = summary["ended"] == "cap" and not _ends_flat([_score(result) for result in done])
        annotated: CellResult = {
            **last,
            "purpose": "report",
            "marks": [UNDERTRAINED, *others] if rising else others,
            "ladder": summary,
        }
        if annotated != last:
            self.store.put(annotated)
        self.trunks.delete(cell)
        return annotated


def first_rung(cell: Cell) -> Cell:
    """Return the cell to run first."""
    return cell if cell.protocol.rungs == 1 else replace(cell.rung(0), purpose="rung")


def known_rungs(cell: Cell, look_up: LookUp) -> list[Cell]:
    """Return the rungs of a cell that have results, from the lowest on, and the next if it is to be run."""
    rungs: list[Cell] = []
    scores: list[Rung] = []
    for number in range(cell.protocol.rungs):
        rungs.append(replace(cell.rung(number), purpose="rung"))
        result = look_up(rungs[-1])
        if result is None:
            break
        scores.append(_score(result))
        if ending(scores, chance=cell.chance, optimum=cell.optimum, most=cell.protocol.rungs):
            break
    return rungs


def final_result(cell: Cell, look_up: LookUp) -> CellResult | None:
    """Return the result of a cell, or that of the last rung of its ladder; None while there is none."""
    return look_up(cell if cell.protocol.rungs == 1 else known_rungs(cell, look_up)[-1])


def without_ladder(result: CellResult) -> CellResult:
    """Return a result without what is known of its ladder."""
    kept = result.copy()
    kept.pop("ladder", None)
    return kept


def ending(rungs: Sequence[Rung], *, chance: float, optimum: float, most: int) -> Ending | None:
    """Return why a ladder ends after these rungs; None if it goes on.

    What is at chance is never flat: it has not begun to learn, and may do so after many rungs (decision 11).

    Args:
        rungs: the scores of the rungs so far, the lowest first.
        chance: the accuracy of the best blind guess.
        optimum: the accuracy that can be expected of the exact solver.
        most: the number of rungs at which every ladder ends.
    """
    last = rungs[-1].accuracy
    if last is None:
        return "failed"
    if last >= NEAR_OPTIMUM * optimum:
        return "optimum"
    if last > chance + AT_CHANCE and _ends_flat(rungs, FLAT_RUNGS):
        return "flat"
    return "cap" if len(rungs) >= most else None


def _ends_flat(rungs: Sequence[Rung], count: int = 1) -> bool:
    """Return whether the last `count` rungs are flat."""
    return len(rungs) > count and all(
        _is_flat(before, after) for before, after in pairwise(rungs[-count - 1 :])
    )


def _is_flat(before: Rung, after: Rung) -> bool:
    if before.accuracy is None or after.accuracy is None:
        return False
    gains = after.accuracy - before.accuracy >= LEAST_GAIN
    return not gains and after.loss > (1 - LEAST_LOSS_GAIN) * before.loss


def summarize(cell: Cell, done: Sequence[CellResult]) -> LadderSummary:
    """Return the field `ladder` of the result of the last rung."""
    scores = [_score(result) for result in done]
    ended = ending(scores, chance=cell.chance, optimum=cell.optimum, most=cell.protocol.rungs)
    assert ended is not None, "a ladder is summarized at its end"
    return {
        "ended": ended,
        "most": cell.protocol.rungs,
        "rungs": [
            {"tokens": cell.curriculum.tokens(cell.rung(number).steps), "accuracy": score.accuracy}
            for number, score in enumerate(scores)
        ],
    }


def _score(result: CellResult) -> Rung:
    if result["status"] != "ok":
        return Rung(None, validation_loss(result))
    return Rung(validation_accuracy(result), validation_loss(result))
