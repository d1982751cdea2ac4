"""What verbs that run many cells share."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linbench.cell import Cell
    from linbench.search import SearchSettings
    from linbench.store import Result, Store


def carry_out(
    cells: "Sequence[Cell]", store: "Store", *, search: "SearchSettings | None", stack: int | None, retry: bool = False, allow: Iterable[str] = (), **where: Any
) -> "list[Result]":
    """The results of cells, with a display on standard error while what is missing is run; `where`: as `linbench.executor.executor` takes it.
    `allow`: laws that layers may break.

    Raises UserError: options that do not go together, or a layer that breaks a law; HopelessError: no learning rate of a model can be
    chosen; StorageError: results cannot be kept.
    """
    from rich.console import Console

    from linbench.executor import executor
    from linbench.progress import Live, Plain
    from linbench.runner import run_cells
    from linbench.search import run_searched

    stderr = Console(stderr=True)
    run = partial(run_searched, settings=search) if search else run_cells
    with executor(**where) as who:
        return run(cells, store, Live(stderr) if stderr.is_terminal else Plain(stderr), executor=who, retry=retry, stack=stack, allow=allow)
