import errno
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import StorageError
from linbench.experiments.cell import SCHEMA
from linbench.results import result_text
from linbench.results.record import from_outside
from linbench.results.result_text import UNREADABLE
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.records import a_point, a_record

ID = "a" * 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "results")
    store.prepare()
    return store


def a_result(**more: Any) -> Result:
    return a_record(
        ID, metrics={"accuracy": 0.123456789012345678}, curve=[a_point() | {"loss": 1e-17}], **more
    )


def test_what_is_put_comes_back_to_the_bit(store: Store) -> None:
    store.put(a_result())
    assert store.get(ID) == a_result()
    assert store.all() == [a_result()]
    assert store.get("b" * 64) is None


def test_a_number_that_json_does_not_have_is_refused_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.put(a_result(seconds=float("nan")))
    assert [path.name for path in store.folder.iterdir()] == [".locks"]


def test_truncated_files_are_never_trusted_and_are_kept_when_another_takes_their_place(store: Store) -> None:
    path = store.put(a_result())
    whole = path.read_bytes()
    lengths = sorted({*range(0, len(whole), max(1, len(whole) // 50)), len(whole) - 1})
    for length in lengths:
        path.write_bytes(whole[:length])
        assert store.get(ID) is None
        store.put(a_result())
        assert store.get(ID) == a_result()
    assert [aside.stat().st_size for aside in store.set_aside] == lengths
    assert store.unreadable == sorted(store.set_aside)


def test_whoever_reads_alone_changes_nothing_and_names_what_is_unreadable_every_time(store: Store) -> None:
    path = store.put(a_result())
    path.write_bytes(b"{")
    before = sorted(store.folder.iterdir())
    for _ in range(2):
        reader = Store(store.folder)
        assert (reader.all(), reader.get(ID)) == ([], None)
        assert [*reader.set_aside] == reader.unreadable == [path]
    assert (sorted(store.folder.iterdir()), path.read_bytes()) == (before, b"{")


def test_of_two_writers_over_a_torn_file_one_keeps_it_and_neither_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.put(a_result())
    path.write_bytes(b"{")
    other, read = Store(store.folder), result_text.read_regular

    def slowly(found: Path, most: int) -> bytes:
        monkeypatch.setattr(result_text, "read_regular", read)
        text = read(found, most)
        path.rename(path.with_name(f"{path.name}.unreadable-0"))  # the other does so in the meantime
        return text

    monkeypatch.setattr(result_text, "read_regular", slowly)
    store.put(a_result())
    assert (len(store.set_aside), len(store.unreadable)) == (0, 1)
    assert other.get(ID) == a_result()


def test_flipped_bits_are_found(store: Store) -> None:
    whole = store.put(a_result()).read_bytes()
    draw = random.Random(3)
    for _ in range(50):
        torn = bytearray(whole)
        torn[draw.randrange(len(torn))] ^= 1 << draw.randrange(8)
        (store.folder / f"{ID}.json").write_bytes(bytes(torn))
        assert store.get(ID) is None
    assert store.set_aside == {store.folder / f"{ID}.json": UNREADABLE}


def test_a_file_under_another_cells_name_is_not_its_result(store: Store) -> None:
    store.put(a_result()).rename(store.folder / f"{'b' * 64}.json")
    assert store.get("b" * 64) is None


def test_a_result_of_an_older_schema_is_none(store: Store) -> None:
    store.put(a_result(schema=SCHEMA - 1))
    assert store.get(ID) is None
    assert store.all() == []
    assert not store.set_aside


def test_a_newer_schema_is_refused_with_a_sentence(store: Store) -> None:
    store.put(a_result(schema=SCHEMA + 1))
    with pytest.raises(StorageError, match="newer linbench"):
        store.get(ID)
    other = "b" * 64
    store.put(a_record(other))
    assert [result["id"] for result in store.all()] == [other], "who reads many passes it over"
    assert "newer linbench" in store.set_aside[store.folder / f"{ID}.json"]


@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [
        ("fsync", errno.ENOSPC, "disk is full"),
        ("fdopen", errno.EROFS, "read-only"),
        ("fsync", errno.EDQUOT, "quota"),
    ],
)
def test_a_refusal_of_the_system_is_one_sentence_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, code: int, reason: str
) -> None:
    store.put(a_result())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match=reason) as caught:
        store.put(a_result(status="failed"))
    monkeypatch.undo()
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)
    assert store.get(ID) == a_result()
    assert sorted(path.name for path in store.folder.iterdir()) == sorted([".locks", f"{ID}.json"])


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Store(tmp_path / "file" / "results").prepare()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(StorageError, match="it is read-only"):
        Store(tmp_path / "results").prepare()


def test_leftovers_of_a_killed_writer_are_cleared_once_old(store: Store) -> None:
    old, fresh = store.folder / ".writing-old", store.folder / ".writing-fresh"
    for path in (old, fresh):
        path.write_text("{")
    os.utime(old, (0, 0))
    store.prepare()
    assert not old.exists()
    assert fresh.exists()
    assert store.all() == []


def test_an_old_folder_that_looks_like_a_leftover_hinders_nobody(store: Store) -> None:
    folder = store.folder / ".writing-folder"
    (folder / "within").mkdir(parents=True)
    os.utime(folder, (0, 0))
    store.prepare()
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("result", "outside"),
    [
        ({"status": "failed", "reason": "its process died with SIGKILL"}, True),
        ({"status": "failed", "reason": "its process died with exit code 1"}, False),
        ({"status": "failed", "reason": "its process died with SIGKILL", "outside": False}, False),
        ({"status": "oom", "reason": "no memory", "outside": True}, True),
        ({"status": "ok", "reason": None, "outside": True}, False),
        ({"status": "failed", "reason": None}, False),
    ],
)
def test_results_of_before_say_by_their_reasons_what_came_from_outside(result: Result, outside: bool) -> None:
    assert from_outside(result) is outside


def test_what_another_writer_has_done_with_meanwhile_is_no_leftover(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [*there(self, pattern), self / ".writing-gone"])
    store.prepare()
    assert store.get(ID) is None


def test_one_claim_at_a_time(store: Store) -> None:
    with store.claim(ID) as first, Store(store.folder).claim(ID) as second:
        assert (first, second) == (True, False)
    with store.claim(ID) as again:
        assert again


def test_files_are_plain_json(store: Store) -> None:
    assert json.loads(store.put(a_result()).read_text())["metrics"] == a_result()["metrics"]


def test_no_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no results folder"):
        Store(tmp_path / "nowhere").all()
