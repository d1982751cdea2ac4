"""Folders of results that a verb reads together, the first of which takes new ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.common.errors import StorageError

if TYPE_CHECKING:
    from linbench.results.store import Store

DEFAULT = (Path("results"), Path("reference"))
"""The folders that are read unless others are named: your results, and those that come with linbench."""

FoldersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--results",
        metavar="DIR",
        help="Folder of results to read, with all folders in it; reference: the results of linbench.",
        show_default="results and reference",
        rich_help_panel="Results",
    ),
]


def require_folders(given: Sequence[Path], *, new: bool) -> None:
    """Require that the folders and submissions of --results are there.

    Args:
        given: the folders.
        new: whether the first may be absent, as results will be written to it.

    Raises StorageError: a folder is absent.
    """
    from linbench.results.reference import REFERENCE
    from linbench.results.submission import is_submission

    for folder in given[new:]:
        if str(folder) != REFERENCE and not folder.is_dir() and not is_submission(folder):
            raise StorageError(f"there is no results folder {folder}; name one that exists with --results.")


def stores_in(folders: Sequence[Path]) -> "list[Store]":
    """Return the stores in folders and all folders in them."""
    from linbench.results.reference import stores_below

    return [store for folder in folders for store in stores_below(folder)]


def store_for_new(folders: Sequence[Path]) -> "Store":
    """Return the store of the first folder, in which what is made is kept.

    It also finds what verbs that read these folders find: results in folders below it and in the others.
    Submissions are left out, as nobody has run them again.
    """
    from linbench.results.folders import without_submissions
    from linbench.results.reference import store_at

    others = [store for store in stores_in(folders) if store.folder != folders[0]]
    return store_at(folders[0], others=without_submissions(others))
