"""Packs hold results as files do, and what is damaged in them is told and counts for nothing."""

import json
import lzma
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import StorageError, UserError
from linbench.experiments.cell import SCHEMA
from linbench.results import packing, packs
from linbench.results.folders import find_stores
from linbench.results.packing import pack, pack_names, unpack, verify
from linbench.results.packs import MANIFEST, SUFFIX, read_lines, read_manifest
from linbench.results.result_text import UNREADABLE, NewerResultError, result_text
from linbench.results.schema import Result
from linbench.results.store import Store
from linbench.results.thin import LOSSES, thinned
from tests.helpers.records import a_point, a_record

IDS = ["a" * 64, "b" * 64, "c" * 64, "d" * 64]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "results")
    store.prepare()
    return store


def filled(store: Store, ids: Sequence[str] = IDS[:3], **more: Any) -> list[Result]:
    records = [a_record(one, **more) for one in ids]
    for record in records:
        store.put(record)
    return records


def loose(store: Store) -> list[str]:
    return sorted(store.loose_ids())


def write_lines(path: Path, texts: Sequence[bytes]) -> Path:
    path.write_bytes(lzma.compress(b"".join(text + b"\n" for text in texts)))
    return path


def test_packed_results_are_read_as_loose_ones_are(store: Store) -> None:
    records = filled(store)
    (made,) = pack(store, "zoo").packs
    assert (made.rows, made.path.name, loose(store)) == (3, f"zoo{SUFFIX}", [])
    for reader in (store, Store(store.folder)):
        assert reader.all() == records
        assert [reader.get(one) for one in IDS] == [*records, None]
        assert not reader.set_aside
    assert [one.folder for one in find_stores(store.folder.parent)] == [store.folder]


def test_a_loose_result_counts_before_a_packed_one_and_a_later_pack_before_an_earlier(store: Store) -> None:
    filled(store, seconds=1.0)
    pack(store, "zoo")
    filled(store, IDS[:2], seconds=2.0)
    pack(store, "again")  # by its name it would come first
    filled(store, IDS[:1], seconds=3.0)
    assert [result["seconds"] for result in Store(store.folder).all()] == [3.0, 2.0, 1.0]
    assert Store(store.folder).get(IDS[0])["seconds"] == 3.0  # type: ignore[index]
    assert [*read_manifest(store.folder)] == ["zoo", "again"]


def test_a_store_that_is_open_sees_what_another_process_packs(store: Store) -> None:
    records = filled(store)
    reader = Store(store.folder)
    assert reader.get(IDS[0]) == records[0]
    pack(store, "zoo")
    assert [reader.get(one) for one in IDS[:3]] == records


def test_the_manifest_says_what_a_pack_holds(store: Store) -> None:
    filled(store, environment=a_record(IDS[0])["environment"] | {"commit": "abc"})
    (made,) = pack(store, "zoo", "linbench sweep zoo").packs
    told = read_manifest(store.folder)["zoo"]
    assert (told["rows"], told["devices"], told["commits"]) == (3, ["cpu"], ["abc"])
    assert told["command"] == "linbench sweep zoo"
    assert verify(store) == []
    made.path.write_bytes(lzma.compress(b"".join(line + b"\n" for line in read_lines(made.path)), preset=0))
    assert ["SHA-256" in one for one in verify(Store(store.folder))] == [True]


def test_a_result_that_does_not_count_stays_a_file_and_is_told(store: Store) -> None:
    filled(store)
    torn, newer = store.folder / f"{IDS[0]}.json", store.folder / f"{IDS[1]}.json"
    torn.write_text("{")
    newer.write_bytes(result_text(a_record(IDS[1], schema=SCHEMA + 1)))
    older = store.put(a_record(IDS[3], schema=SCHEMA - 1))
    (made,) = pack(store, "zoo").packs
    assert made.rows == 1
    assert loose(store) == [IDS[0], IDS[1], IDS[3]]
    assert store.set_aside[torn] == UNREADABLE
    assert "newer linbench" in store.set_aside[newer]
    assert older not in store.set_aside


