"""Packing of loose results and unpacking, safe against a kill at any moment.

A pack is written, read back and listed before any loose file of its results is removed. Whatever a run was
killed over, the same command again goes on from there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from linbench.common.errors import UserError
from linbench.common.files import LEFTOVER, storage_sentence, unused, write_whole
from linbench.common.hashing import canonical
from linbench.experiments.pattern import split_task
from linbench.experiments.suite import Suite, blocks, load, shipped, tasks_of
from linbench.results.matching import compatible
from linbench.results.packs import (
    Line,
    PackError,
    describe,
    faults,
    line_id,
    numbered,
    pack_name,
    pack_paths,
    read_lines,
    read_manifest,
    write_manifest,
    write_pack,
)
from linbench.results.record import is_cell, is_pretrained
from linbench.results.result_text import NewerResultError, check_text, read_file, result_text
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store
from linbench.results.submission import Submission
from linbench.results.thin import thin_texts

UNKNOWN = "unknown"
"""The command in the manifest of a pack whose writer did not say, or was killed before it could."""

_LOCK = "packing"


class Packed(NamedTuple):
    """A pack that was written: its path, its results, and bytes before and after."""

    path: Path
    rows: int
    loose_bytes: int
    packed_bytes: int


class Packing(NamedTuple):
    """The outcome of `pack`: packs written, and loose files removed whose result a pack had already."""

    packs: list[Packed]
    removed: int


class Unpacking(NamedTuple):
    """The outcome of `unpack`: files written, files that were there, and files that differ and were left."""

    written: int
    there: int
    differ: list[Path]


class _Loose(NamedTuple):
    """A sound result in a file of its own: the file's content, and the line that it makes in a pack."""

    path: Path
    content: bytes
    result: Result
    line: bytes


def pack(store: Store, name: str | None = None, command: str | None = None, *, thin: bool = False) -> Packing:
    """Move the loose results of a folder into new packs.

    Results that do not count stay where they are, in `store.set_aside`; those of an older schema stay, too.

    Args:
        name: the one pack that all go to. Without it each goes to the pack that `pack_names` gives.
        command: the command that measured them, for the manifest.
        thin: leave out what `linbench.results.thin` says nothing reads.

    Raises UserError: the name cannot be one or is taken; the store is read-only; another process packs there.
    StorageError: something cannot be read, written, or is not read back as it was written.
    """
    store.loose_ids()  # raises before a folder that is not there is made
    with _packing_lock(store):
        _list_unlisted(store.folder)
        packed = {cell_id: lines[0].text for cell_id, lines in store.packed_lines().items()}
        new, redundant = list[_Loose](), list[_Loose]()
        for loose in _loose_results(store, thin=thin):
            members = redundant if packed.get(loose.result["id"]) == loose.line else new
            members.append(loose)
        names = {} if name else pack_names([loose.result for loose in new], store.folder)
        groups: dict[str, list[_Loose]] = {}
        for loose in new:
            groups.setdefault(name or names[loose.result["id"]], []).append(loose)
        _remove(redundant)
        packs = [_write(store.folder, pack, group, command, name) for pack, group in groups.items()]
        return Packing(packs, len(redundant))


def unpack(store: Store, into: Store) -> Unpacking:
    """Write the results in a folder's packs as files of their own; the packs stay.

    Of several lines with one id the newest that is sound counts. A file that is there already is never
    replaced. Lines that do not count are in `store.set_aside`.

    Raises UserError: `into` is read-only, or the packs are a submission's. StorageError: something cannot be
    read or written.
    """
    if isinstance(store, Submission):
        raise UserError(f"{store.folder} is a submission; as files its results would lose their mark.")
    store.loose_ids()
    written, there, differ = 0, 0, list[Path]()
    with _packing_lock(into):
        for cell_id, lines in sorted(store.packed_lines().items()):
            text = _sound_text(store, cell_id, lines)
            path = into.folder / f"{cell_id}.json"
            if text is None:
                continue
            if not path.exists() and not path.is_symlink():
                with storage_sentence(into.folder, "cannot keep results in"):
                    write_whole(path, text)
                written += 1
            elif read_file(path) == text:
                there += 1
            else:
                differ.append(path)
    return Unpacking(written, there, differ)


