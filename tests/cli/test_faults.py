"""Faults that a run survives."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.results.store import Store

ROOT = Path(__file__).parents[2]
FAULTY = """
import atexit, os, signal, time
import torch
from torch import nn

class After(nn.Module):
    '''Something happens in the fifth forward pass.'''
    def __init__(self, dim, what="nan"):
        super().__init__()
        self.linear, self.what, self.calls = nn.Linear(dim, dim), what, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 5:
            if self.what == "nan":
                return self.linear(x) * float("nan")
            if self.what == "raise":
                raise ZeroDivisionError("my own fault")
            if self.what == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 TiB.")
            if self.what == "shape":
                return self.linear(x)[:, :1]
            again = os.getpid(), getattr(signal, self.what)
            # as `timeout` does, which signals the process and then its group
            atexit.register(os.kill, *again)
            os.kill(*again)
            time.sleep(5)
        return self.linear(x)
"""


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    (tmp_path / "faulty.py").write_text(FAULTY)
    return "faulty.py:After"


def process(folder: Path, *words: str, **more: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "linbench", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


def longer(tiny: list[str]) -> list[str]:
    """Cells of some hundreds of milliseconds."""
    return [word.replace("protocol.tokens=640", "protocol.tokens=6400") for word in tiny]


def finished(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("results/*.json")}


@pytest.mark.slow
def test_sigkill_loses_and_repeats_no_finished_cell(tmp_path: Path, tiny: list[str]) -> None:
    words = ["run", "mqar", "--model", "deltanet,attention", "--seeds", "0-3", *longer(tiny)]
    words += ["--stack", "1", "--workers", "1"]
    kept: dict[str, int] = {}
    for delay in (0.0, 0.15):
        running = process(tmp_path, *words)
        before = len(finished(tmp_path))
        while len(finished(tmp_path)) < before + 2 and running.poll() is None:
            time.sleep(0.01)
        time.sleep(delay)
        running.kill()
        running.communicate()
        now = finished(tmp_path)
        assert {name: now[name] for name in kept} == kept
        assert before + 2 <= len(now) < 8
        assert len(Store(tmp_path / "results").all()) == len(now)
        kept = now
    out, err = process(tmp_path, *words).communicate(timeout=120)
    now = finished(tmp_path)
    assert len(now) == 8
    assert {name: now[name] for name in kept} == kept
    assert err.count("finished earlier") == len(kept)
    assert len(Store(tmp_path / "results").all()) == 8
    assert not list(tmp_path.glob("results/*.unreadable*"))
    assert out.count("±") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
def test_a_signal_keeps_what_is_finished_and_says_how_to_go_on(
    tmp_path: Path,
    tiny: list[str],
    faulty: str,
    snapshot: SnapshotAssertion,
    name: str,
    code: int,
    word: str,
) -> None:
    running = process(
        tmp_path,
        "run",
        "mqar",
        "--model",
        f"deltanet,{faulty}[what={name}],attention",
        "--workers",
        "0",
        *tiny,
    )
    out, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert word in err.splitlines()[-1]
    assert err.splitlines()[-1] == snapshot
    assert "Traceback" not in err
    assert out == ""
    assert [result["label"] for result in Store(tmp_path / "results").all()] == ["deltanet"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_loss_that_is_no_number_is_a_diverged_cell_and_the_others_go_on(
    linbench: Callable[..., Any], tiny: list[str], faulty: str, snapshot: SnapshotAssertion
) -> None:
    tiny = [*tiny, "--set", "task.power_a=1"]  # a guess is right in one of two cases, wherever a query stands
    ended = linbench("run", "mqar", "--model", f"{faulty},deltanet", *tiny)
    assert ended.code == 3
    lines = ended.err.splitlines()
    diverged, trained = (next(line for line in lines if line.startswith(place)) for place in ("1/2", "2/2"))
    assert re.search(r" step [3-5] of ", diverged)
    shown = [re.sub(r"step [3-5] of", "step N of", line) for line in (diverged.partition(", ")[0], lines[-1])]
    assert shown == snapshot
    assert "mqar deltanet " in trained
    assert "seed 0: accuracy" in trained
    row = next(line for line in ended.out.splitlines() if "faulty" in line)
    assert re.search(r"\| 0\.500 +\|", row), "a diverged run counts as chance"
    assert "diverged 1/1" in row
    again = linbench("run", "mqar", "--model", f"{faulty},deltanet", *tiny)
    assert (again.code, again.err.count("finished earlier")) == (3, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unprobed")
def test_weights_that_turn_nan_unseen_by_the_training_loss_are_found_by_validation(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    text = (
        "from torch import nn\nclass Late(nn.Module):\n    def __init__(self, dim):\n       "
        " super().__init__()\n        self.linear = nn.Linear(dim, dim)\n"
    )
    hook = "        self.linear.weight.register_hook(self.spoil)\n        self.backwards = 0\n"
    spoil = (
        "    def spoil(self, grad):\n        self.backwards += 1\n        return grad * float('nan') if"
        " self.backwards == AT else grad\n"
    )
    forward = "    def forward(self, x):\n        return self.linear(x)\n"
    for at in (2, 10):
        (tmp_path / f"late{at}.py").write_text((text + hook + spoil + forward).replace("AT", str(at)))
    ended = linbench(
        "run", "mqar", "--model", "late2.py:Late,late10.py:Late,deltanet", "--workers", "0", *tiny
    )
    assert ended.code == 3
    cells = [line for line in ended.err.splitlines() if line.startswith(("1/3", "2/3", "3/3"))]
    assert [line.partition(", ")[0] for line in cells[:2]] == snapshot
    assert "deltanet seed 0: accuracy" in cells[2]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unprobed")
@pytest.mark.parametrize(
    ("what", "workers", "status", "reason"),
    [
        ("raise", "1", "failed", r"faulty\.py line 18: ZeroDivisionError: my own fault"),
        ("raise", "0", "failed", r"faulty\.py line 18: ZeroDivisionError: my own fault"),
        ("memory", "0", "oom", "CUDA out of memory"),
        ("shape", "0", "failed", r"After must return \[B, T, D\]"),
    ],
)
def test_a_users_fault_is_shown_as_theirs(
    linbench: Callable[..., Any],
    tiny: list[str],
    faulty: str,
    what: str,
    workers: str,
    status: str,
    reason: str,
) -> None:
    tiny = ["--workers", workers, *tiny]
    ended = linbench("run", "mqar", "--model", f"{faulty}[what={what}],deltanet", "--json", *tiny)
    assert ended.code == 3
    bad, good = json.loads(ended.out)
    assert bad["status"] == status
    assert re.search(reason, bad["reason"])
    assert good["status"] == "ok"
    assert f"{status} 1/1" in linbench("table").out
    again = linbench("run", "mqar", "--model", f"{faulty}[what={what}],deltanet", *tiny)
    assert again.err.count("finished earlier") == 1, "what failed is tried again"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_mixer_that_cannot_be_built_fails_alone(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(
        "from torch import nn\nclass Bad(nn.Module):\n    def __init__(self, dim):\n        raise"
        " RuntimeError('not today')\n"
    )
    ended = linbench("run", "mqar", "--model", "bad.py:Bad,deltanet", *tiny)
    assert ended.code == 3
    bad = next(line for line in ended.err.splitlines() if line.startswith("1/2 mqar bad.py:Bad "))
    assert "failed: bad.py line 4:" in bad
    assert "RuntimeError: not today" in bad
    assert "deltanet seed 0: accuracy" in ended.err


def test_a_folder_that_cannot_be_made_is_one_sentence_and_exit_6(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = linbench("run", "mqar", "--model", "deltanet", "--results", "file/results", *tiny)
    assert (ended.code, ended.err.count("\n"), ended.out) == (6, 1, "")
    assert ended.err == snapshot


@pytest.mark.slow
def test_a_disk_that_takes_nothing_is_found_before_training(tmp_path: Path, tiny: list[str]) -> None:
    def no_byte_more() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    running = process(tmp_path, "run", "mqar", "--model", "deltanet", *tiny, preexec_fn=no_byte_more)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err.count("\n"), out) == (6, 1, "")
    assert [path.name for path in (tmp_path / "results").iterdir()] == [".locks"]


def test_a_disk_that_fills_up_keeps_what_is_there_and_leaves_no_rubbish(
    linbench: Callable[..., Any],
    tiny: list[str],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    real = os.fsync
    calls = []

    def second_file_is_too_much(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", second_file_is_too_much)
    ended = linbench("run", "mqar", "--model", "deltanet,attention", *tiny)
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == snapshot
    assert len(list(Path("results").iterdir())) == 2, "the first result and the locks"
    monkeypatch.undo()
    monkeypatch.chdir(Path.cwd())


@pytest.mark.slow
def test_a_second_launcher_waits_for_a_cell_that_is_claimed_and_reads_its_result(
    tmp_path: Path, tiny: list[str]
) -> None:
    words = ["run", "mqar", "--model", "deltanet", "--seeds", "0-2", *longer(tiny)]
    both = [process(tmp_path, *words) for _ in range(2)]
    errors = [running.communicate(timeout=120)[1] for running in both]
    assert [running.returncode for running in both] == [0, 0]
    lines = "".join(errors).splitlines()
    ran = [line for line in lines if "accuracy" in line and "finished earlier" not in line]
    assert len(ran) == 3, "each cell exactly once"
    assert sum("finished earlier" in line for line in lines) == 3


def test_figures_and_tables_that_cannot_be_written_cost_no_result(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figures").write_text("in the way")
    ended = linbench("run", "mqar", "--model", "deltanet", "--json", *tiny)
    assert (ended.code, json.loads(ended.out)[0]["status"]) == (6, "ok")
    assert ended.err.splitlines()[-1] == snapshot
    ended = linbench("table", "--save", "results/figures")
    assert (ended.code, ended.err.count("\n")) == (6, 1)


def test_a_users_fault_anywhere_is_shown_as_theirs(
    linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "asked.py").write_text(
        "from linbench.tasks.mqar import MQAR\nclass Asked(MQAR):\n    def chance(self):\n        return 1"
        " / 0\n"
    )
    ended = linbench("show", "task", "asked.py:Asked")
    assert ended.code == 2
    assert ended.err == snapshot


def test_our_own_bugs_are_called_bugs(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("linbench.experiments.plan.default_protocol", lambda: None)
    ended = linbench("run", "mqar", "--model", "deltanet")
    assert ended.code == 70
    assert "TypeError" in ended.err
    assert ended.err.splitlines()[-1] == snapshot


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["table", "--format", "latec"],
            (
                "linbench: invalid value for '--format': 'latec' is not one of 'terminal', 'markdown', 'csv',"
                " 'latex', 'json'; "
            ),
        ),
        (
            ["list", "modles"],
            (
                "linbench: invalid value for 'tasks|models|systems|suites': 'modles' is not one of 'tasks',"
                " 'models', 'systems', 'suites'; "
            ),
        ),
    ],
)
def test_a_choice_that_is_none_names_the_nearest(
    linbench: Callable[..., Any], words: list[str], said: str
) -> None:
    near = {"table": "latex", "list": "models"}[words[0]]
    ended = linbench(*words)
    assert (ended.code, ended.err) == (
        2,
        f"{said}did you mean '{near}'; see linbench {words[0]} --help.\n",
    )
