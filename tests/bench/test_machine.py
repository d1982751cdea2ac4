"""Marks of a machine that was shared while it measured."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from linbench.bench import machine, nvml
from linbench.bench.machine import BUSY, THROTTLED, LoadSample, marks, sample_load


def test_what_others_take_of_a_cpu_is_what_the_machine_did_less_what_we_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(every: float | None) -> None:
        monkeypatch.setattr(machine, "sample_load", lambda: LoadSample(wall=12.0, own=6.0, all_cores=every))

    began = LoadSample(wall=2.0, own=1.0, all_cores=100.0)
    ended(106.0)  # in ten seconds 6 of all cores, of which 5 ours
    assert marks(began, "cpu") == []
    ended(107.0)
    assert marks(began, "cpu") == [BUSY]


def test_where_the_machine_does_not_say_the_load_does(monkeypatch: pytest.MonkeyPatch) -> None:
    began = LoadSample(wall=0.0, own=0.0, all_cores=None)
    for load, expected in ((torch.get_num_threads() + 0.1, []), (torch.get_num_threads() + 1.0, [BUSY])):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        monkeypatch.setattr(machine, "sample_load", lambda: LoadSample(1.0, 1.0, None))
        assert marks(began, "cpu") == expected


def test_busy_seconds_are_read_where_all_cores_are_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  100 10 50 1000 40 3 2 5 0 0\ncpu0 50 5 25 500 20 1 1 2 0 0\ncpu1 50 5 25 500 20 2 1 3 0 0\nintr"
        " 12345\n"
    )
    monkeypatch.setattr(machine, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert sample_load().all_cores == pytest.approx(170 / os.sysconf("SC_CLK_TCK"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert sample_load().all_cores is None, "those of a whole host say nothing of a container's share"
    monkeypatch.setattr(machine, "_STAT", tmp_path / "none")
    assert sample_load().all_cores is None


class Library:
    """A stand-in for the driver's library, with answers of its own."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.active = 0
        self.failing = 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:  # noqa: N802 - its name
        return int(name != b"GPU-1234")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, found: Any) -> int:  # noqa: N802
        found._obj.value = self.active
        return self.failing

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:  # noqa: N802
        count._obj.value = len(self.pids)
        for place, pid in enumerate(self.pids):
            found[place].pid = pid
        return self.failing


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(nvml, "_nvml", lambda: library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    return library


@pytest.mark.parametrize(
    ("pids", "expected"),
    [([], []), ("O", []), ("OP", []), ("O1", [BUSY]), ("78", []), ("789", [BUSY])],
    ids=str,
)
def test_strangers_on_a_gpu(
    gpu: Library, monkeypatch: pytest.MonkeyPatch, pids: str, expected: list[str]
) -> None:
    """The ids are set here, for the parent of a test that runs in the background may be process 1."""
    known = {"O": 2, "P": 3}
    monkeypatch.setattr(os, "getpid", lambda: known["O"])
    monkeypatch.setattr(os, "getppid", lambda: known["P"])
    gpu.pids = [known[pid] if pid in known else int(pid) for pid in pids]
    assert marks(sample_load(), "cuda:0") == expected
    gpu.failing = 1
    assert marks(sample_load(), "cuda:0") == []


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [(0, []), (0x1, []), (0x2, []), (0x4, [THROTTLED]), (0x20, [THROTTLED]), (0x60, [THROTTLED])],
)
def test_clocks_held_back(gpu: Library, reasons: int, expected: list[str]) -> None:
    gpu.active = reasons
    assert marks(sample_load(), "cuda:0") == expected


def test_what_cannot_be_asked_marks_nothing(gpu: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.active = 0x4
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="other"))
    assert marks(sample_load(), "cuda:0") == []

    def missing() -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(nvml, "_nvml", missing)
    assert marks(sample_load(), "cuda:0") == []
