"""The results that come with linbench, by their name."""

import fnmatch
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linbench
from linbench.claims.stored_results import Stored
from linbench.common.errors import UserError
from linbench.results import reference
from linbench.results.packing import pack
from linbench.results.packs import MANIFEST, SUFFIX
from linbench.results.reference import REFERENCE, SHIPPED, Reference, store_at, stores_at, stores_below
from linbench.results.store import Store
from tests.helpers.records import a_record

ROOT = Path(__file__).parents[2]
IDS = ["a" * 64, "b" * 64, "c" * 64]


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Three results in two of the folders that are shipped, instead of thousands."""
    home = tmp_path / "package"
    for folder, name, seed in (("cpu", IDS[1], 0), ("h100/claims", IDS[0], 1), ("h100/claims", IDS[2], 2)):
        (home / folder).mkdir(parents=True, exist_ok=True)
        whole = a_record(name, status="failed" if seed == 2 else "ok", reason="so" if seed == 2 else None)
        Store(home / folder).put(whole | {"cell": {**whole["cell"], "seed": seed}})
    monkeypatch.setattr(reference, "_home", lambda: home)
    return home


def test_every_store_that_is_shipped_is_in_the_wheel_and_no_table() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["linbench"]
    package = Path(linbench.__file__).parent
    stores = [store.folder.relative_to(package).as_posix() for store in stores_at(REFERENCE)]
    kept = [pattern for pattern in patterns if pattern.startswith(REFERENCE)]
    assert {*stores} == {Path(pattern).parent.as_posix() for pattern in kept}
    for folder in stores:
        for name in (f"{IDS[0]}.json", f"zoo{SUFFIX}", MANIFEST):
            assert any(fnmatch.fnmatch(f"{folder}/{name}", pattern) for pattern in kept)
    assert {Path(folder).parts[1] for folder in stores} == set(SHIPPED)


def test_all_that_decides_claims_here_is_shipped() -> None:
    tracked = {path for path in (ROOT / "results").iterdir() if path.is_dir()} - {ROOT / "results" / "ci"}
    assert {path.name for path in tracked if stores_below(path)} <= set(SHIPPED)


@pytest.mark.parametrize("packed", [False, True])
def test_they_are_one_store_in_the_order_of_their_ids(shipped: Path, packed: bool) -> None:
    if packed:
        for one in stores_below(shipped):
            pack(one, "mine")
    store = store_at(REFERENCE)
    assert isinstance(store, Reference)
    assert [result["id"] for result in store.all()] == IDS
    assert [store.get(name) for name in IDS] == store.all()
    assert store.get("d" * 64) is None
    assert [result["id"] for one in stores_below(REFERENCE) for result in one.all()] == [
        IDS[1],
        IDS[0],
        IDS[2],
    ]


def test_what_cannot_be_trusted_is_set_aside_wherever_it_stands(shipped: Path) -> None:
    (torn,) = (shipped / "cpu").glob("*.json")
    torn.write_text("{")
    store = store_at(REFERENCE)
    assert [result["id"] for result in store.all()] == [IDS[0], IDS[2]]
    assert [*store.set_aside] == store.unreadable == [torn]


@pytest.mark.usefixtures("shipped")
def test_nothing_is_added_to_them() -> None:
    store = store_at(REFERENCE, "--into")
    store.prepare()
    with store.claim(IDS[0]) as ours:
        assert ours
    for cell in (IDS[2], "d" * 64):
        with (
            pytest.raises(UserError, match="read-only; name a folder of yours with --into"),
            store.claim(cell),
        ):
            pass
    with pytest.raises(UserError, match="read-only"):
        store.put({"id": "d" * 64})
    with pytest.raises(UserError, match="read-only"):
        store.may_add()
    assert not store_at("results").read_only


@pytest.mark.slow
@pytest.mark.usefixtures("shipped")
def test_every_verb_that_takes_a_folder_of_results_knows_the_name(
    linbench: Callable[..., Any], tmp_path: Path
) -> None:
    assert "deltanet" in linbench("table", "--results", REFERENCE).out
    for verb in ("figures", "report"):
        refused = linbench(verb, "--results", REFERENCE)
        assert refused.code == 2
        assert "read-only" in refused.err
        assert "--save" in refused.err
    assert linbench("figures", "learning-curves", "--results", REFERENCE, "--save", "drawn").code == 0
    ended = linbench("report", "--results", REFERENCE, "--save", "page.html", "--json")
    assert json.loads(ended.out) == {"file": "page.html", "results": 3, "set_aside": []}
    assert linbench("gate", "--baseline", REFERENCE, "--candidate", REFERENCE).code in (0, 5)
    assert linbench("claims", "C1", "--results", REFERENCE).code == 0
    assert linbench("sweep", "quick", "--dry-run", "--results", REFERENCE).code == 0
    ended = linbench(
        "bench",
        "length",
        "--preset",
        "tiny",
        "--models",
        "deltanet",
        "--device",
        "cpu",
        "--results",
        REFERENCE,
    )
    assert (ended.code, "are read-only" in ended.err) == (2, True)
    for words in (
        ("run", "mqar", "--model", "deltanet"),
        ("sweep", "quick"),
        ("compare", "deltanet", "attention"),
        ("bench", "ops", "--preset", "tiny", "--ops", "l2_norm"),
        ("bench", "decode", "--preset", "tiny", "--models", "deltanet"),
    ):
        ended = linbench(*words, "--device", "cpu", "--results", REFERENCE)
        assert (ended.code, "are read-only" in ended.err) == (2, True), words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn", "package", "page.html"], (
        "nothing is written beside"
    )


@pytest.mark.usefixtures("shipped")
def test_claims_are_held_against_ones_own_results_and_those_that_come_with_linbench(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    below = reference.stores_below
    monkeypatch.setattr(reference, "stores_below", lambda folder: read.append(str(folder)) or below(folder))
    linbench("claims", "C1")
    assert read == ["results", REFERENCE]


def test_of_two_names_of_one_folder_the_first_counts(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(shipped)
    found = Stored([*stores_below(tmp_path / "results"), *stores_below(REFERENCE)])
    assert {store.folder.relative_to(tmp_path).parts[0] for store in found.stores} == {"results"}
    assert len(found.results) == 3