def verify(store: Store) -> list[str]:
    """Return a sentence for everything in a store that does not count; none if all can be trusted.

    Raises StorageError: the system fails to read something.
    """
    if isinstance(store, Submission):
        return store.faults()
    sentences = faults(store.folder)
    _loose_results(store)
    return sentences + [f"{place} does not count: {why}." for place, why in store.set_aside.items()]


def pack_names(results: Sequence[Result], folder: Path) -> dict[str, str]:
    """Return the name of the pack that each result goes to, by its id.

    In a folder called `claims` that is `claims`; else `speeds` for what benchmarks measured, `probes` for
    what language models answered, and for cells the shipped suite that asks the same of its models, where
    there is one, or `cells`.
    """
    if folder.resolve().name == "claims":
        return {result["id"]: "claims" for result in results}
    cells = [result for result in results if is_cell(result)]
    suites = _suites(cells, folder.resolve().name)
    names = {result["id"]: "probes" if is_pretrained(result) else "speeds" for result in results}
    return names | {cell["id"]: suites.get(_suite_settings_text(cell["cell"]), "cells") for cell in cells}


def _suites(cells: Sequence[CellResult], first: str) -> dict[str, str]:
    """Return the shipped suite that cells belong to, by `_suite_settings_text`.

    Args:
        cells: results of cells.
        first: the suite to prefer if cells belong to several.
    """
    settings, found = _settings_by_text([one["cell"] for one in cells]), dict[str, str]()
    for name in sorted(shipped(), key=lambda name: (name != first, name)):
        for text, asked in settings.items():
            if text not in found and _is_asked_by(name, asked):
                found[text] = name
    return found


def _is_asked_by(name: str, asked: Mapping[str, Any]) -> bool:
    """Return whether a shipped suite asks for these settings.

    Models are planned for none but its tasks that have the same settings, since that takes seconds.
    """
    task = asked["task"]
    return any(
        own == task["name"]
        and any(compatible(task["settings"], other, in_both=True) for other in _tasks_at(name, place))
        and any(compatible(asked, other) for other in _settings_at(name, place))
        for place, (own, _) in enumerate(_parts(name))
    )


@cache
def _parts(name: str) -> Sequence[tuple[str, Suite]]:
    """Return the name of each task of a shipped suite, and the suite with this task alone."""
    suite = load(name)
    return [(split_task(one.task)[0], suite.model_copy(update={"tasks": (one,)})) for one in suite.tasks]


@cache
def _tasks_at(name: str, place: int) -> Sequence[Mapping[str, Any]]:
    """Return the settings of a task of a shipped suite, at each point of the grid."""
    return [task.settings.identity() for task in tasks_of(_parts(name)[place][1])]


@cache
def _settings_at(name: str, place: int) -> Sequence[Mapping[str, Any]]:
    """Return what a task of a shipped suite asks for, each once."""
    planned, _ = blocks(_parts(name)[place][1], device="cpu")
    return [*_settings_by_text(cells[0].identity for block in planned for _, cells in block.rows).values()]


