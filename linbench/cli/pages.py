"""Pages of Markdown that verbs write with --save, each with the command that writes it and its pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from linbench.common.streams import tell
from linbench.common.text import pluralize

if TYPE_CHECKING:
    from linbench.report.figure import Drawing


def command_line(
    verb: str, names: Sequence[str] | None, options: Mapping[str, Sequence[object] | None], path: Path
) -> str:
    """Return the command that writes a page.

    Args:
        verb: such as `linbench claims`.
        names: its arguments.
        options: those that choose what the page shows, with all values given.
        path: of the page.
    """
    words = [f"{name} {quote(str(value))}" for name, values in options.items() for value in values or ()]
    return " ".join([verb, *(names or ()), *words, f"--save {quote(str(path))}"])


def write_text(path: Path, text: str) -> None:
    """Write a file that the user has named with --save. Raises StorageError: it cannot be written."""
    from linbench.common.files import storage_sentence, write_named

    with storage_sentence(path, "cannot write", "--save"):
        write_named(path, text.encode())


def save_page(path: Path, text: str, drawings: "Iterable[Drawing]") -> None:
    """Write a page and, into a folder beside it, its pictures.

    Raises StorageError: it cannot be written.
    """
    from linbench.common.files import pictures_folder
    from linbench.report.figure import save

    write_text(path, text)
    tell(f"wrote {path}")
    files = save(drawings, pictures_folder(path), ["svg"], captions=False)
    tell(f"wrote {pluralize(len(files), 'picture')} to {pictures_folder(path)}")
