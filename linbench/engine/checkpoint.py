"""A long group in the middle of its training, kept so that it goes on where it was broken off."""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from typing_extensions import TypedDict

from linbench.common.files import MOST_BYTES, opened, storage_sentence, write_whole
from linbench.common.hashing import canonical, digest
from linbench.common.memory import total_memory
from linbench.common.reading import read_json
from linbench.engine.step import Run, Training
from linbench.experiments import generators
from linbench.experiments.cell import Cell
from linbench.results.schema.cells import Point
from linbench.results.schema.fields import Count, NotNegative

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
            _clear(self._path(group))
            write_whole(self._path(group), head + b"\n" + content)
        self.last = time.monotonic()

    def forget(self, group: str) -> None:
        """The group is finished."""
        with storage_sentence(self.folder, "cannot remove a checkpoint from"):
            if not self._path(group).is_dir():  # a folder of that name is not ours
                self._path(group).unlink(missing_ok=True)

    def of(
        self, cells: Sequence[Cell], missing: Mapping[str, Cell], done: Set[str]
    ) -> list[tuple[str, list[Cell]]]:
        """Names of groups, with their cells, that can go on: all cells are known, and those that are not over
        are `missing`. None shares one of these. A group whose cells were all `done` otherwise, in another
        composition, is forgotten."""
        known = {cell.id: cell for cell in cells}
        found: list[tuple[str, list[Cell]]] = []
        taken: set[str] = set()
        for path in sorted(self.folder.glob("*.checkpoint")) if self.folder.is_dir() else []:
            checkpoint = Checkpoint.read(path, among=known.keys())
            if checkpoint is None:
                continue
            going = {
                cell
                for cell, run in zip(checkpoint.cells, checkpoint.runs, strict=True)
                if run["diverged"] is None and not run["stopped"]
            }
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
        """Return what a file has kept. None: it is torn, altered or gone, may not be read, or has a cell that
        is not `among` those."""
        try:
            with opened(path, total_memory() // 2) as file:  # a writer has it in memory twice
                numbers = read_json(file.readline(MOST_BYTES))
                if numbers.pop("checksum") != digest(numbers):
                    return None
                _KEPT.validate_python(numbers, strict=True)
                if len(numbers["cells"]) != len(numbers["runs"]) or (
                    among is not None and not set(numbers["cells"]) <= among
                ):
                    return None
                content = file.read()
            return (
                cls(numbers, load(content))
                if numbers["tensors"] == hashlib.sha256(content).hexdigest()
                else None
            )
        except OSError:  # as when its group was finished by another launcher
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
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

    def fits(self, training: Training) -> bool:
        """Whether it has every tensor that a training which has just begun is brought on by, each in its
        shape and type."""
        needed = {**_tensors(training), "random state": torch.get_rng_state()}
        return all(
            name in self.tensors
            and self.tensors[name].shape == x.shape
            and self.tensors[name].dtype == x.dtype
            for name, x in needed.items()
        )

    def restore(self, training: Training) -> None:
        """Bring a training that has just begun to where this one was, if it `fits`."""
        for name, x in _tensors(training).items():
            x.detach().copy_(self.tensors[name])
        training.runs = [Run(run.cell, **kept) for run, kept in zip(training.runs, self.runs, strict=True)]
        for name in _NUMBERS:
            setattr(training, name, self.numbers.get(name))  # older checkpoints have no note
        torch.set_rng_state(self.tensors["random state"])
        _set_other_generators(self.tensors)
        if "random state of the device" in self.tensors:
            torch.cuda.set_rng_state(self.tensors["random state of the device"], training.runs[0].cell.device)


class _KeptRun(TypedDict):
    """A `Run` as it is kept, without its cell."""

    curve: list[Point]
    diverged: str | None
    stopped: bool
    loss: float
    losses: int


class _Kept(TypedDict):
    """The first line of a file."""

    step: Count
    trained: Count
    seconds: NotNegative
    note: NotRequired[str | None]  # older ones have none
    cells: list[str]
    runs: list[_KeptRun]
    tensors: str


_KEPT = TypeAdapter(_Kept)


def composition(cells: Sequence[Cell]) -> str:
    """A name for a group: these cells, in this order."""
    return digest([cell.id for cell in cells])


def _taken_down(training: Training) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in _tensors(training).items()}
    tensors["random state"] = torch.get_rng_state()
    tensors |= _other_generators()
    device = training.runs[0].cell.device
    if device != "cpu":
        tensors["random state of the device"] = torch.cuda.get_rng_state(device)
    kept = [field.name for field in fields(Run) if field.name != "cell"]
    runs = [
        {name: getattr(run, name) for name in kept} | {"loss": run.loss if math.isfinite(run.loss) else 0.0}
        for run in training.runs
    ]
    return tensors, {name: getattr(training, name) for name in _NUMBERS} | {
        "cells": [run.cell.id for run in training.runs],
        "runs": runs,
    }


def _tensors(training: Training) -> dict[str, Tensor]:
    """All that training changes, by name."""
    optimiser, stack = training.optimiser, training.stack
    found = {f"weights {i}": flat.weights for i, flat in enumerate(stack.flats)} | {
        f"buffer {name}": x for name, x in stack.buffers.items()
    }
    for i, (mean, square) in enumerate(optimiser.moments):
        found |= {f"mean {i}": mean, f"square {i}": square}
    return found | {"steps": optimiser.steps}


def _other_generators() -> dict[str, Tensor]:
    """The states of the generators of Python and numpy, which a layer may draw with."""
    python, numpy, _ = generators.states()
    version, words, spare = python
    place = [numpy["state"]["pos"], numpy["has_gauss"]]
    return {
        "random state of Python": torch.tensor([version, *words], dtype=torch.int64),
        "spare of Python": torch.tensor([] if spare is None else [spare], dtype=torch.float64),
        "random state of numpy": torch.tensor([*numpy["state"]["key"].tolist(), *place], dtype=torch.int64),
        "spare of numpy": torch.tensor([numpy["gauss"]], dtype=torch.float64),
    }


def _set_other_generators(tensors: Mapping[str, Tensor]) -> None:
    """Bring both where they were; older checkpoints do not say."""
    if "random state of Python" not in tensors:
        return
    version, *words = tensors["random state of Python"].tolist()
    *key, position, has_spare = tensors["random state of numpy"].tolist()
    inner = {"key": np.array(key, dtype=np.uint32), "pos": position}
    numpy = {
        "bit_generator": "MT19937",
        "state": inner,
        "has_gauss": has_spare,
        "gauss": tensors["spare of numpy"].item(),
    }
    spare = tensors["spare of Python"].tolist()
    present = generators.states()
    generators.set_states(
        present._replace(python=(version, tuple(words), spare[0] if spare else None), numpy=numpy)
    )


def _clear(path: Path) -> None:
    """Rename a folder that stands where a checkpoint is to be. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        number = sum(1 for _ in path.parent.glob(f"{path.name}.unreadable*"))
        path.rename(path.with_name(f"{path.name}.unreadable-{number}"))
