"""`linbench results`: packing, unpacking and verifying what is stored."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.results import reference
from linbench.results.store import Store
from tests.helpers.records import a_record

IDS = ["a" * 64, "b" * 64]


@pytest.fixture
def stored(linbench: Callable[..., Any]) -> Store:
    """Two results in the folder `results`."""
    store = Store("results")
    store.prepare()
    for one in IDS:
        store.put(a_record(one))
    return store


@pytest.mark.usefixtures("stored")
def test_packed_unpacked_and_verified(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    before = linbench("table").out
    ended = linbench("results", "pack", "--name", "mine", "--command", "linbench run", "--json")
    (made,) = json.loads(ended.out)["packs"]
    assert (ended.code, made["file"], made["results"]) == (0, "results/mine.jsonl.xz", 2)
    assert linbench("table").out == before
    assert linbench("results", "verify").code == 0
    assert linbench("results", "pack").err == snapshot(name="nothing to pack")
    assert linbench("results", "unpack").out == snapshot(name="unpacked")
    assert linbench("table").out == before
    ended = linbench("results", "pack")
    assert (ended.code, "removed 2 files" in ended.err) == (0, True)


def test_what_is_damaged_is_told_and_the_exit_code_says_so(
    linbench: Callable[..., Any], stored: Store, snapshot: SnapshotAssertion
) -> None:
    linbench("results", "pack", "--name", "mine")
    stored.put(a_record(IDS[0], seconds=5.0))
    ended = linbench("results", "unpack", "--json")
    assert (ended.code, json.loads(ended.out)["differ"]) == (1, [f"results/{IDS[0]}.json"])
    path = Path("results/mine.jsonl.xz")
    path.write_bytes(path.read_bytes()[:-4])
    ended = linbench("results", "verify", "--json")
    (found,) = json.loads(ended.out)
    assert (ended.code, found["folder"]) == (1, "results")
    assert "cut short" in " ".join(found["faults"])
    ended = linbench("table")
    assert ended.code == 0
    assert ended.err == snapshot


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_what_was_packed_is_not_run_again(linbench: Callable[..., Any], tiny: list[str]) -> None:
    words = ("run", "mqar", "--model", "deltanet", *tiny, "--json")
    first = json.loads(linbench(*words).out)
    linbench("results", "pack")
    assert json.loads(linbench(*words).out) == first
    assert Store("results").loose_ids() == set()


def test_folders_that_are_not_there_or_only_read(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for verb in ("pack", "unpack"):
        ended = linbench("results", verb, "nowhere")
        assert (ended.code, "no results folder nowhere" in ended.err) == (6, True)
    assert linbench("results", "verify", "nowhere").code == 2
    assert not Path("nowhere").exists()
    home = Store(tmp_path / "package" / "cpu")
    home.prepare()
    home.put(a_record(IDS[0]))
    monkeypatch.setattr(reference, "_home", lambda: tmp_path / "package")
    linbench("results", "pack", str(home.folder), "--name", "mine")
    for verb in ("pack", "unpack"):
        ended = linbench("results", verb, "reference")
        assert (ended.code, "read-only" in ended.err) == (2, True)
    assert linbench("results", "verify", "reference").code == 0
    assert linbench("results", "unpack", "reference", "--to", "here").code == 0
    assert [one["id"] for one in Store("here").all()] == IDS[:1]
    ended = linbench("results", "pack", "--command", "what")
    assert (ended.code, "--name" in ended.err) == (2, True)
