"""Submissions: one file with the results of one layer, which others read and cannot change unseen."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.claims.stored_results import Stored
from linbench.common.errors import UserError
from linbench.results.folders import find_stores
from linbench.results.packing import unpack, verify
from linbench.results.record import is_cell
from linbench.results.store import Store
from linbench.results.submission import ABOUT, NOT_RERUN, RESULTS, Statement, Submission, write_submission
from tests.helpers.records import a_record

IDS = ["a" * 64, "b" * 64]

STATEMENT: Statement = {
    "layer": "./mine.py:Mine[width=2]",
    "suite": "leaderboard",
    "command": "linbench submit ./mine.py:Mine",
    "linbench": "0.1.0",
    "sources": {"mine": "class Mine: ..."},
}


def written(folder: Path, **stated: Any) -> Submission:
    records = [record for record in map(a_record, IDS) if is_cell(record)]
    return write_submission(folder, {**STATEMENT, **stated}, records)  # type: ignore[typeddict-item]


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
    label = a_record(IDS[0])["label"]
    assert submission.about is not None
    assert submission.about["rows"] == 2
    assert submission.folder.name == f"mine-{submission.about['hash'][:12]}.submission.zip"
    assert [result["id"] for result in submission.all()] == IDS
    assert {result["label"] for result in submission.all()} == {f"{label} ({NOT_RERUN})"}
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
    into = Store(tmp_path / "results")
    assert unpack(submission, into).written == 2
    assert verify(into) == []


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
