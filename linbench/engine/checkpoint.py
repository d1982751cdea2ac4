"""Checkpoints: a group in the middle of its training, kept so that it goes on where it was broken off."""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from typing_extensions import TypedDict

from linbench.common.files import MOST_BYTES, open_regular, storage_sentence, write_whole
from linbench.common.hashing import canonical, digest
from linbench.common.memory import total_memory
from linbench.common.reading import read_json
from linbench.engine.step import Run, Training
from linbench.experiments import generators
from linbench.experiments.cell import Cell
from linbench.results.schema.cells import Point
from linbench.results.schema.fields import Count, NotNegative

SECONDS = 60.0
"""Seconds between two checkpoints of a group: at most this much work is lost by a kill."""

_NUMBERS = ("step", "trained", "seconds", "note")
"""Attributes of a training that are kept, besides tensors and runs. Stored files have these names."""

SHARED = "steps"
"""The name of the tensor that all replicas of a training share."""


class Checkpoints:
    """A folder with a file for every group that is not finished, named by its composition."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self.folder, self.seconds = folder, seconds
        self.last = time.monotonic()

    def save_if_due(self, training: Training, group: str) -> None:
        """Keep a group if the last time was long enough ago. Raises StorageError: it cannot be kept.

        Args:
            training: the group's state.
            group: the group's name, as `composition` gives it.
        """
        if time.monotonic() - self.last < self.seconds:
            return
        tensors, numbers = snapshot(training)
        tensors |= _random_states(training.runs[0].cell.device)
        write_checkpoint(self._path(group), tensors, numbers)
        self.last = time.monotonic()

    def delete(self, group: str) -> None:
        """Delete the checkpoint of a group that is finished, if there is one."""
        with storage_sentence(self.folder, "cannot remove a checkpoint from"):
            if not self._path(group).is_dir():  # a folder of this name is not linbench's
                self._path(group).unlink(missing_ok=True)

    def resumable(
        self, cells: Sequence[Cell], missing: Mapping[str, Cell], done: Set[str]
    ) -> list[tuple[str, list[Cell]]]:
        """Return the names of groups that can go on from a checkpoint, with their cells.

        All cells of such a group are among `cells`, those that are not over are `missing`, and no two groups
        share one of these. Checkpoints that cannot go on, as one of these has a result, are deleted.

        Args:
            cells: the cells that may go on.
            missing: those of them, by id, that have no result.
            done: ids of cells that have one.
        """
        known = {cell.id: cell for cell in cells}
        groups: list[tuple[str, list[Cell]]] = []
        claimed: set[str] = set()
        for path in sorted(self.folder.glob("*.checkpoint")) if self.folder.is_dir() else []:
            checkpoint = Checkpoint.read(path, among=known.keys())
            if checkpoint is None:
                continue
            unfinished = checkpoint.unfinished
            if not unfinished or unfinished & done:
                self.delete(path.stem)
            elif unfinished <= missing.keys() and not unfinished & claimed:
                claimed |= unfinished
                groups.append((path.stem, [known[cell] for cell in checkpoint.cells]))
        return groups

    def read(self, group: str, cells: Sequence[str]) -> "Checkpoint | None":
        """Return the checkpoint of a group if there is one and it is of these cells."""
        checkpoint = Checkpoint.read(self._path(group))
        return checkpoint if checkpoint is not None and checkpoint.cells == cells else None

    def _path(self, group: str) -> Path:
        return self.folder / f"{group}.checkpoint"


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write the state of a training to a file, whole or not at all; make its folder if there is none.

    Raises StorageError: it cannot be written.
    """
    content = save(dict(tensors))
    head = {**numbers, "tensors": hashlib.sha256(content).hexdigest()}
    line = canonical({**head, "checksum": digest(head)}).encode()
    with storage_sentence(path.parent, "cannot keep checkpoints in"):
        path.parent.mkdir(exist_ok=True)
        _move_folder_away(path)
        write_whole(path, line + b"\n" + content)


