"""Groups on a Ray cluster, of which nodes and workers get lost."""

import pickle
import re
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import ClusterLostError, UserError
from linbench.engine import ray_cluster as what
from linbench.engine import runner
from linbench.engine.jobs import Job, Reported, Spent
from linbench.engine.progress import NoProgress
from linbench.engine.ray_cluster import Cluster, _Head, _work_on_node, connect
from linbench.engine.runner import run_cells
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.cells import RecordingProgress, build_cells, tiny_settings

pytestmark = pytest.mark.usefixtures("unprobed")

STEPS = 500
TINY = tiny_settings(STEPS)
MINE = """
import os, time
from pathlib import Path
from torch import nn
from beside import FOLDER
from linbench.engine import measure
responds = measure.device_responds
def not_once(device):
    measure.device_responds = responds  # Ray has others run in this very process
    return False
class Mine(nn.Module):
    def __init__(self, dim, what="nothing"):
        super().__init__()
        self.linear, self.what = nn.Linear(dim, dim), what
    def forward(self, x):
        if self.what == "dies":
            os._exit(7)
        if self.what == "dies later":
            x.sum().item()  # cannot be stacked
            if (FOLDER / "one is done").exists() and not (FOLDER / "died").exists():
                (FOLDER / "died").touch()
                os._exit(7)
        if self.what == "hangs":
            time.sleep(600)
        if self.what == "loses" and not (FOLDER / "lost").exists():
            (FOLDER / "lost").touch()
            measure.device_responds = not_once
            raise RuntimeError("an illegal address")
        return self.linear(x)
"""
WITHOUT = "Ray is not installed: pip install 'linbench[ray]'"
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}


class Counting(Store):
    """Counts what is kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: Counter[str] = Counter()

    def put(self, result: Result) -> Path:
        self.kept[result["id"]] += 1
        return super().put(result)


def cells(*models: str, seeds: Sequence[int] = (0, 1), **settings: Any) -> list[Cell]:
    return build_cells(*models, seeds=seeds, settings=TINY | settings)


def processes(folder: Path) -> list[str]:
    """Return the ids of processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has just ended
            continue
    return [line for line in found if str(folder) in line]


