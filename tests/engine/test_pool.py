"""Groups side by side, in processes that may die or hang."""

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import DeviceLostError, StorageError, UserError
from linbench.engine import pool as what
from linbench.engine import runner
from linbench.engine.in_process import InProcess
from linbench.engine.jobs import Job, Message, isolation_key
from linbench.engine.pool import Pool, make_pool
from linbench.engine.progress import NoProgress
from linbench.engine.runner import run_cells
from linbench.engine.workers import Outcome, outcomes
from linbench.experiments.cell import Cell
from linbench.results.store import Store
from tests.helpers.cells import RecordingProgress, build_cells, plan, tiny_settings
from tests.helpers.processes import alive

pytestmark = pytest.mark.usefixtures("unprobed")

TINY = tiny_settings()
TRIES = 2
"""Tries of a group that is lost, one fewer than usual: each takes the start of a process."""
TWO = Pool(({}, {}), 1, 60.0)
ON_ONE_GPU = Pool(({"CUDA_VISIBLE_DEVICES": "0"},) * 2, 1, 60.0)
MINE = """
import os, subprocess, sys, time
import torch
from torch import OutOfMemoryError, nn
from linbench.engine import measure
class Mine(nn.Module):
    def __init__(self, dim, what="nothing"):
        super().__init__()
        self.linear, self.what = nn.Linear(dim, dim), what
    def forward(self, x):
        if self.what == "dies":
            os._exit(7)
        if self.what == "hangs":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open("children", "a").write(f"{child.pid} ")
            time.sleep(600)
        if self.what.startswith("full"):
            with open(self.what, "a") as tries:
                print(os.getpid(), file=tries)
            if self.what == "full" or len(set(open(self.what))) == 1:
                raise OutOfMemoryError("no memory")
        if self.what.startswith("lost"):
            with open(self.what, "a") as tries:
                print(os.getpid(), file=tries)
            if self.what == "lost" or len(set(open(self.what))) == 1:
                measure.device_responds = lambda device: False
                raise RuntimeError("an illegal address")
        if self.what == "beyond once" and not os.path.exists(self.what):
            open(self.what, "w").close()
            torch.zeros(1, device=x.device).index_select(0, torch.full((1,), 1 << 20, device=x.device))
        return self.linear(x)
"""


def cells(*models: str, seeds: Sequence[int] = (0, 1), **settings: Any) -> list[Cell]:
    return build_cells(*(models or ("deltanet", "attention")), seeds=seeds, settings=TINY | settings)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize("model", ["deltanet", "2xdeltanet+attention[window=4]", "./mine.py:Mine"])
def test_a_cell_is_the_same_in_another_process(mine: Path, model: str) -> None:
    (cell,) = cells(model, seeds=[3])
    again = pickle.loads(pickle.dumps(cell))
    assert (again.id, again.preset, again.purpose, again.model.label) == (
        cell.id,
        cell.preset,
        cell.purpose,
        cell.model.label,
    )


def test_a_plugin_that_was_edited_meanwhile_is_what_it_was_when_the_run_began(mine: Path) -> None:
    (cell,) = cells("./mine.py:Mine", seeds=[3])
    sent = pickle.dumps(cell)
    (mine / "mine.py").write_text(MINE + "# edited\n")
    (edited,) = cells("./mine.py:Mine", seeds=[3])
    assert pickle.loads(sent).id == cell.id != edited.id


def test_what_is_installed_and_was_changed_meanwhile_is_refused() -> None:
    (cell,) = cells("deltanet", seeds=[3])
    entry = replace(cell.model.layers[0].entry, source="package linbench", digest="0")
    with pytest.raises(UserError, match="model 'deltanet' has changed since the run began"):
        pickle.loads(pickle.dumps(entry))


