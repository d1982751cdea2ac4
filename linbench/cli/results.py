"""`linbench results`: stored results as packs, and packs as files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.help import help_of
from linbench.cli.options import JsonOption, warn_ignored_files
from linbench.common import escape
from linbench.common.errors import EXIT_NO, UserError
from linbench.common.streams import tell
from linbench.common.text import pluralize

EXAMPLES = {
    "pack": """
Examples:

  linbench results pack

  linbench results pack results/h200 --name zoo --command "linbench sweep zoo"
""",
    "unpack": """
Examples:

  linbench results unpack results/cpu --to here

  linbench results unpack reference --to here
""",
    "verify": """
Examples:

  linbench results verify

  linbench results verify reference
""",
}

results = typer.Typer(
    help="Pack stored results into one compressed file for each suite, unpack them, and verify them.",
    no_args_is_help=True,
)

FolderArgument = Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of results.")]


def pack(
    folder: FolderArgument = Path("results"),
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Put all into one pack of this name; default: a pack for each suite, speeds, and claims.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The command that measured them, for the manifest; with --name."),
    ] = None,
    thin: Annotated[
        bool,
        typer.Option(
            "--thin",
            help=(
                "Round to what tables show, and leave out slices and curves of runs that none shows, and the"
                " slice writes_between of all."
            ),
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move the result files of a folder into new packs, NAME.jsonl.xz, and list these in packs.json.

    A pack is read back before the files are removed, and is never changed afterwards: new results become a
    new pack, and count before those of older ones. Every verb reads packs as it reads files. Folders below
    are left alone.
    """
    from linbench.results.packing import pack
    from linbench.results.reference import store_at

    if command and not name:
        raise UserError("--command needs --name: each pack has a command of its own.")
    store = store_at(folder, "DIR")
    packed = pack(store, name, command, thin=thin)
    warn_ignored_files(store.set_aside)
    if as_json:
        packs = [
            {"file": str(new_pack.path), "results": new_pack.rows, "bytes": new_pack.packed_bytes}
            for new_pack in packed.packs
        ]
        print(json.dumps({"packs": packs, "removed": packed.removed}))
        return
    for new_pack in packed.packs:
        size = f"{new_pack.packed_bytes:,} bytes of {new_pack.loose_bytes:,}"
        print(f"{new_pack.path}: {pluralize(new_pack.rows, 'result')}, {size}")
    if packed.removed:
        tell(f"linbench: removed {pluralize(packed.removed, 'file')} whose results a pack had already.")
    if not packed.packs and not packed.removed:
        tell(f"linbench: there are no result files to pack in {folder}.")


def unpack(
    folder: FolderArgument = Path("results"),
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder to write to; default: beside the packs."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write every result in the packs of a folder as a file of its own; the packs stay.

    A file that is there already is never replaced. Exit code 1: one differs, or a line of a pack is damaged.
    """
    from linbench.results.packing import unpack
    from linbench.results.reference import store_at
    from linbench.results.store import Store

    store = store_at(folder, "DIR")
    into = Store(to, "--to") if to else store
    unpacked = unpack(store, into)
    warn_ignored_files(store.set_aside)
    for path in unpacked.differ:
        tell(f"linbench: {path} is another result than the pack has, and is left as it is.")
    if as_json:
        print(json.dumps(unpacked._asdict() | {"differ": [str(path) for path in unpacked.differ]}))
    else:
        already = f", {unpacked.there} were there already" if unpacked.there else ""
        print(f"wrote {pluralize(unpacked.written, 'result')} to {into.folder}{already}")
    if unpacked.differ or store.set_aside:
        raise typer.Exit(EXIT_NO)


def verify(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...", help="Folders of results, each with all folders below it (default: results)."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every pack against packs.json, and every result against its checksum, its id and its record.

    Print one line for each folder and one for each fault. The exit code is 1 if there is a fault.
    """
    from linbench.results.packing import verify
    from linbench.results.reference import stores_below

    faults: dict[Path, list[str]] = {}
    for folder in folders or [Path("results")]:
        stores = stores_below(folder)
        if not stores:
            raise UserError(f"there are no results in {folder}; name a folder that has some, or reference.")
        faults |= {store.folder: verify(store) for store in stores}
    if as_json:
        rows = [{"folder": str(folder), "faults": sentences} for folder, sentences in faults.items()]
        print(json.dumps(rows))
    for folder, sentences in faults.items() if not as_json else ():
        print(f"{folder}: {pluralize(len(sentences), 'fault') if sentences else 'all sound'}")
        for sentence in sentences:
            print(f"  {escape.one_line(sentence)}")
    if any(faults.values()):
        raise typer.Exit(EXIT_NO)


for _verb in (pack, unpack, verify):
    _verb.__doc__ = (_verb.__doc__ or "") + EXAMPLES[_verb.__name__]
    results.command(_verb.__name__, help=help_of(_verb))(_verb)
