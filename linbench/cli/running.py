"""Running cells with a progress display, for the verbs that run many of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linbench.common.errors import UserError
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize

if TYPE_CHECKING:
    from linbench.engine.executors import ExecutorChoice
    from linbench.experiments.cell import Cell
    from linbench.experiments.learning_rates import SearchSettings
    from linbench.results.schema.cells import CellResult
    from linbench.results.store import Store


def run_with_progress(
    cells: "Sequence[Cell]",
    store: "Store",
    *,
    search: "SearchSettings | None",
    stack: int | None,
    retry: bool = False,
    again: bool = False,
    allow: Iterable[str] = (),
    executor: "ExecutorChoice",
    here: bool = False,
    summarize: bool = False,
) -> "list[CellResult]":
    """Run the cells that are missing, show progress on standard error, and return the results of all.

    Args:
        cells: the cells whose results are wanted.
        store: where finished results are read from and new ones are kept.
        search: settings of the search for learning rates; None: the cells' own are used.
        stack: the largest number of cells trained as one program; None: chosen for the device.
        retry: run cells again that failed.
        again: run cells again that are finished.
        allow: laws that layers may break.
        here: train in this process where that is possible.
        executor: where groups of cells run, as `linbench.engine.run.carry_out` takes it.
        summarize: tell at the end how long the cells took that were run, and how many tokens a second they
            trained on.

    Raises UserError: as `linbench.engine.run.carry_out` does.
    """
    from rich.console import Console

    from linbench.engine import run as running
    from linbench.engine.display import display_on
    from linbench.engine.spending import Spending

    progress = Spending(display_on(Console(stderr=True)))
    how = {"stack": stack, "retry": retry, "again": again, "allow": allow}
    results = running.carry_out(cells, store, progress, search=search, executor=executor, here=here, **how)
    if summarize and progress.cells:
        duration = format_duration(progress.seconds)
        rate = f"{progress.tokens / progress.seconds:,.0f} tokens/s"
        tell(f"linbench: trained {pluralize(progress.cells, 'cell')} in {duration}, {rate}.")
    return results


def export_with_progress(
    cells: "Sequence[Cell]", store: "Store", folder: Path, *, search: bool
) -> "CellResult":
    """Train a single cell with a progress display, export its model, and store and return its result.

    Args:
        cells: the cells of the run.
        store: where the result is kept.
        folder: where the model is written.
        search: whether learning rates were to be searched for.

    Raises UserError: there is more than one cell or a search, or the model cannot be exported.
    """
    from rich.console import Console

    from linbench.engine.display import display_on
    from linbench.engine.pretrained.export import refuse_export, train_and_export

    if len(cells) > 1 or search:
        asked = "a search" if search else f"{len(cells)} cells"
        raise UserError(f"--export writes one model, of one seed and a given learning rate, not {asked}.")
    refuse_export(cells[0], folder)
    store.may_add()
    store.prepare()
    result = train_and_export(cells[0], folder, display_on(Console(stderr=True)))
    store.put(result)
    if result["status"] == "ok":
        tell(f"exported {folder}")
    return result
