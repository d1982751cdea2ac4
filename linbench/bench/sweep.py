"""`bench sweep`: a suite from the first command to the last result, and where the time of workers goes."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

from rich.console import Console

from linbench.bench.case import BenchmarkCase, PeerVersion
from linbench.common.hashing import digest
from linbench.engine.display import display_on
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice
from linbench.engine.in_process import InProcess
from linbench.engine.run import carry_out
from linbench.engine.spending import Spending
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.store import SWEEP, Store

VERSION = 1
"""Version of the measurement of suites, part of the identity of every result.

Raise it with every change that alters what is measured.
"""


class Places(NamedTuple):
    """The workers and devices of an executor.

    Args:
        workers: groups that train side by side, each in a process of its own; 0 for this process.
        devices: GPUs, or groups side by side on CPUs.
    """

    workers: int
    devices: int


@dataclass(frozen=True)
class SweepCase(BenchmarkCase):
    """A suite on an executor.

    Args:
        name: the suite as the user named it.
        cells: what is to be reported, in the suite's order.
        search: how each model's learning rate is searched first; None keeps the cells' own.
        stack: cells that train together, at most; None for as many as suit the device.
    """

    kind: ClassVar[str] = SWEEP
    in_caller: ClassVar[bool] = True

    name: str
    cells: tuple[Cell, ...]
    search: SearchSettings | None
    executor: ExecutorChoice
    places: Places
    stack: int | None
    device: str
    peer: PeerVersion | None = None

    @property
    def label(self) -> str:
        """The suite as the user named it."""
        return self.name

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The suite by its cells and its search, and where it is run."""
        search = None if self.search is None else self.search.model_dump(mode="json")
        return {
            "version": VERSION,
            "suite": self.name,
            "cells": digest({"cells": [cell.id for cell in self.cells], "search": search}),
            "executor": self.executor.name,
            **self.places._asdict(),
            "stack": self.stack,
        }

    def __str__(self) -> str:
        return f"{self.name}, {len(self.cells)} cells"


def plan(
    name: str,
    cells: Sequence[Cell],
    *,
    search: SearchSettings | None = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    stack: int | None = None,
) -> SweepCase:
    """Return the case of a suite with at least one cell.

    Raises UserError: options of the executor that do not go together, or resources that are not there.
    """
    return SweepCase(name, tuple(cells), search, executor, _places(executor), stack, cells[0].device)


def _places(executor: ExecutorChoice) -> Places:
    with executor.open() as opened:
        if isinstance(opened, InProcess):
            return Places(0, 1)
        # a Ray cluster is handed one group more than it has room for
        return Places(min(opened.places, opened.devices * opened.sharing), opened.devices)


def precompile(case: SweepCase) -> None:
    """Do nothing: compilation is part of what is measured."""


def measure(case: SweepCase) -> dict[str, Any]:
    """Run a suite into a folder of its own, where nothing is finished.

    Returns:
        `spent`: wall-clock seconds, the cells that were run, with those of searches and all rungs, how many
        of them failed, tokens trained on, and the seconds of workers by part.

    Raises whatever ends the run.
    """
    # a plugin may print; standard output is for the result
    with TemporaryDirectory(prefix="linbench-sweep-") as folder, redirect_stdout(sys.stderr):
        spending = Spending(display_on(Console(stderr=True)))
        carry_out(
            case.cells,
            Store(Path(folder)),
            spending,
            search=case.search,
            executor=case.executor,
            stack=case.stack,
        )
        seconds = spending.seconds
    return {
        "spent": {
            "seconds": seconds,
            "cells": spending.cells,
            "failed": spending.failed,
            "tokens": spending.tokens,
            "parts": spending.parts,
        }
    }
