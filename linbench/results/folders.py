"""The stores in a folder: those of all folders below it, and the submissions in them."""

import os
from collections.abc import Iterable
from pathlib import Path

from linbench.results.packs import SUFFIX, read_manifest
from linbench.results.result_text import FILE_REFUSALS
from linbench.results.store import FILE, Store
from linbench.results.submission import ENDING, Submission, is_submission


def find_stores(place: Path) -> list[Store]:
    """Return a store for each folder with results and each submission, in the order of their names.

    A folder that may not be read is set aside by the first of them.

    Args:
        place: a folder, which counts with all folders below it, or the file of a submission.
    """
    if is_submission(place):
        return [Submission(place)]
    unreadable: dict[Path, str] = {}

    def note(error: OSError) -> None:
        if error.errno in FILE_REFUSALS:
            unreadable[Path(error.filename)] = f"the folder cannot be read: {error.strerror}"

    found: list[Store] = []
    for folder, folders, files in os.walk(place, onerror=note):
        if any(FILE.fullmatch(name) or name.endswith(SUFFIX) for name in (*folders, *files)):
            found.append(Store(folder))
        found += [Submission(Path(folder, name)) for name in files if name.endswith(ENDING)]
    stores = sorted(found, key=lambda store: store.folder) or [Store(place)] * bool(unreadable)
    for store in stores[:1]:
        store.set_aside |= unreadable
    return stores


def without_submissions(stores: Iterable[Store]) -> list[Store]:
    """Return stores but for submissions, which nobody has run again and which decide nothing."""
    return [store for store in stores if not isinstance(store, Submission)]


def kinds_of_devices(stores: Iterable[Store]) -> set[str]:
    """Return the kinds of devices that have results: of packs by their manifests, of others by themselves.

    Raises StorageError: a manifest is damaged, or a folder cannot be read.
    """
    kinds = set[str]()
    for store in stores:
        for entry in read_manifest(store.folder).values():
            kinds |= {*entry["devices"]}
        kinds |= {result["cell"]["device"] for name in store.loose_ids() if (result := store.get(name))}
    return kinds


def each_once(stores: Iterable[Store]) -> list[Store]:
    """Return the first store of each folder, however many names a folder has."""
    by_place: dict[Path, Store] = {}
    for store in stores:
        by_place.setdefault(store.folder.resolve(), store)
    return list(by_place.values())
