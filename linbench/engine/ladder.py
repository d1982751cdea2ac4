"""Ladders: a cell trained with larger and larger budgets until it has learned its task.

The rungs of a ladder are cells of their own, each with twice the budget of the one before, so that each has a
result. What a memory can hold is read from the last rung.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
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
        self._climbs: dict[str, _Climb] = {}

    def climb(self, cell: Cell, results: Mapping[str, CellResult]) -> list[Cell]:
        """Return the rungs of a cell that are done or to be run now, without those returned before.

        The result of the last rung is kept with what is known of all rungs.
        """
        if cell.id in self.ended:
            return []
        climb = self._climbs.get(cell.id) or self._climbs.setdefault(cell.id, _Climb(cell))
        new = climb.go_on(lambda rung: results.get(rung.id))
        if climb.ended:
            done = [results[rung.id] for rung in climb.rungs]
            self.ended[cell.id] = done[0] if cell.protocol.rungs == 1 else self._end(cell, done)
        return new

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


class _Climb:
    """A ladder as far as results lead. What is asked of it again and again costs one look-up."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.rungs: list[Cell] = []
        """The rungs that have results, from the lowest on, and the next if it is to be run."""
        self.ended = False
        self._scores: list[Rung] = []

    @cached_property
    def _levels(self) -> Levels:
        """Levels that a ladder's end is judged by. A single rung needs none; some take long to compute."""
        return _levels(self.cell)

    def go_on(self, look_up: LookUp) -> list[Cell]:
        """Follow the results that are found, and return the rungs that are new."""
        known = len(self.rungs)
        while not self.ended:
            if len(self.rungs) == len(self._scores):
                self.rungs.append(self._rung(len(self.rungs)))
            result = look_up(self.rungs[-1])
            if result is None:
                break
            self._scores.append(Rung.of(result))
            most = self.cell.protocol.rungs
            self.ended = most == 1 or ending(self._scores, self._levels, most=most) is not None
        return self.rungs[known:]

    def _rung(self, number: int) -> Cell:
        return first_rung(self.cell) if not number else replace(self.cell.rung(number), purpose="rung")


def known_rungs(cell: Cell, look_up: LookUp) -> list[Cell]:
    """Return the rungs of a cell that have results, from the lowest on, and the next if it is to be run."""
    climb = _Climb(cell)
    climb.go_on(look_up)
    return climb.rungs


def final_result(cell: Cell, look_up: LookUp) -> CellResult | None:
    """Return the result of a cell, or that of the last rung of its ladder; None while there is none."""
    return look_up(known_rungs(cell, look_up)[-1])


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
