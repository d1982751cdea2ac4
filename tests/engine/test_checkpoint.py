"""A group that is broken off goes on where it was, to the same numbers."""

import hashlib
import json
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from safetensors.torch import load, save

from linbench.common.hashing import canonical, digest
from linbench.engine import jobs, train
from linbench.engine.checkpoint import Checkpoint, Checkpoints, composition
from linbench.engine.progress import NoProgress, Report
from linbench.engine.runner import run_cells
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.cells import build_cells, measured, plan, tiny_settings

TINY = tiny_settings(20, examples=32)
DRAWING = """
from torch import nn
class Mine(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear, self.dropout = nn.Linear(dim, dim), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(dim, track_running_stats=True)
    def forward(self, x):
        return self.norm(self.dropout(self.linear(x)).transpose(1, 2)).transpose(1, 2)
"""


class BrokenOff(BaseException):
    """An end of the process that no handler catches, like that by a signal."""


class Breaking(NoProgress):
    """Breaks off when a group reports a step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.steps: list[int] = []

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        self.steps.append(report.step)
        if report.step == self.step:
            raise BrokenOff


def cells(model: str = "gated_deltanet", seeds: Sequence[int] = (0, 1, 2), **settings: Any) -> list[Cell]:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return build_cells(model, seeds=seeds, settings=TINY | dotted)


@pytest.fixture(autouse=True)
def at_every_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a checkpoint whenever one could be saved, which is after every step."""
    monkeypatch.setattr(jobs, "Checkpoints", lambda folder: Checkpoints(folder, seconds=0.0))
    monkeypatch.setattr(train, "LEAST_STEPS_BETWEEN_READS", 1)