def test_code_of_other_people_needs_a_process_to_itself(mine: Path) -> None:
    (mine / "other.py").write_text(MINE)
    job = [
        isolation_key(Job(cells(model), [], None))
        for model in (
            "deltanet",
            "mine.py:Mine",
            "./mine.py:Mine+deltanet",
            "./other.py:Mine",
            "mine.py:Mine+other.py:Mine",
        )
    ]
    assert job == [
        None,
        {str(mine / "mine.py")},
        {str(mine / "mine.py")},
        {str(mine / "other.py")},
        {str(mine / "mine.py"), str(mine / "other.py")},
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    group, watching = cells(), RecordingProgress()
    pooled = run_cells(group, Store(tmp_path / "pooled"), watching, executor=TWO)
    alone = run_cells(group, Store(tmp_path / "alone"), NoProgress())
    assert [(result["id"], result["metrics"], result["curve"]) for result in pooled] == [
        (result["id"], result["metrics"], result["curve"]) for result in alone
    ]
    assert set(watching.steps) == {cell.id for cell in group}
    assert sorted(watching.done) == sorted((cell.id, "ok", False) for cell in group)
    again = RecordingProgress()
    assert run_cells(group, Store(tmp_path / "pooled"), again, executor=TWO) == pooled
    assert [stored for _, _, stored in again.done] == [True] * len(group)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_costs_its_group_alone(
    mine: Path, workers: int, snapshot: SnapshotAssertion
) -> None:
    group = [
        *cells("./mine.py:Mine", seeds=[0], **{"model.what": "dies"}),
        *cells(),
        *cells("./mine.py:Mine", seeds=[0]),
    ]
    found = run_cells(group, Store(mine / "results"), NoProgress(), executor=make_pool("cpu", workers))
    assert [result["status"] for result in found] == ["failed"] + ["ok"] * (len(group) - 1)
    assert found[0]["reason"] == snapshot


@pytest.mark.slow
@pytest.mark.parametrize(("what", "processes", "status"), [("lost once", 2, "ok"), ("lost", TRIES, "failed")])
def test_a_group_whose_gpu_is_lost_goes_on_in_another_process(
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    processes: int,
    status: str,
    snapshot: SnapshotAssertion,
) -> None:
    """Its process is told that its device answers no more, whatever is true."""
    monkeypatch.setattr(runner, "TRIES", TRIES)
    ill = cells("./mine.py:Mine", **{"model.what": what})
    others = cells("attention")
    found = run_cells([*ill, *others], Store(mine / "results"), NoProgress(), executor=make_pool("cpu", 1))
    assert [result["status"] for result in found] == [status] * len(ill) + ["ok"] * len(others)
    assert len(set((mine / what).read_text().split())) == processes
    if status == "failed":
        assert {result["reason"] for result in found[: len(ill)]} == snapshot


def test_this_process_does_not_go_on_without_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = cells("attention", "deltanet", seeds=[0]) + cells("linear_attention", seeds=[0])
    monkeypatch.setattr("linbench.engine.measure.device_responds", lambda device: False)
    monkeypatch.setattr("linbench.models.deltanet.DeltaNet.recur", lambda *given, **more: 1 / 0)
    with pytest.raises(
        DeviceLostError, match=r"the GPU answers this process no more: .*ZeroDivisionError: division by zero"
    ):
        run_cells([first, second, third], Store(tmp_path), NoProgress())
    assert [result["id"] for result in Store(tmp_path).all()] == [first.id]


@pytest.mark.gpu
def test_a_group_that_met_an_illegal_address_goes_on_in_another_process(mine: Path) -> None:
    ill, others = ({**TINY, "model.what": "beyond once"}, TINY)
    group = [
        cell
        for model, given in (("./mine.py:Mine", ill), ("attention", others))
        for cell in plan("mqar", [model], device="cuda", seeds=[0, 1], settings=given)
    ]
    found = run_cells(group, Store(mine / "results"), NoProgress(), executor=make_pool("cuda", 1))
    assert [result["status"] for result in found] == ["ok"] * 4
    assert (mine / "beyond once").exists()


@pytest.mark.slow
def test_a_group_that_hangs_is_ended_with_all_that_it_started(
    mine: Path, snapshot: SnapshotAssertion
) -> None:
    group = [*cells("./mine.py:Mine", seeds=[0], **{"model.what": "hangs"}), *cells()]
    found = run_cells(group, Store(mine / "results"), NoProgress(), executor=Pool(({}, {}), 1, 8.0))
    assert [result["status"] for result in found] == ["timeout"] + ["ok"] * (len(group) - 1)
    assert found[0]["reason"] == snapshot
    children = [int(pid) for pid in (mine / "children").read_text().split()]
    assert children
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in children)


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "tries", "at_last"), [(ON_ONE_GPU, 2, "ok"), (TWO, 1, "oom")])
def test_what_finds_no_memory_beside_others_is_run_once_more_alone(
    mine: Path, executor: Pool, tries: int, at_last: str
) -> None:
    group = [
        *cells("./mine.py:Mine", seeds=[0], **{"model.what": "full at first"}),
        *cells("./mine.py:Mine", seeds=[0], **{"model.what": "full"}),
        *cells(),
    ]
    watching = RecordingProgress()
    found = run_cells(group, Store(mine / "results"), watching, executor=executor)
    assert [result["status"] for result in found] == [at_last, "oom"] + ["ok"] * (len(group) - 2)
    assert sorted(watching.done) == sorted(
        (cell.id, result["status"], False) for cell, result in zip(group, found, strict=True)
    )
    assert len(set((mine / "full").read_text().split())) == tries