class Checkpoint:
    """The kept state of a group."""

    def __init__(self, numbers: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.numbers, self.tensors = numbers, tensors

    @classmethod
    def read(cls, path: Path, *, among: Set[str] | None = None) -> "Checkpoint | None":
        """Return the checkpoint in a file; None if it is torn, altered or gone, or may not be read.

        Args:
            path: the file.
            among: ids of cells; None is returned if the checkpoint has another.
        """
        try:
            with open_regular(path, total_memory() // 2) as file:  # a writer has it in memory twice
                numbers = read_json(file.readline(MOST_BYTES))
                if numbers.pop("checksum") != digest(numbers):
                    return None
                _HEAD.validate_python(numbers, strict=True)
                if len(numbers["cells"]) != len(numbers["runs"]):
                    return None
                if among is not None and not set(numbers["cells"]) <= among:
                    return None
                content = file.read()
            if numbers["tensors"] != hashlib.sha256(content).hexdigest():
                return None
            return cls(numbers, load(content))
        except OSError:  # such as when another launcher has finished its group
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
            return None

    @property
    def cells(self) -> list[str]:
        """The ids of the cells, in the order of the stack."""
        cells: list[str] = self.numbers["cells"]
        return cells

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs of the cells, as dictionaries of the fields of `Run`."""
        runs: list[dict[str, Any]] = self.numbers["runs"]
        return runs

    @property
    def unfinished(self) -> set[str]:
        """The ids of cells whose runs are not over."""
        pairs = zip(self.cells, self.runs, strict=True)
        return {cell for cell, run in pairs if run["diverged"] is None and not run["stopped"]}

    def fits(self, training: Training) -> bool:
        """Return whether the checkpoint has every tensor of a training, in its shape and dtype."""
        needed = {**tensors_of(training), "random state": torch.get_rng_state()}
        return all(
            name in self.tensors
            and self.tensors[name].shape == x.shape
            and self.tensors[name].dtype == x.dtype
            for name, x in needed.items()
        )

    def restore(self, training: Training) -> None:
        """Set a training, before its first step, to the state of the checkpoint, which must fit."""
        for name, x in tensors_of(training).items():
            x.detach().copy_(self.tensors[name])
        training.runs = [
            Run(run.cell, **stored) for run, stored in zip(training.runs, self.runs, strict=True)
        ]
        for name in _NUMBERS:
            setattr(training, name, self.numbers[name])
        torch.set_rng_state(self.tensors["random state"])
        _set_other_generators(self.tensors)
        if "random state of the device" in self.tensors:
            torch.cuda.set_rng_state(self.tensors["random state of the device"], training.runs[0].cell.device)


class _StoredRun(TypedDict):
    """A kept `Run`, without its cell."""

    curve: list[Point]
    diverged: str | None
    stopped: bool
    loss: float
    losses: int


class _Head(TypedDict):
    """The first line of a checkpoint's file."""

    step: Count
    trained: Count
    seconds: NotNegative
    note: str | None
    cells: list[str]
    runs: list[_StoredRun]
    tensors: str


_HEAD = TypeAdapter(_Head)


def composition(cells: Sequence[Cell]) -> str:
    """Return the name of a group: a digest of its cells in their order."""
    return digest([cell.id for cell in cells])


def snapshot(training: Training, replicas: slice = slice(None)) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of some replicas of a training, copied, and all else that is kept of these.

    The states of generators are not among them.
    """
    tensors = {
        name: (x if name == SHARED else x[replicas]).detach().cpu().contiguous().clone()
        for name, x in tensors_of(training).items()
    }
    runs = training.runs[replicas]
    numbers = {name: getattr(training, name) for name in _NUMBERS}
    numbers["cells"] = [run.cell.id for run in runs]
    numbers["runs"] = [_run_fields(run) for run in runs]
    return tensors, numbers


def _run_fields(run: Run) -> dict[str, Any]:
    """Return the fields of a run that are kept, which are all but its cell."""
    stored = {field.name: getattr(run, field.name) for field in fields(Run) if field.name != "cell"}
    # JSON has no infinity; the loss of a diverged run is not used any more
    return stored | {"loss": run.loss if math.isfinite(run.loss) else 0.0}


def tensors_of(training: Training) -> dict[str, Tensor]:
    """Return all tensors that training changes, by name: each [R, ...] but the `SHARED` one."""
    optimiser, stack = training.optimiser, training.stack
    tensors = {f"weight {name}": x for name, x in stack.parameters.items()}
    tensors |= {f"buffer {name}": x for name, x in stack.buffers.items()}
    for flat, moments in zip(stack.flats, optimiser.moments, strict=True):
        for kind, values in moments._asdict().items():
            tensors |= {f"{kind} {name}": x for name, x in flat.views(values).items()}
    return tensors | {SHARED: optimiser.steps}


def _random_states(device: str) -> dict[str, Tensor]:
    """Return the states of all generators that a layer may draw from when it trains on a device."""
    python, numpy, _ = generators.states()
    version, words, spare = python
    place = [numpy["state"]["pos"], numpy["has_gauss"]]
    states = {
        "random state": torch.get_rng_state(),
        "random state of Python": torch.tensor([version, *words], dtype=torch.int64),
        "spare of Python": torch.tensor([] if spare is None else [spare], dtype=torch.float64),
        "random state of numpy": torch.tensor([*numpy["state"]["key"].tolist(), *place], dtype=torch.int64),
        "spare of numpy": torch.tensor([numpy["gauss"]], dtype=torch.float64),
    }
    if device != "cpu":
        states["random state of the device"] = torch.cuda.get_rng_state(device)
    return states


def _set_other_generators(tensors: Mapping[str, Tensor]) -> None:
    """Set the generators of Python and numpy, if their states are there."""
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


def _move_folder_away(path: Path) -> None:
    """Rename a folder that has the name of a checkpoint. Raises OSError: it cannot be renamed."""
    if path.is_dir() and not path.is_symlink():
        number = sum(1 for _ in path.parent.glob(f"{path.name}.unreadable*"))
        path.rename(path.with_name(f"{path.name}.unreadable-{number}"))
