"""Ladders: a cell trained with larger and larger budgets until it has learned its task.

The rungs of a ladder are cells of their own, each with twice the budget of the one before, so that each has a
result. What a memory can hold is read from the last rung.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from linbench.engine.progress import Progress
from linbench.engine.runner import run_cells
from linbench.engine.trunk import Trunks
from linbench.experiments.cell import Cell, mean_chance, mean_optimum
from linbench.results.rungs import Rung, ending
from linbench.results.schema.cells import CellResult
from linbench.results.schema.cells import Ladder as LadderSummary
from linbench.results.scores import Levels
from linbench.results.store import Store
from linbench.results.undertrained import is_undertrained, mark

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
        ended: CellResult = {**last, "purpose": "report", "ladder": summary}
        annotated = mark(ended, is_undertrained(ended, ()))
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
        scores.append(Rung.of(result))
        if ending(scores, _levels(cell), most=cell.protocol.rungs):
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


def summarize(cell: Cell, done: Sequence[CellResult]) -> LadderSummary:
    """Return the field `ladder` of the result of the last rung."""
    scores = [Rung.of(result) for result in done]
    ended = ending(scores, _levels(cell), most=cell.protocol.rungs)
    assert ended is not None, "a ladder is summarized at its end"
    return {
        "ended": ended,
        "most": cell.protocol.rungs,
        "rungs": [
            {"tokens": cell.curriculum.tokens(cell.rung(number).steps), "accuracy": score.accuracy}
            for number, score in enumerate(scores)
        ],
    }


def _levels(cell: Cell) -> Levels:
    return Levels(mean_chance(cell.validated_on), mean_optimum(cell.validated_on))
