"""Trunks: where a training with a larger budget goes on from one with a smaller budget.

With the schedule wsd, a rung of a ladder is the same training as the next one until its learning rate falls.
Its state at that step is kept, for each cell alone, since not all cells of a group climb the next rung. A
trunk saves time and decides nothing: where it is missing, the next rung begins anew, with the same result.
"""

from collections.abc import Iterable
from pathlib import Path

import torch

from linbench.common.files import storage_sentence
from linbench.engine.checkpoint import SHARED, Checkpoint, snapshot, tensors_of, write_checkpoint
from linbench.engine.schedule import stable_steps
from linbench.engine.step import Run, Training
from linbench.experiments.cell import Cell

SUFFIX = ".trunk"


class Trunks:
    """A folder with the trunk of every ladder that is being climbed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save_if_due(self, training: Training) -> None:
        """Keep the trunk of each run if its learning rate is about to fall.

        Raises StorageError: it cannot be kept.
        """
        cell = training.runs[0].cell
        if not _may_climb(cell) or training.step != stable_steps(cell):
            return
        for r, run in enumerate(training.runs):
            if run.done:
                continue
            tensors, numbers = snapshot(training, slice(r, r + 1))
            numbers |= {
                "trained": cell.curriculum.tokens(training.step),
                "note": None,
                "cells": [ladder_id(run.cell)],
            }
            path = self._path(run.cell, training.step)
            write_checkpoint(path, tensors, numbers)
            self._delete([other for other in self._paths(run.cell) if other != path])

    def restore(self, training: Training) -> bool:
        """Set a training, before its first step, to the latest trunk that all its cells have.

        Returns: whether there was one.
        """
        cell = training.runs[0].cell
        if not _may_climb(cell):
            return False
        steps = [{_step(path) for path in self._paths(run.cell)} for run in training.runs]
        last = stable_steps(cell)
        for step in sorted(set.intersection(*steps), reverse=True):
            trunks = [Checkpoint.read(self._path(run.cell, step)) for run in training.runs]
            known = [trunk for trunk in trunks if trunk is not None]
            if step <= last and len(known) == len(trunks) and _restore(training, known):
                return True
        return False

    def delete(self, cell: Cell) -> None:
        """Delete the trunk of a ladder that is at its end, if there is one."""
        self._delete(self._paths(cell))

    def _delete(self, paths: Iterable[Path]) -> None:
        with storage_sentence(self.folder, "cannot remove a trunk from"):
            for path in paths:
                path.unlink(missing_ok=True)

    def _path(self, cell: Cell, step: int) -> Path:
        return self.folder / f"{ladder_id(cell)}-{step}{SUFFIX}"

    def _paths(self, cell: Cell) -> list[Path]:
        return [path for path in self.folder.glob(f"{ladder_id(cell)}-*{SUFFIX}") if path.is_file()]


def ladder_id(cell: Cell) -> str:
    """Return what all rungs of a ladder have in common: the id of the cell with the smallest budget."""
    return cell.rung(-cell.protocol.doublings).id


def _may_climb(cell: Cell) -> bool:
    """Return whether a cell may be a rung of a ladder, or of a search on rungs, that can go on."""
    return cell.purpose != "report" and cell.protocol.schedule == "wsd" and can_go_on(cell)


def can_go_on(cell: Cell) -> bool:
    """Return whether a cell's weights and optimizer are all that its training depends on.

    A layer that draws random numbers, as dropout does, would draw others in another group.
    """
    layers = cell.model.layers
    draws = any(
        layer.entry.cls.is_plain_module or getattr(layer.settings, "noise", False) for layer in layers
    )
    return not draws and not cell.model.backbone.embedding_dropout


def _step(path: Path) -> int:
    number = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def _restore(training: Training, trunks: list[Checkpoint]) -> bool:
    """Set a training to the state of trunks, one for each run, if they fit."""
    tensors = tensors_of(training)
    for name, x in tensors.items():
        for r, trunk in enumerate(trunks):
            kept = trunk.tensors.get(name)
            own = x if name == SHARED else x[r : r + 1]
            if kept is None or kept.shape != own.shape or kept.dtype != own.dtype:
                return False
    with torch.no_grad():
        for name, x in tensors.items():
            rows = [trunk.tensors[name] for trunk in trunks]
            x.detach().copy_(rows[0] if name == SHARED else torch.cat(rows))
    training.runs = [Run(run.cell, **trunk.runs[0]) for run, trunk in zip(training.runs, trunks, strict=True)]
    training.step = trunks[0].numbers["step"]
    training.trained = sum(trunk.numbers["trained"] for trunk in trunks)
    training.seconds = max(trunk.numbers["seconds"] for trunk in trunks)
    return True
