"""Layers that end, stop or spoil the process that they run in: each costs its own cell."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import EXIT_STORAGE
from linbench.results.store import Store
from tests.helpers.processes import alive

ROOT = Path(__file__).parents[2]
ILL = """
import atexit, os, signal, subprocess, sys, threading, time
import torch
from torch import nn

print("imported")
atexit.register(print, "at the exit")
atexit.register(os.write, 1, b"at the exit, past Python")

class Ill(nn.Module):
    '''Something happens in the twelfth forward pass, when it is being trained.'''
    def __init__(self, dim, what="nothing"):
        super().__init__()
        self.linear, self.what, self.calls = nn.Linear(dim, dim), what, 0
        if what == "leaves when built":
            os._exit(0)

    def forward(self, x):
        self.calls += 1
        if self.calls == 12:
            print("in Python", flush=True)
            os.write(1, b"past Python")
            getattr(self, self.what.replace(" ", "_"), lambda: None)()
        return self.linear(x)

    def exits(self):
        sys.exit(0)

    def leaves(self):
        os._exit(0)

    def stops(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def loops(self):
        while True:
            pass

    def closes(self):
        os.closerange(0, 256)

    def closes_and_hangs(self):
        os.closerange(0, 256)
        time.sleep(600)

    def interrupts(self):
        raise KeyboardInterrupt

    def raises(self):
        raise type("Odd", (BaseException,), {"__str__": lambda self: 1 / 0})

    def is_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def forgets_gradients(self):
        torch.set_grad_enabled(False)

    def moves(self):
        os.chdir("/")

    def patches(self):
        nn.Linear.forward = lambda self, x: x * 0

    def starts(self):
        threading.Thread(target=time.sleep, args=(600,)).start()
        for session in (False, True):
            child = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session
            )
            open(os.environ["CHILDREN"], "a").write(f"{child.pid} ")
"""


def line(code: str) -> str:
    """Return the place of the line of the layer that begins with this code."""
    return (
        "ill.py line"
        f" {next(i for i, each in enumerate(ILL.splitlines(), 1) if each.strip().startswith(code))}: "
    )


REASONS = {
    "exits": ("failed", line("sys.exit") + "SystemExit: 0"),
    "leaves": ("failed", "its process died with exit code 0"),
    "leaves when built": ("failed", "its process died with exit code 0"),
    "stops": ("timeout", "said nothing for 10 s and was ended"),
    "loops": ("timeout", "said nothing for 10 s and was ended"),
    "closes": ("failed", "it closed the descriptors of its process"),
    "closes and hangs": ("failed", "it closed the descriptors of its process"),
    "interrupts": ("failed", "KeyboardInterrupt"),
    "raises": ("failed", line("raise type") + "Odd"),
    "is killed": ("failed", "its process died with SIGKILL"),
    "forgets gradients": (
        "failed",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    "moves": ("ok", None),
    "starts": ("ok", None),
    "patches": ("ok", None),
    "nothing": ("ok", None),
}


UNPROBED = """
from linbench.cli import main
from linbench.engine.probe import Marks
Marks.probe = lambda marks, cells: None
main()
"""
"""linbench without probes of layers: each would cost two more processes where a layer ends its own."""


def linbench(
    folder: Path, *words: str, probed: bool = True, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """A process of its own, since such layers are not to be let into this one."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CHILDREN": str(folder / "children"),
    }
    program = ["-m", "linbench"] if probed else ["-c", UNPROBED]
    command = [sys.executable, *program, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, timeout=250, **more
    )


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "ill.py").write_text(ILL)
    return tmp_path