theirs = pytest.mark.filterwarnings("ignore")  # Ray's own warnings are not ours to mend


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of one node with one core; tests may add more. Nothing is left of it in the end."""
    pytest.importorskip("ray", reason=WITHOUT)
    folder = Path(tempfile.mkdtemp(prefix="linbench"))  # the paths of Ray's sockets must be short
    (folder / "ray").mkdir()
    variables = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        from ray import cluster_utils

        head = {**SMALL, "include_dashboard": False}
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        try:
            yield cluster
        finally:
            cluster.shutdown()
            deadline = time.monotonic() + 20
            while (left := processes(folder)) and time.monotonic() < deadline:
                time.sleep(0.1)
            shutil.rmtree(folder, ignore_errors=True)
        assert left == []


@pytest.fixture
def second_node(nodes: Any) -> Iterator[Any]:
    """A second node with one core, which a test may remove."""
    node = nodes.add_node(**SMALL)
    yield node
    if node in nodes.worker_nodes:
        nodes.remove_node(node)


@pytest.mark.slow
@theirs
@pytest.mark.usefixtures("one_thread")
def test_a_node_is_killed_and_every_cell_is_done_exactly_once(
    nodes: Any, second_node: Any, tmp_path: Path
) -> None:
    killed: list[list[int]] = []

    def kill() -> None:
        # on two nodes with a core each, neither about to end
        if not killed and len(at := watching.steps_of_running) == 2 and max(at) < 0.6 * STEPS:
            killed.append(at)
            nodes.remove_node(second_node, allow_graceful=False)

    group, store, watching = (
        cells("linear_attention", "attention", seeds=range(3)),
        Counting(tmp_path / "results"),
        RecordingProgress(kill),
    )
    with connect(nodes.address, gpus=0, timeout=120) as cluster:
        found = run_cells(group, store, watching, executor=cluster, stack=1)
    assert killed, "a node was at work"
    assert [result["reason"] for result in found] == [None] * len(group)
    assert Counter(watching.done_ids) == store.kept == Counter(cell.id for cell in group)
    assert sorted(path.stem for path in store.folder.glob("*.json")) == sorted(cell.id for cell in group)
    assert len(watching.begun_again) == 1, "what the killed node was at was handed out again"
    alone = run_cells(
        [cell for cell in group if cell.id in watching.begun_again], Store(tmp_path / "alone"), NoProgress()
    )
    assert [result["metrics"] for result in alone] == [
        result["metrics"] for result in found if result["id"] in watching.begun_again
    ]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plugin that does what it is told, and needs the file beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.py").write_text(MINE)
    (tmp_path / "models" / "beside.py").write_text(
        f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r})\n"
    )
    return "./models/mine.py:Mine"


@pytest.mark.slow
@pytest.mark.nightly
@theirs
@pytest.mark.usefixtures("second_node")
def test_what_a_plugin_does_costs_no_more_than_it_must(
    nodes: Any, tmp_path: Path, mine: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    sent: list[list[str]] = []
    send = Cluster._send
    monkeypatch.setattr(runner, "TRIES", 2)  # each takes the start of a process
    monkeypatch.setattr(Cluster, "_send", lambda self, job: (sent.append([*job.wanted]), send(self, job))[1])
    dies, hangs, loses, does = (
        cells(mine, seeds=[0], **{"model.what": what})[0] for what in ("dies", "hangs", "loses", "nothing")
    )
    first, second = cells(mine, **{"model.what": "dies later"})
    store, watching = (
        Counting(tmp_path / "results"),
        RecordingProgress(
            lambda: (tmp_path / "one is done").touch() if first.id in watching.done_ids else None
        ),
    )
    with connect(nodes.address, gpus=0, timeout=15) as cluster:
        found = run_cells([dies, hangs, loses, does, first, second], store, watching, executor=cluster)
    assert [result["status"] for result in found] == ["failed", "timeout", "ok", "ok", "ok", "ok"]
    assert [names for names in sent if loses.id in names] == [[loses.id]] * 2
    assert [found[0]["reason"], found[1]["reason"]] == snapshot
    assert (tmp_path / "died").exists()
    assert [names for names in sent if second.id in names] == [
        [first.id, second.id],
        [second.id],
    ], "the first of the group had its result"
    assert set(store.kept.values()) == {1}


def on_a_node(these: Sequence[Cell], names: Sequence[str]) -> list[Any]:
    """Return the answers of a node."""
    return list(_work_on_node(pickle.dumps(Job([*these], [*names], None)), [*names], 0))


@pytest.mark.slow
def test_a_node_says_that_it_begins_and_then_all_that_it_finds(tmp_path: Path) -> None:
    group = cells("deltanet", **{"protocol.tokens": 10 * 4 * 16})
    said = on_a_node(group, [cell.id for cell in group])
    assert said[0] is None
    assert {name for message in said[1:] if isinstance(message, Reported) for name in message.cells} == {
        cell.id for cell in group
    }
    found = [message for message in said[1:] if not isinstance(message, Reported | Spent)]
    alone = run_cells(group, Store(tmp_path), NoProgress())
    assert [(result["id"], result["metrics"]) for result in found] == [
        (result["id"], result["metrics"]) for result in alone
    ]


@pytest.mark.parametrize(
    "named", ["./models/mine.py:Mine", "../{}/models/mine.py:Mine", "{}/models/mine.py:Mine"]
)
def test_plugins_are_sent_and_no_name_of_theirs_is_written_on_a_node(
    tmp_path: Path, mine: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = named.format(tmp_path.name if named.startswith("..") else tmp_path)
    group = cells(named, seeds=[0], **{"protocol.tokens": 10 * 4 * 16})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    shutil.rmtree(tmp_path / "models")
    *_, result, last = on_a_node(group, [group[0].id])
    assert result["status"] == "ok"
    assert isinstance(last, Spent)
    assert Path.cwd() == tmp_path / "elsewhere"
    assert [*tmp_path.iterdir()] == [tmp_path / "elsewhere"]
    assert [*Path.cwd().iterdir()] == []


def test_a_node_that_would_measure_something_else_refuses() -> None:
    with pytest.raises(
        UserError,
        match="the node has another kind of GPU or another linbench than the machine that planned the run",
    ):
        on_a_node(cells("deltanet"), ["0" * 64, "1" * 64])


@pytest.mark.slow
@theirs
def test_a_cluster_that_cannot_run_a_group_is_refused(nodes: Any) -> None:
    with (
        pytest.raises(UserError, match=r"^no node of the Ray cluster at \S+ has 0.25 GPU for a group\.$"),
        connect(nodes.address, gpus=0.25, timeout=60),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (
            "ray://host:10001",
            (
                "--address takes auto or HOST:PORT of a cluster that this machine is a node of, not"
                " 'ray://host:10001'."
            ),
        ),
        (
            "local",
            "--address takes auto or HOST:PORT of a cluster that this machine is a node of, not 'local'.",
        ),
        (
            "127.0.0.1:1",
            "no Ray cluster answers at 127.0.0.1:1: ConnectionRefusedError",
        ),
        ("127.0.0.1:65535", "no Ray cluster answers at 127.0.0.1:65535"),
    ],
)
@theirs
def test_an_address_where_no_cluster_is(address: str, sentence: str) -> None:
    pytest.importorskip("ray", reason=WITHOUT)
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"), connect(address, gpus=0, timeout=60):
        pass


@theirs
def test_no_cluster_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason=WITHOUT)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", partial(_raise, ConnectionError("many words")))
    sentence = (
        "there is no Ray cluster at auto; on one of its nodes give auto or HOST:PORT, or start one: ray start"
        " --head."
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"), connect("auto", gpus=0, timeout=60):
        pass


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UserError, match=r"^--executor ray needs Ray: pip install 'linbench\[ray\]'\.$"),
        connect("auto", gpus=0, timeout=60),
    ):
        pass


def _raise(error: Exception, *_: Any, **__: Any) -> None:
    raise error


@pytest.mark.slow
def test_a_head_that_answers_nothing_is_told_of_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what, "_HEAD_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        head = _Head(address)
        head.require()
        assert head.answers
    head.require()
    assert not head.answers
    time.sleep(2.0)
    with pytest.raises(
        ClusterLostError,
        match=(
            rf"the head of the Ray cluster at {address} has answered nothing for \d s\. What is finished is"
            r" kept"
        ),
    ):
        head.require()