def broken_off(group: Sequence[Cell], folder: Path, *steps: int) -> list[Result]:
    """Run in the folder, broken off at each of these steps."""
    for step in steps:
        with pytest.raises(BrokenOff):
            run_cells(group, Store(folder), Breaking(step), stack=8)
        assert list((folder / ".checkpoints").glob("*.checkpoint"))
    watching = Breaking(-1)
    found = run_cells(group, Store(folder), watching, stack=8)
    assert min(watching.steps) >= max(steps, default=0), "it began anew"
    assert not list((folder / ".checkpoints").iterdir())
    return found


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("steps", [(9, 17), pytest.param((5,), marks=pytest.mark.slow)])
def test_broken_off_groups_end_with_the_same_measured(
    tmp_path: Path, count: int, steps: tuple[int, ...]
) -> None:
    group = cells(seeds=range(count))
    assert measured(broken_off(group, tmp_path / "broken", *steps)) == measured(
        run_cells(group, Store(tmp_path / "whole"), NoProgress(), stack=8)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize("count", [1, 2])
def test_what_modules_draw_and_count_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(DRAWING)
    group = cells("./mine.py:Mine", range(count))
    assert measured(broken_off(group, tmp_path / "broken", 10)) == measured(
        run_cells(group, Store(tmp_path / "whole"), NoProgress(), stack=8)
    )


def mixture(count: int) -> list[Cell]:
    train = [{"seq_len": 8, "examples": 10}, {"kv_pairs": 4, "examples": 18}, {"seq_len": 32, "examples": 3}]
    more = {
        "protocol.epochs": 2,
        "protocol.schedule": "epoch_cosine",
        "protocol.shuffle": True,
        "model.embedding_dropout": 0.1,
    }
    return plan(
        "mqar",
        ["deltanet"],
        device="cpu",
        seeds=range(count),
        settings=TINY | more,
        train=train,
        test=[{}, {"seq_len": 32, "kv_pairs": 4}],
    )


@cache
def unbroken_mixture(count: int) -> list[list[Any]]:
    """Return the results of a run that is not broken off.

    They are the same for every step at which another run is.
    """
    with TemporaryDirectory() as folder:
        whole = run_cells(mixture(count), Store(Path(folder)), NoProgress(), stack=8)
    return [measured([one]) + one["tests"] for one in whole]


@pytest.mark.parametrize(
    ("count", "step"),
    [
        pytest.param(count, step, marks=() if (count, step) == (2, 10) else pytest.mark.slow)
        for count, steps in ((1, (2, 6, 9, 10, 18)), (2, range(2, 19)))
        for step in steps
    ],
)
def test_a_mixture_goes_on_at_the_batch_where_it_was(tmp_path: Path, count: int, step: int) -> None:
    """Nine steps an epoch: within a segment, between two and between epochs."""
    assert mixture(count)[0].steps == 18
    broken = broken_off(mixture(count), tmp_path, step)
    assert [measured([one]) + one["tests"] for one in broken] == unbroken_mixture(count)


@pytest.mark.slow
def test_a_group_of_which_some_are_over_goes_on_with_the_rest(tmp_path: Path) -> None:
    group = [*cells(), *cells(seeds=[3, 4], protocol__lr=1e30)]
    whole = run_cells(group, Store(tmp_path / "whole"), NoProgress(), stack=8)
    assert [result["status"] for result in whole] == ["ok"] * 3 + ["diverged"] * 2
    assert measured(broken_off(group, tmp_path / "broken", 10)) == measured(whole)


@pytest.mark.slow
def test_what_stopped_early_is_kept_and_not_trained_again(tmp_path: Path) -> None:
    at_step_8 = [
        result["curve"][1]["accuracy"]
        for result in run_cells(cells(), Store(tmp_path / "first"), NoProgress(), stack=8)
    ]
    group = cells(protocol__stop_at=max(at_step_8))
    whole = run_cells(group, Store(tmp_path / "whole"), NoProgress(), stack=8)
    stopped = [len(result["curve"]) == 2 for result in whole]
    assert any(stopped)
    assert not all(stopped)
    store = Store(tmp_path / "broken")
    with pytest.raises(BrokenOff):
        run_cells(group, store, Breaking(10), stack=8)
    assert measured(run_cells(group, store, NoProgress(), stack=8)) == measured(whole)


WAITS = """
from torch import nn
class Mine(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
    def forward(self, x):
        return self.linear(x) * (2.0 if x.sum().item() > 1e9 else 1.0)
"""


@pytest.mark.slow
def test_why_a_group_could_not_be_stacked_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(WAITS)
    group, store = cells("./mine.py:Mine", [0, 1]), Store(tmp_path)
    with pytest.raises(BrokenOff):
        run_cells(group, store, Breaking(10), stack=8)
    watching = Breaking(-1)
    resumed, _ = run_cells(group, store, watching, stack=8)
    assert watching.steps[0] >= 10, "it began anew"
    assert resumed["stack"]["note"].split(": ")[:2] == ["could not be stacked", "mine.py line 8"]


@pytest.mark.parametrize(
    "harm",
    ["a bit", pytest.param("cut off", marks=pytest.mark.slow), pytest.param("empty", marks=pytest.mark.slow)],
)
def test_a_checkpoint_that_was_harmed_is_not_trusted(tmp_path: Path, harm: str) -> None:
    group = cells(seeds=[0])
    with pytest.raises(BrokenOff):
        run_cells(group, Store(tmp_path), Breaking(10), stack=8)
    (path,) = (tmp_path / ".checkpoints").iterdir()
    content = path.read_bytes()
    generator = random.Random(0)
    harms: dict[str, Callable[[], bytes]] = {
        "cut off": lambda: content[: generator.randrange(len(content))],
        "a bit": lambda: flipped(content, generator),
        "empty": lambda: b"",
    }
    for _ in range(50):
        path.write_bytes(harms[harm]())
        assert Checkpoint.read(path) is None
    watching = Breaking(-1)
    (found,) = run_cells(group, Store(tmp_path), watching)
    assert found["status"] == "ok"
    assert min(watching.steps) == 1, "it began anew"


def _nested(path: Path) -> None:
    path.write_bytes(b"[" * 200_000 + b"\n")


def _of_another_shape(path: Path) -> None:
    numbers = {"cells": ["a"], "runs": 5, "step": 1, "trained": 1, "seconds": 1.0, "tensors": "x"}
    path.write_bytes(canonical({**numbers, "checksum": digest(numbers)}).encode() + b"\n")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "nested": _nested,
    "of another shape": _of_another_shape,
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=() if name == "a folder" else pytest.mark.slow) for name in HOSTILE]
)
def test_whatever_has_the_name_of_a_checkpoint_hinders_no_run(tmp_path: Path, what: str) -> None:
    group, store = cells(seeds=[0]), Store(tmp_path)
    (tmp_path / ".checkpoints").mkdir()
    own, other = (tmp_path / ".checkpoints" / f"{name}.checkpoint" for name in (composition(group), "other"))
    for path in (own, other):
        HOSTILE[what](path)
        assert Checkpoint.read(path) is None
    with pytest.raises(BrokenOff):
        run_cells(group, store, Breaking(10), stack=8)
    assert Checkpoint.read(own) is not None, "it was kept all the same"
    watching = Breaking(-1)
    (found,) = run_cells(group, store, watching, stack=8)
    assert found["status"] == "ok"
    assert min(watching.steps) > 1, "it went on"


