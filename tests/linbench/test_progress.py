import io

import pytest
from rich.console import Console

from linbench.plan import plan
from linbench.progress import Live, Plain
from linbench.train import Report

RESULT = {"status": "ok", "marks": ["undertrained"], "metrics": {"accuracy": 0.5}, "seconds": 3.2, "reason": None, "stack": {"size": 1, "note": None}}


@pytest.mark.parametrize("terminal", [True, False])
def test_a_finished_cell_is_one_line(terminal: bool) -> None:
    cells = plan("mqar", ["attention[window=4]", "deltanet"], device="cpu")
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)
    progress = Live(console) if terminal else Plain(console)
    progress.begin(cells)
    progress.report(cells[:1], Report(5, 10, 1.5, None, 1234.0))
    progress.report(cells[:1], Report(9, 10, 1.25, 0.5, 1234.0))
    if isinstance(progress, Live):
        progress.bars.refresh()
    progress.finished(cells[0], RESULT, stored=False)
    progress.finished(cells[1], RESULT, stored=True)
    progress.end()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "1/2 mqar quick attention[window=4] seed 0: accuracy 0.5000 [undertrained], 3 s\n" in shown
    assert "2/2 mqar quick deltanet seed 0: accuracy 0.5000 [undertrained], finished earlier\n" in shown
    assert ("loss 1.250" in shown) is terminal


def test_a_failure_is_told_with_its_reason() -> None:
    console = Console(file=io.StringIO(), width=200)
    plain = Plain(console)
    cells = plan("mqar", ["deltanet"], device="cpu")
    plain.begin(cells)
    plain.finished(cells[0], {**RESULT, "status": "failed", "reason": "mine.py line 3: ValueError"}, stored=False)
    assert isinstance(console.file, io.StringIO)
    assert "failed: mine.py line 3: ValueError" in console.file.getvalue()


@pytest.mark.parametrize(
    ("stack", "shown"),
    [({"size": 3, "note": None}, "3 s for 3 together\n"), ({"size": 1, "note": "could not be stacked: x"}, "3 s; could not be stacked: x\n")],
)
def test_what_was_stacked_and_what_could_not_be_is_told(stack: dict[str, object], shown: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    plain = Plain(console)
    cells = plan("mqar", ["deltanet"], device="cpu")
    plain.begin(cells)
    plain.finished(cells[0], {**RESULT, "stack": stack}, stored=False)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith(shown)
