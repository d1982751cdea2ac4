import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from linbench.engine.display import LineDisplay, LiveDisplay
from linbench.engine.progress import Report
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan

RESULT = {
    "status": "ok",
    "marks": ["undertrained"],
    "metrics": {"accuracy": 0.5},
    "seconds": 3.2,
    "reason": None,
    "stack": {"size": 1, "note": None},
}


@pytest.mark.parametrize("terminal", [True, False])
def test_a_finished_cell_is_one_line(terminal: bool, snapshot: SnapshotAssertion) -> None:
    cells = plan("mqar", ["attention[window=4]", "deltanet"], device="cpu")
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)
    progress = LiveDisplay(console) if terminal else LineDisplay(console)
    progress.begin(cells)
    progress.report(cells[:1], Report(5, 10, 1.5, None, 1234.0))
    progress.report(cells[:1], Report(9, 10, 1.25, 0.5, 1234.0))
    if isinstance(progress, LiveDisplay):
        progress.bars.refresh()
    progress.finished(cells[0], RESULT, stored=False)
    progress.finished(cells[1], RESULT, stored=True)
    progress.end()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert re.findall(r"(\d/\d mqar .*)\n", shown) == snapshot
    assert ("loss 1.250" in shown) is terminal


def test_a_failure_is_told_with_its_reason(snapshot: SnapshotAssertion) -> None:
    console = Console(file=io.StringIO(), width=200)
    plain = LineDisplay(console)
    cells = plan("mqar", ["deltanet"], device="cpu")
    plain.begin(cells)
    plain.finished(
        cells[0], {**RESULT, "status": "failed", "reason": "mine.py line 3: ValueError"}, stored=False
    )
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == snapshot


@pytest.mark.parametrize(
    ("stack", "shown"),
    [
        ({"size": 3, "note": None}, "3 s for 3 together\n"),
        ({"size": 1, "note": "could not be stacked: x"}, "3 s; could not be stacked: x\n"),
    ],
)
def test_what_was_stacked_and_what_could_not_be_is_told(stack: dict[str, object], shown: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    plain = LineDisplay(console)
    cells = plan("mqar", ["deltanet"], device="cpu")
    plain.begin(cells)
    plain.finished(cells[0], {**RESULT, "stack": stack}, stored=False)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith(shown)


def live(cells: Sequence[Cell]) -> LiveDisplay:
    progress = LiveDisplay(Console(file=io.StringIO(), force_terminal=True, width=200))
    progress.begin(cells)
    return progress


def shown(progress: LiveDisplay) -> dict[str, float]:
    return {task.description: task.completed for task in progress.bars.tasks}


def test_every_running_group_keeps_a_bar_of_its_own(snapshot: SnapshotAssertion) -> None:
    cells = plan("mqar", ["attention", "deltanet"], seeds=[0, 1], device="cpu")
    progress = live(cells)
    first, second = cells[:2], cells[2:]
    progress.report(first, Report(2, 10, 1.5, None, 1.0))
    progress.report(second, Report(4, 10, 1.5, None, 1.0))
    began = progress.bars.task_ids
    progress.report(first, Report(6, 10, 1.5, None, 1.0))
    progress.finished(cells[2], RESULT, stored=False)
    progress.report(second, Report(6, 10, 1.5, None, 1.0))
    assert progress.bars.task_ids == began
    bars = shown(progress)
    assert list(bars) == snapshot
    assert list(bars.values()) == [pytest.approx(2.8), 6, 6]
    progress.finished(cells[3], RESULT, stored=False)
    assert list(shown(progress)) == list(bars)[:2]
    progress.end()


def test_the_total_never_goes_back() -> None:
    cells = plan("mqar", ["attention", "deltanet"], seeds=[0, 1], device="cpu")
    progress = live(cells)
    totals = [0.0]
    for group, step in (
        (cells[:2], 8),
        (cells[2:], 1),
        (cells[:2], 9),
        (cells[2:], 2),
        (cells[:2], 1),
        (cells[:1], 2),
        (cells[2:], 10),
    ):
        progress.report(group, Report(step, 10, 1.5, None, 1.0))
        totals.append(shown(progress)["all cells"])
    for cell in cells:
        progress.finished(cell, RESULT, stored=False)
        totals.append(shown(progress)["all cells"])
    progress.end()
    assert totals == sorted(totals)
    assert totals[-1] == 4


def test_cells_of_a_group_that_was_broken_off_have_one_bar(snapshot: SnapshotAssertion) -> None:
    cells = plan("mqar", ["attention"], seeds=[0, 1], device="cpu")
    progress = live(cells)
    progress.report(cells, Report(8, 10, 1.5, None, 1.0))
    progress.report(cells[:1], Report(1, 10, 1.5, None, 1.0))
    assert list(shown(progress)) == snapshot
    progress.end()


def test_what_a_search_leads_to_is_counted_in_when_it_is_known(snapshot: SnapshotAssertion) -> None:
    cells = plan("mqar", ["attention"], seeds=[0, 1, 100, 101, 102], device="cpu")
    tuning, reports = [replace(cell, purpose="tuning") for cell in cells[2:]], cells[:2]
    progress = live(tuning)
    assert shown(progress) == {"all cells so far": 0}
    assert isinstance(file := progress.plain.console.file, io.StringIO)
    for cell in tuning:
        progress.finished(cell, RESULT, stored=False)
    progress.begin(reports)
    progress.report(reports[:1], Report(1, 2, 1.5, None, 1.0))
    bars = shown(progress)
    assert list(bars) == snapshot
    assert list(bars.values()) == [3.5, 1]
    assert progress.bars.tasks[0].total == 5
    for cell in reports:
        progress.finished(cell, RESULT, stored=False)
    progress.end()
    assert [count in file.getvalue() for count in ("1/3 ", "3/3 ", "4/5 ", "5/5 ")] == [True] * 4


def test_a_note_on_stacks_is_told_once() -> None:
    console = Console(file=io.StringIO(), width=200)
    plain = LineDisplay(console)
    cells = plan("mqar", ["deltanet"], device="cpu", seeds=range(3))
    plain.begin(cells)
    for cell in cells:
        plain.finished(
            cell, {**RESULT, "stack": {"size": 1, "note": "could not be stacked: x"}}, stored=False
        )
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("could not be stacked") == 1
