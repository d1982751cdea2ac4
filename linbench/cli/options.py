"""Options that several verbs share: the same words everywhere."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from linbench.common.errors import EXIT_CELLS_FAILED, UserError
from linbench.common.laws import Law
from linbench.common.numbers import parse_whole, whole
from linbench.common.quotes import plain, split, unquoted
from linbench.common.streams import tell

MOST = 1 << 30
"""Of anything that an option counts and that costs memory for each."""

MOST_WORKERS = 1024
"""Processes of one host."""

LONGEST_SECONDS = 10_000_000.0
"""About four months."""


def whole_option(name: str, least: int, most: int, **more: Any) -> Any:
    """Return an option that takes a whole number from `least` to `most`; more: as `typer.Option` takes it."""
    return typer.Option(name, parser=parse_whole(name, least, most), metavar="N", **more)


ResultsOption = Annotated[
    Path,
    typer.Option(
        "--results",
        metavar="DIR",
        help="Folder of result files; reference: those that come with linbench.",
        rich_help_panel="Results",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="JSON on standard output, and nothing else there.", rich_help_panel="Results"
    ),
]

SeedsOption = Annotated[
    str | None, typer.Option("--seeds", help="Seeds, such as 0,1,2 or 0-4, whatever the suite says.")
]
FormOption = Annotated[
    str | None, typer.Option("--form", help="native or controlled, whatever the suite says.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
StackOption = Annotated[
    int | None,
    whole_option(
        "--stack", 1, MOST, help="Cells trained as one program at most; default: as suits the device."
    ),
]
AllowOption = Annotated[
    list[Law] | None,
    typer.Option(
        "--allow",
        metavar="LAW",
        help=(
            "Train layers of yours that are non-causal, batch-mixing or nondeterministic, marked and without"
            " verdict."
        ),
    ),
]


class Shown(StrEnum):
    """How verdicts are written."""

    terminal = "terminal"
    markdown = "markdown"


ShownOption = Annotated[
    Shown,
    typer.Option(
        "--format", help="terminal, or markdown, for a summary or a comment.", rich_help_panel="Results"
    ),
]


def tell_set_aside(files: Mapping[Path, str]) -> None:
    """Write one line on standard error for each result file that does not count, with the reason."""
    for path, why in files.items():
        tell(f"linbench: a result does not count: {path}: {why}.")


def tell_left_out(missing: Mapping[str, str]) -> None:
    """One line on standard error for each name that cannot be run, with why."""
    for name, sentence in missing.items():
        tell(f"linbench: left out, {name}: {sentence}")


def tell_failed(results: Sequence[dict[str, Any]]) -> None:
    """One line on standard error, and the end with an exit code of its own, if any cell did not end well."""
    bad = [result for result in results if result["status"] != "ok"]
    if bad:
        first = f"{bad[0]['label']} {bad[0]['status']}: {bad[0]['reason']}"
        tell(f"linbench: {len(bad)} of {len(results)} cells did not end well; the first: {first}.")
        raise typer.Exit(EXIT_CELLS_FAILED)


def names(option: str, text: str | None) -> list[str]:
    """`a, b` -> what it names; an option that is not given names nothing. Raises UserError: nothing where a
    name should be."""
    parts = [] if text is None else [part.strip() for part in split(text, ",")]
    if not all(parts):
        raise UserError(f"{option} takes names with commas between, not '{text}'; without it all are taken.")
    return parts


def numbers(option: str, text: str | None) -> list[int]:
    """Return the whole numbers in `256,4096`, each from 1 to `MOST`; of an option that is not given none.
    Raises UserError."""
    parts = _parts(text)
    found = [whole(part, 1, MOST) for part in parts]
    if None in found:
        raise UserError(f"{option} takes whole numbers from 1 to {MOST:,}, such as 64,256, not '{text}'.")
    return [number for number in found if number is not None]


def _parts(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def task_settings(pairs: Sequence[str], verb: str) -> dict[str, Any]:
    """As `parse_settings`, for a verb that makes a task alone. Raises UserError: as it does, or a setting of
    a model or protocol."""
    settings = parse_settings(pairs)
    if other := next((setting for setting in settings if setting.startswith(("model.", "protocol."))), None):
        raise UserError(
            f"{verb} takes settings of the task, as task.NAME; {other} changes nothing that is shown."
        )
    return settings


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`["task.kv_pairs=16"]` -> {"task.kv_pairs": "16"}; a name that holds = stands in quotes. Raises
    UserError: not NAME=VALUE, or a name twice."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        place = next((place for place, each, _ in plain(pair) if each == "="), len(pair))
        name, equals, value = (
            ".".join(unquoted(part) for part in split(pair[:place], ".")),
            pair[place : place + 1],
            pair[place + 1 :],
        )
        if not equals or not name.strip():
            raise UserError(f"--set takes NAME=VALUE, such as task.kv_pairs=16, not '{pair}'.")
        if name.strip() in settings:
            raise UserError(f"--set {name.strip()} is given twice.")
        settings[name.strip()] = value.strip()
    return settings
