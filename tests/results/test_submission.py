"""Submissions: one file with the results of one layer, which others read and cannot change unseen."""

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.claims.stored_results import Stored
from linbench.common.errors import StorageError, UserError
from linbench.results.folders import find_stores
from linbench.results.packing import unpack, verify
from linbench.results.record import is_cell
from linbench.results.reference import stores_at
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store
from linbench.results.submission import ABOUT, RESULTS, Statement, Submission, is_marked, write_submission
from tests.helpers.records import a_record

IDS = ["a" * 64, "b" * 64]

MINE = "class Mine: ..."

STATEMENT: Statement = {
    "layer": "./mine.py:Mine[width=2]",
    "suite": "leaderboard",
    "command": "linbench submit ./mine.py:Mine",
    "linbench": "0.1.0",
    "sources": {"mine.py:Mine": {"mine": MINE}},
}


def record(cell_id: str, **more: Any) -> CellResult:
    """The result of a model of the submission's layer, with other fields changed."""
    one = a_record(cell_id, **{"label": STATEMENT["layer"], **more})
    assert is_cell(one)
    for layer in one["cell"]["model"]["layers"]:
        layer["mixer"], layer["source"] = "mine.py:Mine", hashlib.sha256(MINE.encode()).hexdigest()
    return one


def written(folder: Path, **stated: Any) -> Submission:
    return write_submission(folder, {**STATEMENT, **stated}, [*map(record, IDS)])  # type: ignore[typeddict-item]


def rewritten(submission: Submission, change: Callable[[dict[str, bytes]], None], **how: Any) -> Submission:
    """The submission after someone has changed its files."""
    with zipfile.ZipFile(submission.folder) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    change(files)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", **how) as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    submission.folder.write_bytes(archive.getvalue())
    return Submission(submission.folder)


def test_a_submission_is_read_like_a_folder_and_marked(tmp_path: Path) -> None:
    submission = written(tmp_path)
    assert submission.about is not None
    assert submission.about["rows"] == 2
    assert submission.folder.name == f"mine-{submission.about['hash'][:12]}.submission.zip"
    assert [result["id"] for result in submission.all()] == IDS
    mark = f"submitted as {submission.about['hash'][:6]}, not rerun"
    assert {result["label"] for result in submission.all()} == {f"{STATEMENT['layer']} ({mark})"}
    assert verify(submission) == []
    assert [type(store) for store in find_stores(tmp_path)] == [Submission]
    assert [store.folder for store in find_stores(submission.folder)] == [submission.folder]


def test_the_same_results_make_the_same_bytes_and_others_another_name(tmp_path: Path) -> None:
    first = written(tmp_path)
    before = first.folder.read_bytes()
    assert written(tmp_path).folder.read_bytes() == before
    assert written(tmp_path, suite="quick").folder != first.folder


def test_nothing_is_written_into_one(tmp_path: Path) -> None:
    submission = written(tmp_path)
    with pytest.raises(UserError, match="read-only"):
        submission.put(a_record(IDS[0]))
    with pytest.raises(UserError, match="read-only"), submission.claim(IDS[0]):
        pass
    with pytest.raises(UserError, match="lose their mark"):
        unpack(submission, Store(tmp_path / "results"))


def no_change(files: dict[str, bytes]) -> None:
    """Leave everything as it is."""


def other_statement(files: dict[str, bytes]) -> None:
    files[ABOUT] = files[ABOUT].replace(b"leaderboard", b"leaderbeard")


def other_results(files: dict[str, bytes]) -> None:
    files[RESULTS] += b"\0"


def no_json(files: dict[str, bytes]) -> None:
    files[ABOUT] = b"{"


def no_hash(files: dict[str, bytes]) -> None:
    files[ABOUT] = json.dumps(dict.fromkeys(json.loads(files[ABOUT]), 1)).encode()


def one_file_more(files: dict[str, bytes]) -> None:
    files["../outside"] = b""