@pytest.mark.slow
def test_what_a_worker_cannot_keep_ends_the_run_and_no_cell_has_failed(tmp_path: Path) -> None:
    class Full(InProcess):
        def __call__(
            self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
        ) -> Iterator[tuple[int, Outcome]]:
            return outcomes(_full, jobs, workers=1)

    with pytest.raises(StorageError, match="no space left"):
        run_cells(cells(), Store(tmp_path), NoProgress(), executor=Full())
    assert Store(tmp_path).all() == []


def _full(job: Job) -> None:
    raise StorageError("cannot write checkpoints: no space left.")


def test_one_worker_is_a_pool_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(what.os, "sched_getaffinity", lambda _: {0})
    assert make_pool("cpu", None) == Pool(({"OMP_NUM_THREADS": "1"},), 1)
    monkeypatch.setattr(what.os, "sched_getaffinity", lambda _: set(range(8)))
    assert make_pool("cpu", None) == Pool(({"OMP_NUM_THREADS": "1"},) * 8, 1)
    assert make_pool("cpu", 3) == Pool(({"OMP_NUM_THREADS": "2"},) * 3, 2)
    assert len(make_pool("cpu", 1).environments) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert (make_pool("cpu", 1).threads, make_pool("cpu", 4).threads) == (3, 2), (
        "no more than the user allows"
    )


def test_every_gpu_has_a_worker_that_sees_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(what.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(what.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert make_pool("cuda", None) == Pool(({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}), 4)
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "5,7")
    found = make_pool("cuda", 2)
    assert isinstance(found, Pool)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in found.environments] == ["5", "7"]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in make_pool("cuda", 1).environments] == ["5"]
    assert make_pool("cuda", 3, gpus=1) == Pool(({"CUDA_VISIBLE_DEVICES": "5"},) * 3, 2), (
        "workers share a GPU"
    )
    with pytest.raises(UserError, match="3 GPUs are asked for; there are 2 here"):
        make_pool("cuda", None, gpus=3)


def test_workers_that_share_a_gpu_are_told_from_those_that_have_one_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(what.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    five = make_pool("cuda", 5)
    assert five.sharing == 3
    assert (five.devices, five.alone().devices, make_pool("cpu", 3).devices) == (2, 2, 3)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in five.alone().environments] == ["0", "1"]
    assert (
        five.alone().sharing
        == make_pool("cuda", 2).sharing
        == make_pool("cpu", 3).sharing
        == TWO.sharing
        == 1
    )
    assert TWO.alone() == TWO