def test_a_damaged_loose_file_does_not_hide_the_packed_result(store: Store) -> None:
    records = filled(store)
    pack(store, "zoo")
    torn = store.folder / f"{IDS[0]}.json"
    torn.write_text("{")
    assert store.get(IDS[0]) == records[0]
    assert store.all() == records
    assert store.set_aside == {torn: UNREADABLE}


def test_a_line_that_does_not_count_is_told_and_the_others_do(store: Store) -> None:
    good = [result_text(a_record(one)) for one in IDS]
    wrong_checksum = good[1].replace(b'"seconds":1.0', b'"seconds":2.0')
    of_another = good[2].replace(IDS[2].encode(), b"e" * 64)
    misfit = result_text(a_record("f" * 64, seconds="long"))
    texts = [b"", good[0], b"{", wrong_checksum, of_another, misfit, good[0], b"[1]", good[3]]
    path = write_lines(store.folder / f"zoo{SUFFIX}", texts)
    for reader in (store, Store(store.folder)):
        assert [result["id"] for result in reader.all()] == [IDS[0], IDS[3]]
        assert [reader.get(one) is None for one in (*IDS, "f" * 64)] == [False, True, True, False, True]
        told = {place.name: why for place, why in reader.set_aside.items()}
        misfit, again = (told.pop(f"{path.name}:{line}") for line in (6, 7))
        assert "seconds" in misfit
        assert "valid number" in misfit
        assert f"{path.name}:2" in again
        assert told == {f"{path.name}:{line}": UNREADABLE for line in (1, 3, 4, 5, 8)}
    assert sum("does not count" in one for one in verify(Store(store.folder))) == 7


def test_a_line_of_a_newer_linbench_is_refused_alone_and_passed_over_among_many(store: Store) -> None:
    texts = [result_text(a_record(IDS[0], schema=SCHEMA + 1)), result_text(a_record(IDS[1]))]
    path = write_lines(store.folder / f"zoo{SUFFIX}", texts)
    assert [result["id"] for result in store.all()] == [IDS[1]]
    assert "newer linbench" in store.set_aside[path.with_name(f"{path.name}:1")]
    for ask in (lambda: store.get(IDS[0]), lambda: store.put(a_record(IDS[0]))):
        with pytest.raises(NewerResultError, match="newer linbench"):
            ask()
    assert loose(store) == []


def test_a_line_of_an_older_schema_is_none(store: Store) -> None:
    write_lines(store.folder / f"zoo{SUFFIX}", [result_text(a_record(IDS[0], schema=SCHEMA - 1))])
    assert (store.all(), store.get(IDS[0]), store.set_aside) == ([], None, {})