@pytest.mark.parametrize(
    ("change", "how", "why"),
    [
        (other_statement, {}, "was changed: the hash is another"),
        (other_results, {}, "was changed: the SHA-256 is another"),
        (no_json, {}, "is damaged"),
        (no_hash, {}, "is damaged"),
        (one_file_more, {}, "does not hold"),
        (no_change, {"compression": zipfile.ZIP_DEFLATED}, "does not hold"),
    ],
)
def test_what_was_changed_counts_for_nothing(
    change: Callable[[dict[str, bytes]], None], how: dict[str, Any], why: str, tmp_path: Path
) -> None:
    submission = rewritten(written(tmp_path), change, **how)
    assert submission.all() == []
    assert submission.about is None
    (fault,) = verify(submission)
    assert why in fault
    assert why in submission.set_aside[submission.folder]


def of_a_shipped_model(one: CellResult) -> None:
    one["cell"]["model"]["layers"][0]["mixer"] = "deltanet"


def of_another_source(one: CellResult) -> None:
    one["cell"]["model"]["layers"][0]["source"] = "0" * 64


def with_another_label(one: CellResult) -> None:
    one["label"] = "deltanet"


@pytest.mark.parametrize("forge", [of_a_shipped_model, of_another_source, with_another_label])
def test_results_of_another_layer_count_for_nothing(
    forge: Callable[[CellResult], None], tmp_path: Path
) -> None:
    forged = record(IDS[1])
    forge(forged)
    with pytest.raises(StorageError, match="does not count"):
        write_submission(tmp_path, STATEMENT, [record(IDS[0]), forged])
    (submission,) = find_stores(tmp_path)
    assert [result["id"] for result in submission.all()] == IDS[:1]
    (fault,) = verify(submission)
    assert f"{submission.folder.name}:" in fault


def test_a_result_of_a_newer_linbench_is_set_aside(tmp_path: Path) -> None:
    newer = record(IDS[1], schema=999)
    with pytest.raises(StorageError, match="newer"):
        write_submission(tmp_path, STATEMENT, [record(IDS[0]), newer])
    (submission,) = find_stores(tmp_path)
    assert submission.find(IDS[1]) is None
    assert [result["id"] for result in submission.all()] == IDS[:1]


def test_two_submissions_of_one_name_have_labels_of_their_own(tmp_path: Path) -> None:
    both = written(tmp_path), written(tmp_path, suite="quick")
    labels = {result["label"] for submission in both for result in submission.all()}
    assert len(labels) == 2
    assert all(is_marked(label) for label in labels)


def test_nobody_is_compared_with_a_submission(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(UserError, match="no results"):
        stores_at(str(tmp_path))


def test_no_damage_of_the_zip_itself_is_a_crash(tmp_path: Path) -> None:
    submission = written(tmp_path)
    sound = submission.folder.read_bytes()
    draw = random.Random(0)
    for _ in range(400):
        damaged = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged) - 300, len(damaged))] = draw.randrange(256)
        submission.folder.write_bytes(damaged[: draw.choice([len(damaged), draw.randrange(len(damaged))])])
        found = Submission(submission.folder)
        assert len(found.all()) in (0, 2)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut short"])
def test_what_is_no_submission_is_told(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.submission.zip"
    path.write_bytes(content)
    (store,) = find_stores(tmp_path)
    assert store.all() == []
    (fault,) = verify(store)
    assert "no zip file" in fault


def test_every_bit_of_a_submission_matters(tmp_path: Path) -> None:
    submission = written(tmp_path)
    sound = submission.folder.read_bytes()
    with zipfile.ZipFile(submission.folder) as zipped:
        places = [one.header_offset + 30 + len(one.filename) for one in zipped.infolist()]
        sizes = [one.file_size for one in zipped.infolist()]
    for start, size in zip(places, sizes, strict=True):
        for place in range(start, start + size, 97):
            flipped = bytearray(sound)
            flipped[place] ^= 1
            submission.folder.write_bytes(flipped)
            assert verify(Submission(submission.folder)), place


def test_a_submission_decides_nothing_and_replaces_nothing(tmp_path: Path) -> None:
    own = Store(tmp_path / "results")
    own.prepare()
    own.put(a_record(IDS[0], seconds=7.0))
    stored = Stored([written(tmp_path), own])
    assert [*stored.results] == IDS[:1]
    assert stored.results[IDS[0]]["seconds"] == 7.0
    assert len(stored.submissions) == 1
