"""Progress of a run on a terminal, or line by line."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from linbench.common import escape
from linbench.engine.progress import Report
from linbench.experiments.cell import Cell
from linbench.experiments.labels import Names, named, varied
from linbench.results.record import Result


def outcome(result: Result) -> str:
    """A result in a few words."""
    if result["status"] != "ok":
        return f"{result['status']}: {result['reason']}"
    marks = f" [{', '.join(result['marks'])}]" if result["marks"] else ""
    return f"accuracy {result['metrics']['accuracy']:.4f}{marks}"


def took(result: Result) -> str:
    """How long, and with how many others; why with no more, if there was a reason."""
    size, note = result["stack"]["size"], result["stack"]["note"]
    together = f" for {size} together" if size > 1 else ""
    return f"{result['seconds']:.0f} s{together}{f'; {note}' if note else ''}"


class Plain:
    """One line per finished cell."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.count = 0
        self.cells: list[Cell] = []
        self.names = Names(frozenset(), ())

    def begin(self, cells: Sequence[Cell]) -> None:
        """Says how much there is to do, with what was before."""
        self.cells += cells
        self.names = varied(self.cells)

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Too much for a log."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """`3/12 mqar quick deltanet seed 2: accuracy 0.9981, 41 s`."""
        self.count += 1
        when = "finished earlier" if stored else took(result)
        line = f"{self.count}/{len(self.cells)} {named([cell], self.names)}: {outcome(result)}, {when}"
        self.console.print(escape.one_line(line), markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Nothing more to say."""


class Live:
    """A bar for every group that runs, with its loss, accuracy, speed and time left, and one for all cells;
    finished cells scroll up above them."""

    def __init__(self, console: Console) -> None:
        self.plain = Plain(console)
        self.bars = Progress(
            TextColumn("{task.description}", style="bold", markup=False),  # a label may hold brackets
            BarColumn(bar_width=None),
            TextColumn("{task.fields[numbers]}", justify="right", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self.all: TaskID | None = None
        self.running: dict[frozenset[str], TaskID] = {}
        """By the ids of a group's cells."""
        self.over: set[str] = set()
        self.shares: dict[str, float] = {}
        """Of its steps, the most that each cell has had."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Starts the display, or counts more cells in: how many a search leads to is not known before it is
        over."""
        self.plain.begin(cells)
        known = self.plain.cells
        if self.all is None and len(known) > 1:
            searched = any(cell.purpose == "tuning" for cell in known)
            self.all = self.bars.add_task("all cells so far" if searched else "all cells", numbers="")
        if self.all is not None:
            self.bars.update(self.all, total=float(len(known)))
        self.bars.start()

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Moves the bars."""
        group = frozenset(cell.id for cell in cells)
        if group not in self.running:
            # broken off: these are its cells, in another group
            self._drop([other for other in self.running if other & group])
            self.running[group] = self.bars.add_task(
                escape.one_line(named(cells, self.plain.names)), total=report.steps, numbers=""
            )
        accuracy = "accuracy –" if report.accuracy is None else f"accuracy {report.accuracy:.3f}"
        numbers = (
            f"step {report.step}/{report.steps}  loss {report.loss:.3f}  {accuracy} "
            f" {report.tokens_per_second:,.0f} tokens/s"
        )
        self.bars.update(self.running[group], completed=report.step, numbers=numbers)
        self._count(cells, report.step / report.steps)

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """The cell's line joins those above; the bar of its group goes with the last of them."""
        self.over.add(cell.id)
        self._drop([group for group in self.running if group <= self.over])
        self.plain.finished(cell, result, stored=stored)
        self._count([cell], 1.0)

    def end(self) -> None:
        """Gives the terminal back."""
        self.bars.stop()

    def _count(self, cells: Sequence[Cell], share: float) -> None:
        """What was done once stays done: a group that must begin anew does not set the total back."""
        self.shares |= {cell.id: max(share, self.shares.get(cell.id, 0.0)) for cell in cells}
        if self.all is not None:
            self.bars.update(self.all, completed=sum(self.shares.values()))

    def _drop(self, groups: Sequence[frozenset[str]]) -> None:
        for group in groups:
            self.bars.remove_task(self.running.pop(group))
