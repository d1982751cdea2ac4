"""A long group in the middle of its training, kept so that it goes on where it was broken off."""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from linbench.cell import Cell, canonical, digest
from linbench.common.files import write_whole
from linbench.store import storage_sentence
from linbench.train import Run, Training

SECONDS = 60.0
"""Between two checkpoints of a group: what a kill may cost."""

_NUMBERS = ("step", "trained", "seconds", "note")
"""Of a training, beside tensors and runs."""


class Checkpoints:
    """A folder with a file for every group that is not finished, named by its composition."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self.folder, self.seconds = folder, seconds
        self.last = time.monotonic()

    def rest(self, training: Training, group: str) -> None:
        """Keep the group if the last time was long enough ago. Raises StorageError."""
        if time.monotonic() - self.last < self.seconds:
            return
        tensors, numbers = _taken_down(training)
        content = save(tensors)
        numbers["tensors"] = hashlib.sha256(content).hexdigest()
        head = canonical({**numbers, "checksum": digest(numbers)}).encode()
        with storage_sentence(self.folder, "cannot keep checkpoints in"):
            self.folder.mkdir(exist_ok=True)
            write_whole(self._path(group), head + b"\n" + content)
        self.last = time.monotonic()

    def forget(self, group: str) -> None:
        """The group is finished."""
        with storage_sentence(self.folder, "cannot remove a checkpoint from"):
            self._path(group).unlink(missing_ok=True)

    def of(self, cells: Sequence[Cell], missing: Mapping[str, Cell], done: Set[str]) -> list[tuple[str, list[Cell]]]:
        """Names of groups, with their cells, that can go on: all cells are known, and those that are not over are `missing`. None shares
        one of these. A group whose cells were all `done` otherwise, in another composition, is forgotten."""
        known = {cell.id: cell for cell in cells}
        found: list[tuple[str, list[Cell]]] = []
        taken: set[str] = set()
        for path in sorted(self.folder.glob("*.checkpoint")) if self.folder.is_dir() else []:
            checkpoint = Checkpoint.read(path, among=known.keys())
            if checkpoint is None:
                continue
            going = {cell for cell, run in zip(checkpoint.cells, checkpoint.runs, strict=True) if run["diverged"] is None and not run["stopped"]}
            if going <= done:
                self.forget(path.stem)
            elif going <= missing.keys() and not going & taken:
                taken |= going
                found.append((path.stem, [known[cell] for cell in checkpoint.cells]))
        return found

    def read(self, group: str, cells: Sequence[str]) -> "Checkpoint | None":
        """Where the group was broken off, if that is known and these are its cells."""
        checkpoint = Checkpoint.read(self._path(group))
        return checkpoint if checkpoint is not None and checkpoint.cells == cells else None

    def _path(self, group: str) -> Path:
        return self.folder / f"{group}.checkpoint"


class Checkpoint:
    """What was kept of a group."""

    def __init__(self, numbers: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.numbers, self.tensors = numbers, tensors

    @classmethod
    def read(cls, path: Path, *, among: Set[str] | None = None) -> "Checkpoint | None":
        """None for a file that is torn or altered or has just gone, and for one with a cell that is not `among` those."""
        try:
            with path.open("rb") as file:
                numbers = json.loads(file.readline())
                if numbers.pop("checksum") != digest(numbers) or (among is not None and not set(numbers["cells"]) <= among):
                    return None
                content = file.read()
            return cls(numbers, load(content)) if numbers["tensors"] == hashlib.sha256(content).hexdigest() else None
        except FileNotFoundError:  # its group was finished by another launcher
            return None
        except (ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            return None

    @property
    def cells(self) -> list[str]:
        """Ids, in the order of the stack."""
        cells: list[str] = self.numbers["cells"]
        return cells

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What had become of each."""
        runs: list[dict[str, Any]] = self.numbers["runs"]
        return runs

    def restore(self, training: Training) -> None:
        """Bring a training that has just begun to where this one was."""
        for name, x in _tensors(training).items():
            x.detach().copy_(self.tensors[name])
        training.runs = [Run(run.cell, **kept) for run, kept in zip(training.runs, self.runs, strict=True)]
        for name in _NUMBERS:
            setattr(training, name, self.numbers.get(name))  # older checkpoints have no note
        torch.set_rng_state(self.tensors["random state"])
        if "random state of the device" in self.tensors:
            torch.cuda.set_rng_state(self.tensors["random state of the device"], training.runs[0].cell.device)


def composition(cells: Sequence[Cell]) -> str:
    """A name for a group: these cells, in this order."""
    return digest([cell.id for cell in cells])


def _taken_down(training: Training) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in _tensors(training).items()}
    tensors["random state"] = torch.get_rng_state()
    device = training.runs[0].cell.device
    if device != "cpu":
        tensors["random state of the device"] = torch.cuda.get_rng_state(device)
    kept = [field.name for field in fields(Run) if field.name != "cell"]
    runs = [{name: getattr(run, name) for name in kept} | {"loss": run.loss if math.isfinite(run.loss) else 0.0} for run in training.runs]
    return tensors, {name: getattr(training, name) for name in _NUMBERS} | {"cells": [run.cell.id for run in training.runs], "runs": runs}


def _tensors(training: Training) -> dict[str, Tensor]:
    """All that training changes, by name."""
    optimiser, stack = training.optimiser, training.stack
    found = {f"weights {i}": flat.weights for i, flat in enumerate(stack.flats)} | {f"buffer {name}": x for name, x in stack.buffers.items()}
    for i, (mean, square) in enumerate(optimiser.moments):
        found |= {f"mean {i}": mean, f"square {i}": square}
    return found | {"steps": optimiser.steps}