def _settings_by_text(identities: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {_suite_settings_text(identity): _suite_settings(identity) for identity in identities}


def _suite_settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a cell that suites share: task, form and training.

    Versions, learning rate and device are left out.
    """
    task, model, protocol = identity["task"], identity["model"], identity["protocol"]["settings"]
    chosen = {"lr", "weight_decay", "precision"}
    return {
        "task": {name: value for name, value in task.items() if name not in ("version", "draws", "source")},
        "form": model["form"],
        "model": {"settings": model["backbone"]["settings"]},
        "protocol": {"settings": {name: value for name, value in protocol.items() if name not in chosen}},
    }


def _suite_settings_text(identity: Mapping[str, Any]) -> str:
    return canonical(_suite_settings(identity))


@contextmanager
def _packing_lock(store: Store) -> Iterator[None]:
    """Keep other processes from packing the same folder. Raises UserError, StorageError."""
    if isinstance(store, Submission):
        store.may_add()
    if store.read_only:
        raise UserError(
            "the results that come with linbench are read-only; name a folder of yours, or another with --to."
        )
    store.prepare()
    with store.claim(_LOCK) as ours:
        if not ours:
            raise UserError(f"another process is packing {store.folder}; wait until it has ended.")
        yield


def _list_unlisted(folder: Path) -> None:
    """List packs in the manifest whose writer was killed before it could."""
    entries = read_manifest(folder)
    for path in pack_paths(folder):
        if pack_name(path) in entries:
            continue
        try:
            lines = list(numbered(path, read_lines(path)))
        except PackError:  # the store sets it aside
            continue
        found = [_checked(line, line_id(line.text) or "") for line in lines]
        sound = [result for result in found if result is not None]
        entry = describe(sound, path.read_bytes(), UNKNOWN)
        write_manifest(folder, read_manifest(folder) | {pack_name(path): entry | {"rows": len(lines)}})


def _checked(line: Line, cell_id: str) -> Result | None:
    try:
        found = check_text(line.text, cell_id, line.place)
    except NewerResultError:
        return None
    return None if isinstance(found, str) else found


def _loose_results(store: Store, *, thin: bool = False) -> list[_Loose]:
    """Return the sound loose results of a folder; what does not count is set aside, and stays.

    Args:
        thin: whether their lines are those of a thin pack.
    """
    found = []
    for cell_id in sorted(store.loose_ids()):
        path = store.folder / f"{cell_id}.json"
        content = read_file(path)
        try:
            result = check_text(content, cell_id, path) if isinstance(content, bytes) else content
        except NewerResultError as newer:
            result = newer.reason
        if isinstance(result, str):
            store.set_aside.setdefault(path, result)
        elif result is not None and isinstance(content, bytes):
            found.append((path, content, result))
    results = [result for _, _, result in found]
    lines = thin_texts(results) if thin else [*map(result_text, results)]
    return [_Loose(*one, line) for one, line in zip(found, lines, strict=True)]


def _write(
    folder: Path, name: str, found: Sequence[_Loose], command: str | None, given: str | None
) -> Packed:
    """Write one pack, then remove the loose files of its results."""
    taken = {*read_manifest(folder), *map(pack_name, pack_paths(folder))}
    free = name if given else unused(name, taken)
    measured_by = command or _command(name, folder)
    path = write_pack(folder, free, [(one.result, one.line) for one in found], measured_by)
    _remove(found)
    return Packed(path, len(found), sum(len(one.content) for one in found), path.stat().st_size)


def _command(name: str, folder: Path) -> str:
    """Return the command that usually measures what a pack of that name holds."""
    if name in shipped():
        return f"linbench sweep {name} --results {folder}"
    return {"speeds": "linbench bench", "probes": "linbench probe", "claims": "linbench claims --run"}.get(
        name, UNKNOWN
    )


def _remove(found: Sequence[_Loose]) -> None:
    """Remove loose files whose result a pack has. One that another process has replaced meanwhile stays."""
    for one in found:
        aside = one.path.with_name(f"{LEFTOVER}{one.path.name}")
        with storage_sentence(one.path, "cannot remove"):
            try:
                one.path.rename(aside)
            except FileNotFoundError:
                continue
            if aside.read_bytes() == one.content:
                aside.unlink()
            elif not one.path.exists():
                aside.rename(one.path)


def _sound_text(store: Store, cell_id: str, lines: Sequence[Line]) -> bytes | None:
    """Return the newest line that is sound, or of a newer or older schema; set others aside."""
    for line in lines:
        try:
            found = check_text(line.text, cell_id, line.place)
        except NewerResultError:
            return line.text
        if not isinstance(found, str):
            return line.text
        store.set_aside.setdefault(line.place, found)
    return None
