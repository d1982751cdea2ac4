"""Folders of results that are read together, where the first takes new ones."""

from pathlib import Path

from linbench.cli.result_folders import store_for_new
from linbench.results.store import Store
from tests.helpers.records import a_record
from tests.results.test_submission import IDS, written

OWN, BELOW, OTHER, BELOW_OTHER, NEW = (letter * 64 for letter in "cdef0")


def keep(name: str, store: Store) -> Path:
    """Put a result of that id into a store."""
    store.prepare()
    return store.put(a_record(name))


def test_a_store_for_new_results_finds_what_is_read_with_it_but_no_submission(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    places = {OWN: first, BELOW: first / "claims", OTHER: second, BELOW_OTHER: second / "claims"}
    for name, folder in places.items():
        keep(name, Store(folder))
    for folder in (first, first / "claims", second):
        written(folder)

    store = store_for_new([first, second])

    assert [name for name in (*places, *IDS) if store.find(name)] == [*places]
    assert keep(NEW, store).parent == first


def test_the_first_folder_may_be_absent(tmp_path: Path) -> None:
    keep(OTHER, Store(tmp_path / "second"))
    store = store_for_new([tmp_path / "first", tmp_path / "second"])
    assert store.find(OTHER)
    assert keep(NEW, store).parent == tmp_path / "first"
