"""A program that kills sweeps, or launches many at once. It forks them, so that each has everything loaded.

`python -m tests.helpers.kills FOLDER WHAT COUNT SEED` prints a JSON object with what it saw; WHAT is kills,
ladders or launchers.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from linbench.engine import jobs
from linbench.engine.checkpoint import Checkpoints
from linbench.engine.ladder import run_ladders
from linbench.engine.progress import NoProgress
from linbench.engine.trunk import SUFFIX
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.cells import build_cells, tiny_settings

CELLS = 20
TINY = tiny_settings(15)
LADDER = TINY | {"protocol.schedule": "wsd", "protocol.rungs": 3, "protocol.lr": 0.01}


class Writing(NoProgress):
    """A listener that writes a line to a file for every cell that was run. Lines are whole, however many
    processes write."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        if not stored:
            os.write(self.file, f"{cell.id}\n".encode())


def forked(cells: Sequence[Cell], folder: Path) -> int:
    """Fork a process that runs the cells, each as far as its ladder goes, and return its id."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            run_ladders(cells, Store(folder / "results"), Writing(folder / "run"), stack=3)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def kills(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill a sweep `count` times, each after a fiftieth to a fifth of the time that it takes on this machine.

    It begins in a new folder whenever it has finished.
    """
    return soak(folder, count, seed, sweep)


def ladders(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill a sweep of ladders in the same way."""
    return soak(folder, count, seed, sweep_of_ladders)


def soak(folder: Path, count: int, seed: int, cells_of: Callable[[], list[Cell]]) -> dict[str, int]:
    """Kill a sweep of some cells again and again, and return what was seen."""
    names = ("kills", "through", "failed", "corrupt", "lost", "rerun", "other", "left")
    generator, seen = random.Random(seed), dict.fromkeys(names, 0)
    (folder / "whole").mkdir()
    begun = time.monotonic()
    seen["failed"] += os.waitpid(forked(cells_of(), folder / "whole"), 0)[1] != 0
    whole = time.monotonic() - begun
    expected = measurements(folder / "whole")
    while seen["kills"] < count:
        here = folder / str(seen["through"])
        here.mkdir()
        cells, finished, killed = cells_of(), dict[str, Any](), True
        while killed:
            process = forked(cells, here)
            killed = seen["kills"] < count
            if killed:
                time.sleep(generator.uniform(0.02, 0.2) * whole)
                os.kill(process, signal.SIGKILL)
            ended = os.waitpid(process, 0)[1]
            killed = os.WIFSIGNALED(ended)
            seen["kills"] += killed
            seen["failed"] += not killed and ended != 0
            now = measurements(here)
            seen["corrupt"] += sum(value is None for value in now.values())
            seen["lost"] += len(finished.keys() - now.keys())
            seen["rerun"] += sum(now[name] != before for name, before in finished.items() if name in now)
            finished = now
        run = (here / "run").read_text().split()
        seen["rerun"] += len(run) - len(set(run))
        seen["other"] += finished.keys() != expected.keys()
        seen["left"] += len([*here.rglob(f"*{SUFFIX}"), *here.rglob("*.checkpoint")])
        seen["through"] += 1
    return seen


def measurements(folder: Path) -> dict[str, Any]:
    """Return what was measured of each cell and when, which the end of a ladder leaves as it is; None for a
    file that cannot be read."""
    store = Store(folder / "results")
    found = {path.stem: store.get(path.stem) for path in (folder / "results").glob("*.json")}
    return {
        name: result and (result["curve"], result["metrics"], result["seconds"])
        for name, result in found.items()
    }


def launchers(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Run `count` launchers at once on one folder."""
    cells = sweep()
    processes = [forked(random.Random(seed + i).sample(cells, len(cells)), folder) for i in range(count)]
    codes = [os.waitpid(process, 0)[1] for process in processes]
    run = (folder / "run").read_text().split()
    return {
        "failed": sum(code != 0 for code in codes),
        "results": len(Store(folder / "results").all()),
        "run": len(run),
        "twice": len(run) - len(set(run)),
    }


def sweep() -> list[Cell]:
    return build_cells("deltanet", "linear_attention", seeds=range(CELLS // 2), settings=TINY)


def sweep_of_ladders() -> list[Cell]:
    return build_cells("deltanet", "linear_attention", seeds=range(4), settings=LADDER)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked process has none of its parent's
    jobs.Checkpoints = lambda folder: Checkpoints(folder, seconds=0.0)  # type: ignore[assignment,misc]
    what = {"kills": kills, "ladders": ladders, "launchers": launchers}[sys.argv[2]]
    print(json.dumps(what(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))))
