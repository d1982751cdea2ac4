"""Names that users choose: they are shown, and never become a path.

A name that cannot be written leaves earlier files as they were.
"""

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.results.store import Store

TASK = """
from linbench.tasks.mqar import MQAR

class Full(MQAR):
    "A task of someone's own."
    name = "full"
"""
FEW = {"batch_size": 4, "tokens": 640, "evaluations": 5, "validation_examples": 8, "test_examples": 16}
PARITY = [
    "--device",
    "cpu",
    "--set",
    "model.d_model=16",
    *(word for name in FEW for word in ("--set", f"protocol.{name}={FEW[name]}")),
]


def titles(text: str) -> list[str]:
    return re.findall("^### (.*)$", text, re.MULTILINE)


@pytest.fixture
def stored(tmp_path: Path, a_result: Callable[..., Any]) -> Callable[..., None]:
    """Keeps a result whose task is called so, as someone would who knows how a checksum is made."""

    def keep(name: str) -> None:
        store = Store(tmp_path / "results")
        store.prepare()
        result = a_result(
            "deltanet",
            curve=[{"step": i, "tokens": i, "accuracy": i / 3, "loss": 1.0, "nll": 1.0} for i in (1, 2)],
        )
        result["cell"]["task"]["name"] = name
        store.put(result | {"id": digest([result["id"], name]), "schema": SCHEMA})

    return keep


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_tests_of_several_lengths_are_told_in_words(linbench: Callable[..., Any]) -> None:
    for more in ([], ["--test-lengths", "1x,2x"]):
        assert linbench("run", "parity", "--model", "deltanet", *PARITY, *more).code == 0
    ended = linbench("table", "--save", "tables")
    assert ended.code == 0, ended.err
    lengths = "max_length 32 / min_length 8, max_length 64 / min_length 16"
    assert titles(linbench("table").out) == ["parity, native", f"parity test {lengths}, native"]
    assert not any(re.search(r"\{'|'\}", path.read_text()) for path in Path("tables").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("absolute", [False, True])
def test_a_task_by_its_path_is_drawn_and_kept_where_results_are(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path, absolute: bool
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tk.py").write_text(TASK)
    task = f"{tmp_path}/sub/tk.py:Full" if absolute else "sub/tk.py:Full"
    ended = linbench("run", task, "--model", "deltanet", *tiny)
    assert ended.code == 0, ended.err
    drawn = re.findall("^drew (.*)$", ended.err, re.MULTILINE)
    assert drawn
    assert all(Path(path).parent == Path("results/figures") for path in drawn)
    for verb in (["figures", "learning-curves"], ["table", "--save", "tables"], ["report"]):
        assert linbench(*verb).code == 0
    assert [path.name for path in (tmp_path / "sub").iterdir() if path.name != "__pycache__"] == ["tk.py"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_two_versions_of_a_task_are_told_apart(
    linbench: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
    for text in (TASK, TASK + "\n# edited\n"):
        (tmp_path / "tk.py").write_text(text)
        assert linbench("run", "./tk.py:Full", "--model", "deltanet", *tiny).code == 0
    found = titles(linbench("table").out)
    assert len(set(found)) == 2
    assert all(re.search(r" source [0-9a-f]{8}, native$", title) for title in found)
    linbench("table", "--save", "tables")
    overview = Path("tables/by-task-native-form-cpu.md").read_text()
    assert overview.count(" source ") == 2
    assert not re.search(r"\d / \d", overview)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["../pwn", "../../.bashrc", "/etc/pwn", "{}/pwn", "a/../../pwn", "..", ".bashrc", "x\x00y", "n" * 5000],
)
def test_the_name_of_a_task_writes_nothing_outside(
    linbench: Callable[..., Any], stored: Callable[..., None], tmp_path: Path, name: str
) -> None:
    stored(name.format(tmp_path))
    for verb in (
        ["table", "--save", "out/tables"],
        ["figures", "learning-curves", "--formats", "svg", "--save", "out/figures"],
        ["report"],
    ):
        ended = linbench(*verb)
        assert ended.code == 0, ended.err
    outside = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.parent.name not in {"tables", "figures", "results"}
    ]
    assert outside == []
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*", path.name) for path in (tmp_path / "out").rglob("*"))


@pytest.mark.slow
def test_a_link_among_results_leads_nothing_outside(
    linbench: Callable[..., Any],
    stored: Callable[..., None],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    """Nor is a file that such a link is to written over."""
    stored("mqar")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine").write_text("mine")
    Path("results/figures").symlink_to(tmp_path / "elsewhere")
    Path("results/report.html").symlink_to(tmp_path / "mine")
    for verb in ("figures", "report"):
        ended = linbench(verb)
        assert ended.code == 6
        assert ended.err.replace(str(tmp_path), "FOLDER") == snapshot(name=verb)
    Path("tables").mkdir()
    Path("tables/mqar-quick-native.md").symlink_to(tmp_path / "mine")
    assert linbench("table", "--save", "tables").code == 6
    assert (tmp_path / "mine").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_leaves_what_was_written_before(
    linbench: Callable[..., Any], stored: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    verbs = (
        ["table", "--save", "tables"],
        ["figures", "learning-curves", "--save", "drawn", "--formats", "png,svg,pdf"],
        ["report", "--save", "page.html"],
        ["claims", "C19", "--results", "results", "--save", "claims.md"],
    )
    stored("mqar")
    for verb in verbs:
        assert linbench(*verb).code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    stored("mqar again")
    kept = {path for path in tmp_path.rglob("*.json") if path.parent.name == "results"}
    monkeypatch.setattr(os, "fsync", full)
    for verb in verbs:
        ended = linbench(*verb)
        assert (ended.code, ended.err.count("\n")) == (6, 1), ended.err
        assert "the disk is full" in ended.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path not in kept}
    assert after == {path: content for path, content in before.items() if path not in kept}


@pytest.mark.slow
def test_what_fails_in_drawing_costs_the_pictures_alone(
    linbench: Callable[..., Any], tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("no such luck\x1b[31m")

    monkeypatch.setattr("linbench.report.figure.save", broken)
    ended = linbench("run", "mqar", "--model", "deltanet", *tiny)
    assert ended.code == 0
    assert titles(ended.out) == ["mqar, native"]
    last = ended.err.splitlines()[-1]
    assert "ZeroDivisionError: no such luck\\x1b[31m" in last
    assert "`linbench figures`" in last
    Path("results/figures").write_text("in the way")
    monkeypatch.undo()


@pytest.mark.slow
def test_pictures_that_cannot_be_written_are_an_error_of_storage_after_the_table(
    linbench: Callable[..., Any], tiny: list[str], snapshot: SnapshotAssertion
) -> None:
    Path("results").mkdir()
    Path("results/figures").write_text("in the way")
    ended = linbench("run", "mqar", "--model", "deltanet", *tiny, "--json")
    assert ended.code == 6
    assert json.loads(ended.out)[0]["status"] == "ok"
    assert ended.err.splitlines()[-1] == snapshot


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unprobed")
def test_what_a_layer_raises_is_told_without_its_escapes(
    linbench: Callable[..., Any], tiny: list[str]
) -> None:
    Path("mine.py").write_text(
        "from torch import nn\n\nclass Mine(nn.Module):\n    def __init__(self, d_model):\n       "
        " super().__init__()\n        self.linear = nn.Linear(d_model, d_model)\n\n    def forward(self,"
        " x):\n        raise ValueError('\\x1b[31m\\x9bred <b>@org</b>')\n"
    )
    ended = linbench("run", "mqar", "--model", "./mine.py:Mine", "--workers", "0", *tiny)
    assert ended.code == 3
    assert "\\x1b[31m\\x9bred <b>@org</b>" in ended.err
    assert "\x1b" not in ended.err + ended.out
    assert "\x9b" not in ended.err + ended.out
