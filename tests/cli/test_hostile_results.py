"""Result files that are not what they should be: each is told in a sentence and set aside, and the rest goes
on."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common import files
from linbench.common.hashing import canonical, digest
from linbench.experiments.cell import SCHEMA
from linbench.results.schema import Result, misfit
from linbench.results.schema.fields import DRAW, OPERATION, STEP, SWEEP
from linbench.results.store import Store
from tests.helpers.records import ENVIRONMENT, a_point, a_record
from tests.helpers.speeds import a_speed

REPLACEMENTS: list[Any] = [
    None,
    -1,
    0,
    1,
    0.5,
    2**62,
    1e299,
    True,
    [],
    [[]],
    [1],
    ["x"],
    {},
    {"a": [1]},
    "",
    "x",
]
MISSING = object()
ID = "a" * 64

Folder = Callable[..., Path]


def records() -> list[Result]:
    """One whole result of every kind."""
    slices = {"distance": {"at": [1, 2], "accuracy": {"sum": [3, 4.5], "weight": [4, 5]}}}
    cell = a_record(
        "1" * 64,
        slices=slices,
        search={"best": 0.01, "edge": False, "seeds": [100], "accuracies": [[0.01, 0.5], [0.1, None]]},
        preset="quick",
    )
    tests = [
        {
            "settings": {"seq_len": length},
            "seq_len": length,
            "chance": 0.25,
            "metrics": {"accuracy": 0.5},
            "slices": slices,
        }
        for length in (16, 32)
    ]
    tested = a_record("2" * 64, tests=tests)
    tested["cell"]["task"]["test"] = [{"settings": {"seq_len": 16}}, {"settings": {"seq_len": 32}}]
    speed = a_speed(peer="fla") | {"id": "3" * 64, "schema": SCHEMA, "when": "2026"}
    timing = speed["sides"]["linbench"]["as_called"]
    common = {
        name: speed[name]
        for name in (
            "schema",
            "status",
            "reason",
            "marks",
            "state",
            "cost",
            "ceilings",
            "first_call",
            "of_peer",
            "when",
        )
    }
    common |= {"environment": ENVIRONMENT}
    place = {"device": "cpu", "peer": None, "processor": {"name": "a CPU", "threads": 2}}
    sides, task = {"linbench": {"as_called": timing, "peak_bytes": 8}}, cell["cell"]["task"]
    kernel = {"operation": "gla", "shape": {"B": 1, "T": 2, "H": 1, "D": 4}, "precision": "fp32", **place}
    step = {
        "model": cell["cell"]["model"],
        "task": task,
        "shape": {"B": 1, "T": 2, "D": 4},
        "replicas": 2,
        "precision": "fp32",
        **place,
    }
    draw = {"task": task, "preset": "quick", "seq_len": 16, **place}
    suite = {
        "version": 1,
        "suite": "quick",
        "cells": "c" * 64,
        "executor": "local",
        "devices": 1,
        "workers": 2,
        "stack": None,
        **place,
    }
    return [
        cell,
        tested,
        speed,
        {
            **common,
            "kind": OPERATION,
            "id": "4" * 64,
            "label": "gla",
            "bench": kernel,
            "sides": {"linbench": {"both": {"as_called": timing}}},
            "bare": timing,
        },
        {
            **common,
            "kind": STEP,
            "id": "5" * 64,
            "label": "deltanet",
            "bench": step,
            "sides": sides,
            "parts": {"gates": 0.1},
        },
        {
            **common,
            "kind": DRAW,
            "id": "6" * 64,
            "label": "mqar",
            "bench": draw,
            "sides": sides,
            "examples": 8,
        },
        {
            **common,
            "kind": SWEEP,
            "id": "7" * 64,
            "label": "quick",
            "bench": suite,
            "spent": {"seconds": 2.0, "cells": 4, "failed": 1, "tokens": 64, "parts": {"training": 1.5}},
        },
    ]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in a record, of lists that of the first."""
    parts = (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    )
    for name, part in parts:
        yield (*path, name)
        yield from places(part, (*path, name))


