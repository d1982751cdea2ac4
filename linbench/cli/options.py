"""Options that several verbs share: the same words everywhere."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from linbench.common.errors import UserError

ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="Folder of result files.", rich_help_panel="Results")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else there.", rich_help_panel="Results")]


def tell_set_aside(paths: Sequence[Path]) -> None:
    """One line on standard error for each result file that could not be trusted."""
    for path in paths:
        print(f"linbench: a result was unreadable and does not count; the file is now {path}.", file=sys.stderr)


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`["task.kv_pairs=16"]` -> {"task.kv_pairs": "16"}. Raises UserError: not NAME=VALUE, or a name twice."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--set takes NAME=VALUE, such as task.kv_pairs=16, not '{pair}'.")
        if name.strip() in settings:
            raise UserError(f"--set {name.strip()} is given twice.")
        settings[name.strip()] = value.strip()
    return settings


def parse_seeds(text: str) -> list[int]:
    """`0,1,2` or `0-4` -> seeds without repetition. Raises UserError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(number.isascii() and number.isdigit() for number in numbers) or int(numbers[-1]) < int(first):
            raise UserError(f"--seeds takes numbers such as 0,1,2 or 0-4, not '{text}'.")
        seeds += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(seeds))