DRAWS = """
import random
import numpy as np
from torch import nn
class Draws(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
    def forward(self, x):
        noise = random.gauss() + float(np.random.randn()) if self.training else 0.0
        return self.linear(x) * (1 + 0.1 * noise)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", [8, 10])
def test_what_a_layer_draws_with_other_generators_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("draws.py").write_text(DRAWS)
    group = cells("./draws.py:Draws", [0])
    whole = run_cells(group, Store(tmp_path / "whole"), NoProgress(), stack=8)
    assert whole[0]["status"] == "ok"
    assert measured(broken_off(group, tmp_path / "broken", step)) == measured(whole)


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "no cells": lambda head: head.pop("cells"),
    "a number as cells": lambda head: head.update(cells=1),
    "cells without runs": lambda head: head.update(runs=[]),
    "a run that is none": lambda head: head.update(runs=[1]),
    "a run of other fields": lambda head: head.update(runs=[{"curve": []}]),
    "a curve of texts": lambda head: head["runs"][0].update(curve=["x"]),
    "a step that is none": lambda head: head.update(step="x"),
    "a step before the first": lambda head: head.update(step=-1),
    "a text as seconds": lambda head: head.update(seconds="x"),
}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The checkpoint of a group of one that was broken off."""
    with pytest.raises(BrokenOff):
        run_cells(cells(seeds=[0]), Store(tmp_path), Breaking(10), stack=8)
    (path,) = (tmp_path / ".checkpoints").iterdir()
    return path


def test_a_forged_checkpoint_whose_checksum_fits_is_not_trusted(kept: Path) -> None:
    head, _, content = kept.read_bytes().partition(b"\n")
    assert Checkpoint.read(kept) is not None
    for forge in FORGED.values():
        numbers = json.loads(head)
        del numbers["checksum"]
        forge(numbers)
        kept.write_bytes(json.dumps(numbers | {"checksum": digest(numbers)}).encode() + b"\n" + content)
        assert Checkpoint.read(kept) is None


@pytest.mark.parametrize("harm", ["left out", "of another shape"])
def test_tensors_that_do_not_fit_the_training_are_not_taken(kept: Path, harm: str) -> None:
    head, _, content = kept.read_bytes().partition(b"\n")
    tensors = load(content)
    if harm == "left out":
        del tensors["weight embedding.weight"]
    else:
        tensors["weight embedding.weight"] = tensors["weight embedding.weight"][:, :-1].clone()
    content = save(tensors)
    numbers = json.loads(head) | {"tensors": hashlib.sha256(content).hexdigest()}
    del numbers["checksum"]
    kept.write_bytes(json.dumps(numbers | {"checksum": digest(numbers)}).encode() + b"\n" + content)
    watching = Breaking(-1)
    (found,) = run_cells(cells(seeds=[0]), Store(kept.parent.parent), watching)
    assert (found["status"], min(watching.steps)) == ("ok", 1)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.mkdir(),
    ]
    + [
        lambda path, text=text: path.write_bytes(text)
        for text in (b"[" * 100_000, b'{"a":' * 100_000, b"[1]\n", b"1\n")
    ],
)
def test_what_is_no_checkpoint_is_not_waited_for(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    path = tmp_path / f"{'a' * 64}.checkpoint"
    make(path)
    assert Checkpoint.read(path) is None
    assert Checkpoints(tmp_path).resumable(cells(seeds=[0]), {}, set()) == []


def flipped(content: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << generator.randrange(8)]) + content[place + 1 :]


@pytest.mark.slow
def test_another_group_does_not_take_it(tmp_path: Path) -> None:
    with pytest.raises(BrokenOff):
        run_cells(cells(seeds=[0, 1]), Store(tmp_path), Breaking(10), stack=8)
    watching = Breaking(-1)
    run_cells(cells(seeds=[0]), Store(tmp_path), watching, stack=8)
    assert min(watching.steps) == 1


@pytest.mark.slow
@pytest.mark.parametrize("done", [(0, 1), (1,)])
def test_what_was_done_in_other_groups_leaves_no_checkpoint(tmp_path: Path, done: Sequence[int]) -> None:
    with pytest.raises(BrokenOff):
        run_cells(cells(seeds=[0, 1]), Store(tmp_path), Breaking(10), stack=8)
    for seed in done:
        run_cells(cells(seeds=[seed]), Store(tmp_path), NoProgress(), stack=8)
    assert list((tmp_path / ".checkpoints").iterdir())
    run_cells(cells(seeds=[0, 1]), Store(tmp_path), NoProgress(), stack=8)
    assert not list((tmp_path / ".checkpoints").iterdir())


def test_checkpoints_are_kept_no_more_often_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "Checkpoints", lambda folder: Checkpoints(folder, seconds=1000.0))
    with pytest.raises(BrokenOff):
        run_cells(cells(seeds=[0]), Store(tmp_path), Breaking(15))
    assert not (tmp_path / ".checkpoints").exists()
