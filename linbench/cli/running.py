"""What verbs that run many cells share."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linbench.engine.executors import ExecutorChoice
    from linbench.experiments.cell import Cell
    from linbench.experiments.learning_rates import SearchSettings
    from linbench.results.record import Result
    from linbench.results.store import Store


def carry_out(
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
) -> "list[Result]":
    """The results of cells, with a display on standard error while what is missing is run; `executor`
    and `here`: as `linbench.engine.run.carry_out` takes them.
    `allow`: laws that layers may break.

    Raises: as that does.
    """
    from rich.console import Console

    from linbench.engine import run as running
    from linbench.engine.display import Live, Plain

    stderr = Console(stderr=True)
    progress = Live(stderr) if stderr.is_terminal else Plain(stderr)
    how = {"stack": stack, "retry": retry, "again": again, "allow": allow}
    return running.carry_out(cells, store, progress, search=search, executor=executor, here=here, **how)
