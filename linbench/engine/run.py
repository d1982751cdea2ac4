"""The one way from cells to results.

`linbench run`, `sweep`, `compare`, `claims` and the Python function `linbench.run` all call `carry_out`.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice
from linbench.engine.jobs import plugin_sources
from linbench.engine.ladder import run_ladders
from linbench.engine.lr_search import run_searched
from linbench.engine.progress import Progress
from linbench.engine.surroundings import find_torch_change
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store


def carry_out(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    search: SearchSettings | None = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    here: bool = False,
    **how: Any,
) -> list[CellResult]:
    """Run the cells that have no stored result, and return the results of all, in order.

    Args:
        search: how each model's learning rate is searched first; None keeps the cells' own.
        executor: where cells are trained.
        here: train in this process if the executor is the local one without options. Tasks and layers that
            are not shipped, and all cells if torch was changed in this process, still get a worker process.
        how: passed on to `linbench.engine.runner.run_cells`.

    Raises UserError: options of the executor that do not go together; HopelessError: no learning rate of a
    model can be chosen; StorageError: results cannot be kept.
    """
    run = partial(run_searched, settings=search) if search else run_ladders
    choice = _in_this_process(cells, executor) if here else executor
    with choice.open() as opened:
        return run(cells, store, progress, executor=opened, **how)


def _in_this_process(cells: Iterable[Cell], choice: ExecutorChoice) -> ExecutorChoice:
    """Return the default executor with no worker, or one for code that may end or change this process."""
    if choice.name != DEFAULT_EXECUTOR.name or choice.options:
        return choice
    safe = find_torch_change() is None and not any(plugin_sources(cell) for cell in cells)
    return choice._replace(options={"workers": 0 if safe else 1})