def test_a_sound_line_of_an_older_pack_counts_where_the_newer_is_damaged(store: Store) -> None:
    records = filled(store)
    pack(store, "zoo")
    write_lines(store.folder / f"again{SUFFIX}", [result_text(records[0]).replace(b"1.0", b"2.0")])
    assert store.all() == records
    assert len(store.set_aside) == 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _followed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _twice(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _no_xz(path: Path) -> None:
    path.write_bytes(b"a text that was never compressed")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _hungry(path: Path) -> None:
    """Write a pack whose dictionary takes more memory than is given."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}]
    path.write_bytes(lzma.compress(b"{}\n", filters=filters))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "cut short"),
        (_followed, "something follows"),
        (_twice, "something follows"),
        (_no_xz, "no xz file"),
        (_empty, "cut short"),
        (_folder, "it is a folder"),
        (_pipe, "it is a pipe"),
        (_hungry, "[Mm]emory"),
    ],
)
def test_a_damaged_pack_is_told_and_the_rest_is_read(
    store: Store, damage: Callable[[Path], None], reason: str
) -> None:
    filled(store, IDS[:2])
    (made,) = pack(store, "zoo").packs
    filled(store, IDS[2:3])
    pack(store, "more")
    filled(store, IDS[3:])
    damage(made.path)
    reader = Store(store.folder)
    assert [result["id"] for result in reader.all()] == IDS[2:]
    assert reader.get(IDS[0]) is None
    assert [*reader.set_aside] == [made.path]
    with pytest.raises(StorageError, match=reason):
        read_lines(made.path)
    assert any(str(made.path) in one for one in verify(Store(store.folder)))


def test_a_pack_that_would_fill_the_memory_is_not_unpacked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "MOST_TEXT", 1 << 20)
    path = store.folder / f"bomb{SUFFIX}"
    path.write_bytes(lzma.compress(bytes(16 << 20)))
    assert store.all() == []
    assert "than the 1 MiB" in store.set_aside[path]
    filled(store)
    monkeypatch.setattr(packs, "MOST_TEXT", 100)
    with pytest.raises(UserError, match="pack them in parts"):
        pack(store, "zoo")
    assert loose(store) == IDS[:3]


def test_no_flipped_bit_of_a_pack_changes_a_result(store: Store) -> None:
    records = filled(store)
    (made,) = pack(store, "zoo").packs
    whole, draw = made.path.read_bytes(), random.Random(3)
    for _ in range(50):
        torn = bytearray(whole)
        torn[draw.randrange(len(torn))] ^= 1 << draw.randrange(8)
        made.path.write_bytes(bytes(torn))
        reader = Store(store.folder)
        assert reader.all() in ([], records)
        assert reader.set_aside or reader.all() == records


@pytest.mark.parametrize("text", ["{", "[]", '{"zoo": 1}', '{"zoo": {"rows": "1"}}', "[" * 50])
def test_without_its_manifest_a_pack_is_read_and_nothing_is_packed(store: Store, text: str) -> None:
    records = filled(store)
    pack(store, "zoo")
    filled(store, IDS[3:])
    (store.folder / MANIFEST).write_text(text)
    reader = Store(store.folder)
    assert reader.all() == [*records, a_record(IDS[3])]
    assert [path.name for path in reader.set_aside] == [MANIFEST]
    assert any(MANIFEST in one for one in verify(reader))
    with pytest.raises(StorageError, match="is damaged"):
        pack(Store(store.folder), "more")
    assert loose(store) == IDS[3:]


def test_the_manifest_and_the_packs_name_each_other(store: Store) -> None:
    filled(store)
    (made,) = pack(store, "zoo").packs
    made.path.rename(made.path.with_name(f"other{SUFFIX}"))
    told = verify(Store(store.folder))
    assert [name in one for name, one in zip(("zoo", "other"), told, strict=True)] == [True, True]


class KillError(Exception):
    """A stand-in for a kill."""


@pytest.mark.parametrize("where", ["write_whole", "read_lines", "write_manifest", "_remove"])
def test_a_kill_while_packing_loses_nothing_and_the_same_command_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    records = filled(store)
    place = packing if where == "_remove" else packs
    calls: list[int] = []
    then = getattr(place, where)

    def killed(*words: Any) -> Any:
        calls.append(1)
        if where == "_remove" and len(calls) == 1:
            return then(*words)  # of what older packs have
        raise KillError

    monkeypatch.setattr(place, where, killed)
    with pytest.raises(KillError):
        pack(store, "zoo")
    monkeypatch.undo()
    assert Store(store.folder).all() == records
    assert loose(store) == IDS[:3]
    done = pack(Store(store.folder), "zoo")
    assert (len(done.packs), done.removed) in ((1, 0), (0, 3))
    assert loose(store) == []
    assert Store(store.folder).all() == records
    assert verify(Store(store.folder)) == []
    assert [*read_manifest(store.folder)] == ["zoo"]


def test_what_another_process_has_replaced_while_it_was_packed_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    write = packing.write_pack

    def slowly(*words: Any) -> Path:
        Store(store.folder).put(a_record(IDS[0], seconds=7.0))
        return write(*words)

    monkeypatch.setattr(packing, "write_pack", slowly)
    pack(store, "zoo")
    assert loose(store) == IDS[:1]
    assert [result["seconds"] for result in Store(store.folder).all()] == [7.0, 1.0, 1.0]


def test_one_process_packs_a_folder_at_a_time(store: Store) -> None:
    filled(store)
    with store.claim("packing"), pytest.raises(UserError, match="another process"):
        pack(Store(store.folder), "zoo")
    assert loose(store) == IDS[:3]


@pytest.mark.parametrize("name", ["../zoo", "Zoo", ".zoo", "a/b", "x" * 500])
def test_a_name_that_no_pack_can_have(store: Store, name: str) -> None:
    filled(store)
    with pytest.raises(UserError, match="cannot be the name"):
        pack(store, name)
    assert loose(store) == IDS[:3]


def test_a_pack_is_never_changed(store: Store) -> None:
    filled(store, IDS[:2])
    (made,) = pack(store, "zoo").packs
    before = made.path.read_bytes()
    filled(store, IDS[2:])
    with pytest.raises(UserError, match="choose another name"):
        pack(store, "zoo")
    assert loose(store) == IDS[2:]
    assert made.path.read_bytes() == before


def test_unpacked_results_are_the_files_that_were_packed(store: Store, tmp_path: Path) -> None:
    records = filled(store)
    before = {path.name: path.read_bytes() for path in store.folder.glob("*.json")}
    pack(store, "zoo")
    into = Store(tmp_path / "into")
    assert unpack(store, into)[:2] == (3, 0)
    assert {path.name: path.read_bytes() for path in into.folder.glob("*.json")} == before
    assert unpack(store, into)[:2] == (0, 3)
    assert unpack(store, store)[:2] == (3, 0)
    assert Store(store.folder).all() == records
    assert pack(store).removed == 3


def test_a_thin_pack_leaves_out_slices_and_curves_of_runs_that_no_table_shows(store: Store) -> None:
    sliced = {"slices": {"slot": {"at": [0, 1], "accuracy": {"sum": [0, 1], "weight": [1, 1]}}}}
    ended = {"ladder": {"ended": "flat", "most": 2, "rungs": [{"tokens": 64, "accuracy": 0.5}] * 2}}
    curve = [a_point(0.2, step=1), a_point(0.5, step=2)]
    tuning, rung, report = (
        a_record(one, purpose=purpose, curve=curve, **sliced, **more)
        for one, purpose, more in zip(IDS, ("tuning", "rung", "report"), ({}, {}, ended), strict=False)
    )
    report["cell"]["protocol"]["settings"]["doublings"] = 1
    for record in (tuning, rung, report):
        store.put(record)
    pack(store, "zoo", thin=True)
    assert verify(store) == []
    kept = [{name: value for name, value in curve[0].items() if name not in LOSSES}, curve[1]]
    assert kept[0] != curve[0]
    assert store.all() == [
        {**tuning, "slices": {}, "curve": curve[1:]},
        {**rung, "slices": {}, "curve": kept},
        {**report, "curve": kept},
    ]


def test_the_highest_rung_of_a_ladder_that_goes_on_is_whole_in_a_thin_pack(store: Store) -> None:
    sliced = {"slices": {"slot": {"at": [0], "accuracy": {"sum": [1], "weight": [1]}}}}
    lower, higher = (a_record(one, purpose="rung", **sliced) for one in IDS[:2])
    higher["cell"]["protocol"]["settings"]["doublings"] = 1
    for record in (lower, higher):
        store.put(record)
    pack(store, "zoo", thin=True)
    assert store.all() == [{**lower, "slices": {}}, higher]


def test_tests_lose_their_slices_in_a_thin_pack() -> None:
    test = {"seq_len": 8, "metrics": {"nll": 1.23456789}, "slices": {"slot": {}}}
    thin = thinned(a_record(IDS[0], purpose="tuning", curve=[], tests=[test, test]))
    assert thin["curve"] == []
    assert thin["tests"] == [{"seq_len": 8, "metrics": {"nll": 1.235}, "slices": {}}] * 2


def test_slices_that_nothing_reads_are_left_out_of_a_thin_pack() -> None:
    slot = {"at": [0], "accuracy": {"sum": [1], "weight": [1]}}
    slices = {"slot": slot, "writes_between": slot}
    tests = [{"seq_len": 8, "metrics": {"accuracy": 0.5}, "slices": slices}]
    thin = thinned(a_record(IDS[0], slices=slices, tests=tests))
    assert thin["slices"] == thin["tests"][0]["slices"] == {"slot": slot}


def test_a_run_that_chose_a_rate_keeps_what_rates_are_chosen_by() -> None:
    metrics = {"accuracy": 1 / 3, "nll": 1.23456789, "sequence": 0.5}
    tests = [{"seq_len": 8, "metrics": metrics, "slices": {}}]
    tuned, rung = (
        thinned(a_record(IDS[0], purpose=purpose, curve=[], metrics=metrics, tests=tests))
        for purpose in ("tuning", "rung")
    )
    assert tuned["metrics"] == {"accuracy": 1 / 3, "nll": 1.235}
    assert tuned["tests"][0]["metrics"] == {"accuracy": 1 / 3}
    assert rung["metrics"] == rung["tests"][0]["metrics"] == metrics | {"nll": 1.235}


def test_a_thin_pack_rounds_what_is_shown_and_leaves_what_is_compared() -> None:
    third, tokens = 1 / 3, 123_456_789
    point = {"step": 1, "tokens": tokens, "loss": third, "accuracy": third}
    slot = {"at": [0], "accuracy": {"sum": [third], "weight": [1]}, "nll": {"sum": [third], "weight": [1]}}
    whole = a_record(
        IDS[0], metrics={"accuracy": third, "nll": third}, curve=[point, point], slices={"slot": slot}
    )
    assert thinned(whole) == whole | {
        "metrics": {"accuracy": third, "nll": 0.333333},
        "curve": [{"step": 1, "tokens": tokens, "accuracy": third}, point | {"loss": 0.333333}],
        "slices": {"slot": slot | {"nll": {"sum": [0.3333], "weight": [1]}}},
    }


def test_unpacking_never_replaces_a_file_that_differs(store: Store) -> None:
    filled(store)
    pack(store, "zoo")
    mine, torn = store.put(a_record(IDS[0], seconds=9.0)), store.folder / f"{IDS[1]}.json"
    torn.write_text("{")
    texts = {path: path.read_bytes() for path in (mine, torn)}
    done = unpack(store, store)
    assert (done.written, done.there, done.differ) == (1, 0, [mine, torn])
    assert {path: path.read_bytes() for path in texts} == texts


@pytest.mark.slow
def test_packs_are_named_after_suites_speeds_and_claims(tmp_path: Path) -> None:
    from linbench.experiments.suite import blocks, load

    (block,), _ = blocks(load("overwrite"), device="cpu")
    cell = block.rows[0][1][0]
    records = [a_record(cell.id, cell=cell.identity), a_record(IDS[0]), {"id": IDS[1], "kind": "speed"}]
    names = pack_names(records, tmp_path)
    assert names == {cell.id: "overwrite", IDS[0]: "cells", IDS[1]: "speeds"}
    assert {*pack_names(records, tmp_path / "claims").values()} == {"claims"}


@pytest.mark.slow
def test_a_new_campaign_becomes_a_new_pack(store: Store) -> None:
    for one in IDS[:3]:
        filled(store, [one])
        pack(store)
    assert [*read_manifest(store.folder)] == ["cells", "cells-2", "cells-3"]
    assert [result["id"] for result in Store(store.folder).all()] == IDS[:3]


def test_results_that_are_alike_stand_beside_each_other(store: Store) -> None:
    for one, label in zip(IDS, ("b", "a", "b", "a"), strict=True):
        store.put(a_record(one, label=label))
    (made,) = pack(store, "zoo").packs
    assert [json.loads(text)["label"] for text in read_lines(made.path)] == ["a", "a", "b", "b"]
