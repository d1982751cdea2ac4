"""Watching a run: a live display on a terminal, one plain line per cell elsewhere."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from linbench.cell import Cell
from linbench.naming import named, varied
from linbench.store import Result
from linbench.train import Report


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
        self.count = self.total = 0
        self.names: list[str] = []

    def begin(self, cells: Sequence[Cell]) -> None:
        """Says how much there is to do."""
        self.count, self.total, self.names = 0, len(cells), varied(cells)

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Too much for a log."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """`3/12 mqar quick deltanet seed 2: accuracy 0.9981, 41 s`."""
        self.count += 1
        when = "finished earlier" if stored else took(result)
        line = f"{self.count}/{self.total} {named([cell], self.names)}: {outcome(result)}, {when}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Nothing more to say."""


class Live:
    """The cells that run, with its loss, accuracy, speed and time left; finished cells scroll up above it."""

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
        self.running: tuple[str, TaskID] | None = None
        self.all: TaskID | None = None

    def begin(self, cells: Sequence[Cell]) -> None:
        """Starts the display."""
        self.plain.begin(cells)
        self.bars.start()
        if len(cells) > 1:
            self.all = self.bars.add_task("all cells", total=float(len(cells)), numbers="")

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Moves the bars."""
        group = ",".join(cell.id for cell in cells)
        if self.running is None or self.running[0] != group:
            self._drop()
            self.running = group, self.bars.add_task(named(cells, self.plain.names), total=report.steps, numbers="")
        accuracy = "accuracy –" if report.accuracy is None else f"accuracy {report.accuracy:.3f}"
        numbers = f"step {report.step}/{report.steps}  loss {report.loss:.3f}  {accuracy}  {report.tokens_per_second:,.0f} tokens/s"
        self.bars.update(self.running[1], completed=report.step, numbers=numbers)
        if self.all is not None:
            self.bars.update(self.all, completed=self.plain.count + len(cells) * report.step / report.steps)

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """The cell's line joins those above."""
        self._drop()
        self.plain.finished(cell, result, stored=stored)
        if self.all is not None:
            self.bars.update(self.all, completed=self.plain.count)

    def end(self) -> None:
        """Gives the terminal back."""
        self.bars.stop()

    def _drop(self) -> None:
        if self.running is not None:
            self.bars.remove_task(self.running[1])
            self.running = None
