"""Displays of a run's progress: bars on a terminal, or lines."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from linbench.common import escape
from linbench.engine.progress import Report
from linbench.experiments.cell import Cell
from linbench.experiments.labels import Naming, format_cells
from linbench.results.schema.cells import CellResult


def outcome(result: CellResult) -> str:
    """Return a result in a few words."""
    if result["status"] != "ok":
        return f"{result['status']}: {result['reason']}"
    marks = f" [{', '.join(result['marks'])}]" if result["marks"] else ""
    return f"accuracy {result['metrics']['accuracy']:.4f}{marks}"


def describe_duration(result: CellResult) -> str:
    """Return how long a cell took, and with how many others."""
    size = result["stack"]["size"]
    return f"{result['seconds']:.0f} s" + (f" for {size} together" if size > 1 else "")


def display_on(console: Console) -> "LineDisplay | LiveDisplay":
    """Return bars for a terminal, and lines for anything else."""
    return LiveDisplay(console) if console.is_terminal else LineDisplay(console)


class LineDisplay:
    """A display with one line for each finished cell."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.count = 0
        self.cells: list[Cell] = []
        self.naming = Naming()
        self.noted: set[str] = set()
        """Notes on stacks that were printed: what keeps one cell from a stack keeps others, too."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Count more cells in."""
        self.cells += cells
        self.naming.add(cells)

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Show nothing: reports are too many for a log."""

    def finished(self, cell: Cell, result: CellResult, *, stored: bool) -> None:
        """Print a line such as `3/12 mqar quick deltanet seed 2: accuracy 0.9981, 41 s`."""
        self.count += 1
        when = "finished earlier" if stored else describe_duration(result)
        name = format_cells([cell], self.naming.names)
        line = f"{self.count}/{len(self.cells)} {name}: {outcome(result)}, {when}"
        note = None if stored else result["stack"]["note"]
        if note and note not in self.noted:
            self.noted.add(note)
            line += f"; {note}"
        self.console.print(escape.one_line(line), markup=False, highlight=False, soft_wrap=True)

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing more."""


class LiveDisplay:
    """A display with bars on a terminal.

    Every group that is running has a bar with its loss, accuracy, speed and time left, and all cells together
    have one. Lines of finished cells scroll up above them.
    """

    def __init__(self, console: Console) -> None:
        self.plain = LineDisplay(console)
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
        """The bar of each running group, by the ids of its cells."""
        self.over: set[str] = set()
        self.shares: dict[str, float] = {}
        """The largest share of its steps that each cell has reached, by id."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Start the display, or count more cells in: searches and ladders lead to more while they run."""
        self.plain.begin(cells)
        known = self.plain.cells
        if self.all is None and len(known) > 1:
            growing = any(cell.purpose != "report" for cell in known)
            self.all = self.bars.add_task("all cells so far" if growing else "all cells", numbers="")
        if self.all is not None:
            self.bars.update(self.all, total=float(len(known)))
        self.bars.start()

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Move the bars of a group and of all cells."""
        group = frozenset(cell.id for cell in cells)
        if group not in self.running:
            # a group that was broken off goes on with its cells in another one
            self._drop([other for other in self.running if other & group])
            name = escape.one_line(format_cells(cells, self.plain.naming.names))
            self.running[group] = self.bars.add_task(name, total=report.steps, numbers="")
        accuracy = "accuracy –" if report.accuracy is None else f"accuracy {report.accuracy:.3f}"
        numbers = (
            f"step {report.step}/{report.steps}  loss {report.loss:.3f}  {accuracy} "
            f" {report.tokens_per_second:,.0f} tokens/s"
        )
        self.bars.update(self.running[group], completed=report.step, numbers=numbers)
        self._count(cells, report.step / report.steps)

    def finished(self, cell: Cell, result: CellResult, *, stored: bool) -> None:
        """Print the cell's line; remove the bar of its group if all of its cells are finished."""
        self.over.add(cell.id)
        self._drop([group for group in self.running if group <= self.over])
        self.plain.finished(cell, result, stored=stored)
        self._count([cell], 1.0)

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Remove the bars."""
        self.bars.stop()

    def _count(self, cells: Sequence[Cell], share: float) -> None:
        """Move the bar of all cells; it never goes back, even if a group must begin anew."""
        self.shares |= {cell.id: max(share, self.shares.get(cell.id, 0.0)) for cell in cells}
        if self.all is not None:
            self.bars.update(self.all, completed=sum(self.shares.values()))

    def _drop(self, groups: Sequence[frozenset[str]]) -> None:
        for group in groups:
            self.bars.remove_task(self.running.pop(group))
