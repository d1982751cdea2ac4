"""Groups on a Ray cluster, of which nodes and workers get lost."""

import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from linbench.cell import Cell
from linbench.cluster import TRIES, connected
from linbench.common.errors import UserError
from linbench.plan import plan
from linbench.runner import Silent, run_cells
from linbench.store import Result, Store
from linbench.train import Report

STEPS = 500
TINY = {
    "protocol.batch_size": 4, "protocol.tokens": STEPS * 4 * 16, "protocol.validation_examples": 8, "protocol.test_examples": 8, "protocol.evaluations": 5,
    "model.d_model": 16, "task.seq_len": 16, "task.kv_pairs": 2, "task.vocab_size": 16,
}  # fmt: skip
MINE = """
import os, time
from torch import nn
from beside import DIES
class Mine(nn.Module):
    def __init__(self, dim, what="nothing"):
        super().__init__()
        self.linear, self.what = nn.Linear(dim, dim), what
    def forward(self, x):
        if self.what == "dies":
            os._exit(DIES)
        if self.what == "hangs":
            time.sleep(600)
        return self.linear(x)
"""
WITHOUT = "Ray is not installed: pip install 'linbench[ray]'"
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}


class Watching(Silent):
    """Counts what is said of cells."""

    def __init__(self, on_report: Callable[[], None] = lambda: None) -> None:
        self.on_report = on_report
        self.steps: dict[str, list[int]] = {}
        self.done: list[str] = []

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        for cell in cells:
            self.steps.setdefault(cell.id, []).append(report.step)
        self.on_report()

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        self.done.append(cell.id)

    @property
    def at_work(self) -> list[int]:
        """The last step of each cell that is not done."""
        return [steps[-1] for name, steps in self.steps.items() if name not in self.done]

    @property
    def begun_anew(self) -> list[str]:
        return [name for name, steps in self.steps.items() if len(set(steps)) < len(steps)]


class Counting(Store):
    """Counts what is kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: Counter[str] = Counter()

    def put(self, result: Result) -> Path:
        self.kept[result["id"]] += 1
        return super().put(result)


def cells(*models: str, seeds: Sequence[int] = (0, 1), **settings: Any) -> list[Cell]:
    return plan("mqar", list(models), device="cpu", seeds=seeds, settings=TINY | settings)


def processes(folder: Path) -> list[str]:
    """Those whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has just ended
            continue
    return [line for line in found if str(folder) in line]


theirs = pytest.mark.filterwarnings("ignore")  # Ray's own warnings are not ours to mend


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of one node with one core; more can be added. Nothing is left of it."""
    pytest.importorskip("ray", reason=WITHOUT)
    folder = Path(tempfile.mkdtemp(prefix="linbench"))  # the paths of Ray's sockets must be short
    (folder / "ray").mkdir()
    for name, value in {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()
        deadline = time.monotonic() + 20
        while (left := processes(folder)) and time.monotonic() < deadline:
            time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.mark.slow
@theirs
def test_a_node_is_killed_and_every_cell_is_done_exactly_once(nodes: Any, tmp_path: Path) -> None:
    second = nodes.add_node(**SMALL)
    killed: list[list[int]] = []

    def kill() -> None:
        if not killed and len(at := watching.at_work) == 2 and max(at) < 0.6 * STEPS:  # on two nodes with a core each, neither about to end
            killed.append(at)
            nodes.remove_node(second, allow_graceful=False)

    group, store, watching = cells("linear_attention", "attention", seeds=range(3)), Counting(tmp_path / "results"), Watching(kill)
    with connected(nodes.address, gpus=0, silence=120) as cluster:
        found = run_cells(group, store, watching, executor=cluster, stack=1)
    assert killed, "a node was at work"
    assert [result["reason"] for result in found] == [None] * len(group)
    assert Counter(watching.done) == store.kept == Counter(cell.id for cell in group)
    assert sorted(path.stem for path in store.folder.glob("*.json")) == sorted(cell.id for cell in group)
    assert len(watching.begun_anew) == 1, "what the killed node was at was handed out again"
    alone = run_cells([cell for cell in group if cell.id in watching.begun_anew], Store(tmp_path / "alone"), Silent())
    assert [result["metrics"] for result in alone] == [result["metrics"] for result in found if result["id"] in watching.begun_anew]


@pytest.mark.slow
@theirs
def test_what_a_plugin_does_costs_its_group_alone(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.py").write_text(MINE)
    (tmp_path / "models" / "beside.py").write_text("DIES = 7\n")
    mine = "./models/mine.py:Mine"
    dies, hangs, does = (cells(mine, seeds=[0], **{"model.what": what})[0] for what in ("dies", "hangs", "nothing"))
    with connected(nodes.address, gpus=0, silence=15) as cluster:
        found = run_cells([dies, hangs, does], Counting(tmp_path / "results"), Silent(), executor=cluster)
    assert [result["status"] for result in found] == ["failed", "timeout", "ok"]
    assert found[0]["reason"].startswith(f"its worker was lost {TRIES} times, at last by WorkerCrashedError")
    assert found[1]["reason"] == "said nothing for 15 s and was ended"


@pytest.mark.slow
@theirs
def test_a_cluster_that_cannot_run_a_group_is_refused(nodes: Any) -> None:
    with pytest.raises(UserError, match=r"^no node of the Ray cluster at \S+ has 0.25 GPU for a group\.$"), connected(nodes.address, gpus=0.25, silence=60):
        pass


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ray://host:10001", "--address takes auto or HOST:PORT of a cluster that this machine is a node of, not 'ray://host:10001'."),
        ("local", "--address takes auto or HOST:PORT of a cluster that this machine is a node of, not 'local'."),
        ("127.0.0.1:1", "nothing answers at 127.0.0.1:1, where a Ray cluster was to be: ConnectionRefusedError"),
        ("127.0.0.1:99999", "nothing answers at 127.0.0.1:99999"),
    ],
)
@theirs
def test_an_address_where_no_cluster_is(address: str, sentence: str) -> None:
    pytest.importorskip("ray", reason=WITHOUT)
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"), connected(address, gpus=0, silence=60):
        pass


@theirs
def test_no_cluster_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason=WITHOUT)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", partial(_raise, ConnectionError("many words")))
    sentence = "there is no Ray cluster at auto; on one of its nodes give auto or HOST:PORT, or start one: ray start --head."
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"), connected("auto", gpus=0, silence=60):
        pass


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^--executor ray needs Ray: pip install 'linbench\[ray\]'\.$"), connected("auto", gpus=0, silence=60):
        pass


def _raise(error: Exception, *_: Any, **__: Any) -> None:
    raise error
