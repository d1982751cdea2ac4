"""A program that kills sweeps, or launches many at once. It forks them, so that each has everything loaded.

`python -m tests.helpers.kills FOLDER kills|launchers COUNT SEED` prints a JSON object with what it saw.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from linbench.engine import jobs
from linbench.engine.checkpoint import Checkpoints
from linbench.engine.progress import NoProgress
from linbench.engine.runner import run_cells
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.cells import build_cells, tiny_settings

CELLS = 20
TINY = tiny_settings(15)


class Writing(NoProgress):
    """A listener that writes a line to a file for every cell that was run. Lines are whole, however many
    processes write."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        if not stored:
            os.write(self.file, f"{cell.id}\n".encode())


def forked(cells: Sequence[Cell], folder: Path) -> int:
    """Fork a process that runs the cells, and return its id."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            run_cells(cells, Store(folder / "results"), Writing(folder / "run"), stack=3)
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
    generator, seen = random.Random(seed), {"kills": 0, "through": 0, "corrupt": 0, "lost": 0, "rerun": 0}
    (folder / "whole").mkdir()
    begun = time.monotonic()
    os.waitpid(forked(sweep(), folder / "whole"), 0)
    whole = time.monotonic() - begun
    while seen["kills"] < count:
        here = folder / str(seen["through"])
        here.mkdir()
        cells, finished = sweep(), dict[str, tuple[int, int]]()
        while len(finished) < CELLS:
            process = forked(cells, here)
            if seen["kills"] < count:
                time.sleep(generator.uniform(0.02, 0.2) * whole)
                os.kill(process, signal.SIGKILL)
                seen["kills"] += 1
            os.waitpid(process, 0)
            store = Store(here / "results")
            now = {
                path.stem: (path.stat().st_ino, path.stat().st_mtime_ns)
                for path in (here / "results").glob("*.json")
            }
            seen["corrupt"] += sum(store.get(name) is None for name in now)
            seen["lost"] += len(finished.keys() - now.keys())
            seen["rerun"] += sum(now[name] != before for name, before in finished.items() if name in now)
            finished = now
        run = (here / "run").read_text().split()
        seen["rerun"] += len(run) - len(set(run))
        seen["through"] += 1
    return seen


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


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked process has none of its parent's
    jobs.Checkpoints = lambda folder: Checkpoints(folder, seconds=0.0)  # type: ignore[assignment,misc]
    what = {"kills": kills, "launchers": launchers}[sys.argv[2]]
    print(json.dumps(what(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))))