def changed(result: Result, path: tuple[str | int, ...], value: Any) -> Result:
    """The result with another value there, or none."""
    made: Any = deepcopy(result)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return dict(made)


def mutants() -> list[Result]:
    """All results with one field replaced or left out, each under an id of its own."""
    found = {}
    for result in records():
        for path in places(result):
            if path[0] not in ("id", "schema"):
                for value in (*REPLACEMENTS, MISSING):
                    made = changed(result, path, value)
                    made["id"] = digest([result["id"], path, str(value)])
                    found[made["id"]] = made
    return list(found.values())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with files of these results, whose checksums fit."""

    def make(name: str, results: Any) -> Path:
        (tmp_path / name).mkdir(parents=True)
        for result in results:
            (tmp_path / name / f"{result['id']}.json").write_text(
                canonical({**result, "checksum": digest(result)})
            )
        return tmp_path / name

    return make


def test_what_is_stored_is_a_record() -> None:
    assert [misfit(result) for result in records()] == [None] * 7


def test_a_field_of_another_type_is_told_by_its_name(folder: Folder, snapshot: SnapshotAssertion) -> None:
    store = Store(folder("results", [a_record(ID, curve=[a_point() | {"step": [1]}])]))
    assert store.all() == []
    ((path, why),) = store.set_aside.items()
    assert path == store.folder / f"{ID}.json"
    assert why == snapshot


@pytest.mark.slow
def test_whatever_fits_a_record_is_read_by_every_verb_and_the_rest_is_told(
    linbench: Callable[..., Any], folder: Folder
) -> None:
    made = mutants()
    wrong = [one for one in made if misfit(one) is not None]
    assert len(made) > 3000
    assert len(wrong) > len(made) * 2 / 3
    assert all("\n" not in str(misfit(one)) for one in wrong)
    whole, sick = folder("whole", records()), folder("sick", [*records(), *made])
    for words in (
        ("table",),
        ("table", "--save", "tables"),
        ("gate", "--baseline", whole, "--candidate", sick),
        ("gate", "--baseline", sick, "--candidate", whole),
    ):
        ended = linbench(*words, *(("--results", sick) if words[0] == "table" else ()))
        assert ended.code != 70, ended.err[-2000:]
        assert ended.err.count("linbench: ignored result file ") == len(wrong)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:constrained_layout")  # hundreds of rows have no room, and need none
@pytest.mark.parametrize(
    ("verb", "every"),
    [("figures", 12), ("report", 4), ("claims", 4), pytest.param("figures", 4, marks=pytest.mark.nightly)],
)
def test_whatever_fits_a_record_is_drawn(
    linbench: Callable[..., Any], folder: Folder, verb: str, every: int
) -> None:
    fitting = [one for one in mutants() if misfit(one) is None]
    ended = linbench(verb, "--results", folder("sick", [*records(), *fitting[::every]]))
    assert ended.code == 0, ended.err[-2000:]


def _torn(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def _surrogate(path: Path) -> None:
    result = a_record(path.stem, label="\ud800")
    path.write_text(canonical({**result, "checksum": digest(result)}))


def _many_digits(path: Path) -> None:
    result = a_record(path.stem, more=10**4000)
    path.write_text(canonical({**result, "checksum": digest(result)}))


def _deep(path: Path) -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]
    result = a_record(path.stem, more=value)
    path.write_text(canonical({**result, "checksum": digest(result)}))


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(files.MOST_BYTES + 1)


HOSTILE: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "brackets": (_torn, "it is torn, altered or not its own"),
    "half a character": (_surrogate, "it is torn, altered or not its own"),
    "digits": (_many_digits, "it is torn, altered or not its own"),
    "depth": (_deep, "it is torn, altered or not its own"),
    "a list": (lambda path: path.write_text("[1]") and None, "it is torn, altered or not its own"),
    "a folder": (lambda path: path.mkdir(), "it is a folder, not a file"),
    "a pipe": (lambda path: os.mkfifo(path), "it is a pipe, not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "it is a device or socket, not a file"),
    "a link to itself": (
        lambda path: path.symlink_to(path.name),
        "it cannot be read: Too many levels of symbolic links",
    ),
    "size": (_large, "it is larger than the limit of 64 MiB"),
}
VERBS = {
    "table": ("table", "--results", "sick"),
    "figures": ("figures", "dot", "--results", "sick"),
    "gate": ("gate", "--baseline", "sick", "--candidate", "sick"),
    "claims": ("claims", "C17", "--results", "sick"),
    "sweep": (
        "sweep",
        "quick",
        "--dry-run",
        "--only",
        "mqar",
        "--model",
        "deltanet",
        "--seeds",
        "0",
        "--device",
        "cpu",
        "--results",
        "sick",
    ),
    "report": ("report", "--results", "sick"),
}


@pytest.mark.parametrize(
    "verb",
    [pytest.param(verb, marks=pytest.mark.slow if verb in ("report", "sweep") else ()) for verb in VERBS],
)
def test_what_is_no_file_or_no_json_is_told_and_the_rest_goes_on(
    linbench: Callable[..., Any], folder: Folder, monkeypatch: Any, verb: str
) -> None:
    sick = folder("sick", records())
    monkeypatch.chdir(sick.parent)
    for number, (make, _) in enumerate(HOSTILE.values()):
        make(Path("sick") / f"{number:064x}.json")
    words = list(VERBS[verb])
    if verb == "figures":
        words[1] = "learning-curves"
    ended = linbench(*words)
    assert ended.code in ((5,) if verb == "gate" else (0,)), ended.err
    for number, (_, why) in enumerate(HOSTILE.values()):
        path = f"sick/{number:064x}.json"
        assert f"linbench: ignored result file {path}: {why}.\n" in ended.err


def test_a_file_and_a_folder_that_may_not_be_read_are_told(
    linbench: Callable[..., Any], folder: Folder, monkeypatch: Any, snapshot: SnapshotAssertion
) -> None:
    sick, below = folder("sick", [a_record(ID)]), folder("sick/below", [a_record("b" * 64)])
    monkeypatch.chdir(sick.parent)
    opening, scanning = os.open, os.scandir

    def refuse(path: Any, *more: Any, **named: Any) -> Any:
        if Path(os.fspath(path)).stem == ID:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opening(path, *more, **named)

    def close(path: Any = ".") -> Any:
        if os.fspath(path) == "sick/below":
            raise PermissionError(errno.EACCES, "Permission denied", "sick/below")
        return scanning(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "scandir", close)
    told = linbench("table", "--results", "sick").err.splitlines()[0]
    assert told.replace(ID, "ID") == snapshot(name="file")
    ended = linbench("claims", "C17", "--results", "sick")
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert told in lines
    assert next(line for line in lines if "sick/below" in line) == snapshot(name="folder")
    assert below.is_dir()


def test_a_cell_whose_file_does_not_count_is_kept_again_and_the_file_beside_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    for number, (make, why) in enumerate(HOSTILE.values()):
        cell = f"{number:064x}"
        path = tmp_path / f"{cell}.json"
        make(path)
        store.put(a_record(cell))
        assert store.get(cell) == a_record(cell)
        assert store.set_aside[path.with_name(f"{path.name}.unreadable-0")] == why


def test_nothing_is_kept_that_would_not_be_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    with pytest.raises(ValueError, match=r"cell.seed should be a valid integer"):
        store.put(changed(a_record(ID), ("cell", "seed"), "0"))
    assert store.all() == []


def test_names_of_fields_are_cut_and_escaped() -> None:
    told = misfit(a_record(ID, metrics={"\x1b[31m" + "x" * 500: []}))
    assert told is not None
    assert "\x1b" not in told
    assert len(told) < 120


def test_unknown_fields_and_the_bytes_of_a_record_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    whole = store.put(a_record(ID, later={"more": [1, "two"]})).read_text()
    assert store.get(ID) == a_record(ID, later={"more": [1, "two"]})
    assert json.loads(whole)["later"] == {"more": [1, "two"]}