@pytest.fixture
def linbench_here(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The command line in this process, which `linbench` in this file is not."""
    here: Callable[..., Any] = request.getfixturevalue("linbench")
    return here


def models(*what: str) -> str:
    return ",".join(f"./ill.py:Ill[what={each}]" for each in what)


def longer(tiny: list[str]) -> list[str]:
    return [word.replace("protocol.tokens=640", "protocol.tokens=2560") for word in tiny]


def write_suite(folder: Path, settings: list[str], *models: str, seeds: str = "0") -> None:
    """Write suite.yaml with models and settings from words such as `task.seq_len=16`.

    A sweep draws no figures, which would take longer than training here.
    """
    pairs = dict(word.split("=") for word in settings if "=" in word)
    values = {name: int(value) for name, value in pairs.items()}
    suite = {"about": "a test", "tasks": ["mqar"], "models": list(models), "seeds": seeds, "form": "native"}
    (folder / "suite.yaml").write_text(yaml.safe_dump({**suite, "set": values}))


@pytest.mark.slow
def test_each_costs_its_own_cell_with_a_clear_reason(
    mine: Path, tiny: list[str], linbench_here: Callable[..., Any]
) -> None:
    write_suite(mine, longer(tiny), *(f"./ill.py:Ill[what={what}]" for what in REASONS), "deltanet")
    words = ["sweep", "suite.yaml", "--device", "cpu", "--json"]
    alone = json.loads(
        linbench_here(*words, "--model", "deltanet", "--results", "alone", "--workers", "1").out
    )
    # two workers: the two that say nothing are waited for side by side
    ended = linbench(mine, *words, "--timeout", "10", "--stack", "1", "--workers", "2", probed=False)
    *found, other = json.loads(ended.stdout)
    for (what, (status, reason)), result in zip(REASONS.items(), found, strict=True):
        assert result["status"] == status, what
        assert reason is None or result["reason"] == reason, what
        assert result["outside"] == (what == "is killed"), what
    assert (other["metrics"], other["curve"]) == (alone[0]["metrics"], alone[0]["curve"])
    assert ended.returncode == 3
    assert "bug in linbench" not in ended.stderr
    children = [int(pid) for pid in (mine / "children").read_text().split()]
    assert len(children) >= 2
    deadline = time.monotonic() + 10
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))


@pytest.mark.slow
def test_in_this_process_by_hand_they_spoil_no_other_cell_and_no_output(
    mine: Path, tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    what = ("exits", "raises", "moves", "forgets gradients", "starts", "nothing", "patches")
    ended = linbench(
        mine, "run", "mqar", "--model", f"{models(*what)},deltanet", "--workers", "0", "--json", *longer(tiny)
    )
    *found, other = json.loads(ended.stdout)
    assert [result["status"] for result in found] == ["failed", "failed", "ok", "failed", "ok", "ok", "ok"]
    assert ended.stderr.count("in Python") >= len(what)
    assert other["reason"] == snapshot
    assert other["outside"], "it is run when it is next asked for"
    assert not any(alive(int(pid)) for pid in (mine / "children").read_text().split())


@pytest.mark.slow
def test_a_cell_whose_worker_was_killed_is_run_again_by_every_verb_and_one_that_failed_when_asked(
    mine: Path, tiny: list[str]
) -> None:
    write_suite(mine, longer(tiny), "./ill.py:Ill[what=is killed]", "./ill.py:Ill[what=leaves]")
    words = ["sweep", "suite.yaml", "--device", "cpu", "--workers", "1"]
    first = linbench(mine, *words, probed=False)
    assert first.returncode == 3, first.stderr
    again = linbench(mine, *words, probed=False)
    lines = again.stderr.splitlines()
    left = next(line for line in lines if "Ill[what=leaves] seed 0: " in line)
    killed = next(line for line in lines if "Ill[what=is killed] seed 0: " in line)
    assert f"failed: {REASONS['leaves'][1]}, finished earlier" in left
    assert f"failed: {REASONS['is killed'][1]}, 0 s" in killed


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_descriptors_that_are_closed_fail_no_cell(
    tmp_path: Path, tiny: list[str], closed: tuple[int, ...]
) -> None:
    write_suite(tmp_path, tiny, "deltanet", "attention", seeds="0-1")
    words = "sweep suite.yaml --device cpu --workers 1 --stack 2"
    shut = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    script = f"exec {shut}; exec {sys.executable} -m linbench {words}"
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=200,
        check=False,
    )
    assert ended.returncode == (EXIT_STORAGE if 1 in closed else 0), (
        "a table that cannot be printed is told, and costs no cell"
    )
    assert [result["status"] for result in Store(tmp_path / "results").all()] == ["ok"] * 4


@pytest.mark.slow
def test_a_script_of_a_users_own_needs_no_guard_and_a_thread_of_a_plugin_keeps_no_run_from_its_end(
    mine: Path, tiny: list[str]
) -> None:
    (mine / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nfrom ill import"
        " Ill\nIll = Ill\n"
    )
    began = time.monotonic()
    ended = linbench(mine, "run", "mqar", "--model", "./threaded.py:Ill", "--json", *tiny)
    assert (ended.returncode, json.loads(ended.stdout)[0]["status"]) == (0, "ok"), ended.stderr
    assert time.monotonic() - began < 200
    settings = dict(word.split("=") for word in tiny if "=" in word)
    (mine / "script.py").write_text(
        f"import linbench\nprint(len(linbench.run('mqar', './ill.py:Ill', settings={settings}, device='cpu',"
        " results='own')))\n"
    )
    command = [sys.executable, "script.py"]
    script = subprocess.run(
        command,
        cwd=mine,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert script.returncode == 0, script.stderr
    assert "1\n" in script.stdout
    assert [result["status"] for result in Store(mine / "own").all()] == ["ok"]
