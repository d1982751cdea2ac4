"""A pack leaves out what follows from the rest of a line, and gives it back."""

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from linbench.common.hashing import digest
from linbench.results.packing import pack, verify
from linbench.results.packs import read_lines
from linbench.results.result_text import UNREADABLE, result_text
from linbench.results.short_lines import KEPT_DIGITS, restored, shortened
from linbench.results.store import Store
from tests.helpers.records import a_record
from tests.helpers.speeds import a_speed

ROOT = Path(__file__).parents[2]
HASH = 64


def own(record: Any) -> Any:
    """Return a result under the id of its identity, as results have it."""
    return record | {"id": digest(record.get("cell", record.get("bench")))}


def spared(record: Any) -> int:
    """Return the bytes that a line spares; check that they come back."""
    text = result_text(record)
    assert restored(shortened(text)) == text
    return len(text) - len(shortened(text))


@pytest.mark.parametrize("record", [a_record("a"), a_speed()], ids=["cell", "benchmark"])
def test_a_line_spares_the_id_and_most_of_the_checksum(record: Any) -> None:
    assert spared(own(record)) == 2 * HASH - KEPT_DIGITS


def test_an_id_that_does_not_follow_from_the_identity_is_kept() -> None:
    named_as_the_next_field = a_record("a")
    named_as_the_next_field["cell"]["task"]["settings"] |= {"a": 1, "chance": 2}
    for record in (a_record("b" * HASH), own(named_as_the_next_field)):
        assert spared(record) == HASH - KEPT_DIGITS


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"id":""}', b'{"checksum":"12345678","id":""}'])
def test_what_is_no_result_stays_as_it_is(text: bytes) -> None:
    assert shortened(text) == restored(text) == text


def test_a_line_of_an_older_pack_is_read() -> None:
    text = result_text(own(a_record("a")))
    assert restored(text) == text
    eight = re.sub(rb'("checksum":"[0-9a-f]{8})[0-9a-f]*', rb"\1", text)
    assert len(eight) == len(text) - HASH + 8
    assert restored(eight) == text
    altered = eight.replace(b'"seconds":1.0', b'"seconds":2.0')
    assert altered != eight
    assert restored(altered) == altered


@pytest.mark.parametrize(("of", "to"), [(b'"seconds":1.0', b'"seconds":2.0'), (b'"seed":0', b'"seed":1')])
def test_an_altered_line_of_a_pack_does_not_count(tmp_path: Path, of: bytes, to: bytes) -> None:
    store = Store(tmp_path)
    store.prepare()
    records = [own(a_record("a", seconds=seconds)) for seconds in (1.0, 3.0)]
    records[1]["cell"]["seed"] = 5
    records[1] = own(records[1])
    for record in records:
        store.put(record)
    (made,) = pack(store, "zoo").packs
    assert verify(store) == []
    text = lzma.decompress(made.path.read_bytes())
    assert text.count(of) == 1
    made.path.write_bytes(lzma.compress(text.replace(of, to)))
    reader = Store(tmp_path)
    assert reader.all() == records[1:]
    assert [*reader.set_aside.values()] == [UNREADABLE]


def test_stored_lines_are_short() -> None:
    """The packs of the repository have no digits that could be computed."""
    path = ROOT / "results" / "h200" / "capacity.jsonl.xz"
    stored = lzma.decompress(path.read_bytes()).splitlines()
    whole = read_lines(path)
    assert sum(map(len, whole)) - sum(map(len, stored)) == len(whole) * (2 * HASH - KEPT_DIGITS)
    assert all(json.loads(line)["id"] for line in whole)
