"""The one road from cells to results: `linbench run`, `sweep`, `compare`, `claims` and `linbench.run` take
it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from linbench.engine.executors import executor
from linbench.engine.jobs import brought
from linbench.engine.lr_search import run_searched
from linbench.engine.progress import Progress
from linbench.engine.runner import run_cells
from linbench.engine.surroundings import tampered
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.record import Result
from linbench.results.store import Store


def carry_out(
    cells: Sequence[Cell],
    store: Store,
    progress: Progress,
    *,
    search: SearchSettings | None = None,
    here: bool = False,
    where: Mapping[str, Any],
    **how: Any,
) -> list[Result]:
    """Return the results of cells, of which those that are missing are run.

    Args:
        here: train in this process unless `where` asks for something else, or something not shipped is among
            the cells, or torch is not as it was made.
        where: as `linbench.engine.executors.executor` takes it.
        how: as `linbench.engine.runner.run_cells` takes it.

    Raises UserError: options that do not go together; HopelessError: no learning rate of a model can be
    chosen; StorageError: results cannot be kept.
    """
    run = partial(run_searched, settings=search) if search else run_cells
    with executor(**(_here(cells, where) if here else where)) as who:
        return run(cells, store, progress, executor=who, **how)


def _here(cells: Sequence[Cell], where: Mapping[str, Any]) -> dict[str, Any]:
    """What other people wrote may end the process that it runs in, or change what else is computed there."""
    if where.get("name", "local") != "local" or any(
        where.get(option) is not None for option in ("devices", "workers", "address", "gpus")
    ):
        return dict(where)
    clean = not any(map(brought, cells)) and tampered() is None
    return {**where, "workers": 0 if clean else 1}
