"""Options that several verbs share, and readers of their values."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.common.errors import EXIT_CELLS_FAILED, UserError
from linbench.common.laws import Law
from linbench.common.numbers import parse_whole, whole_number
from linbench.common.quotes import outside_quotes, split, strip_quotes
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.results.schema import Result

MOST = 1 << 30
"""The largest count an option takes. Each thing counted costs memory, so that more is a slip."""

LONGEST_SECONDS = 10_000_000.0
"""The longest timeout: about four months."""


def whole_option(name: str, least: int, most: int, **more: Any) -> Any:
    """Return an option that takes a whole number from `least` to `most`.

    Args:
        name: the option's name, such as "--stack".
        least: the smallest number allowed.
        most: the largest number allowed.
        more: further arguments of `typer.Option`.
    """
    return typer.Option(name, parser=parse_whole(name, least, most), metavar="N", **more)


ResultsOption = Annotated[
    Path,
    typer.Option(
        "--results",
        metavar="DIR",
        help="Folder of result files, or reference for those that come with linbench.",
        rich_help_panel="Results",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON, and nothing else, on standard output.", rich_help_panel="Results"
    ),
]

SuiteArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        autocompletion=completion.suites,
        help="Suite: a name (see linbench list suites) or a YAML file.",
    ),
]
SuiteModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODELS",
        autocompletion=completion.models,
        help="Models in place of the suite's, comma-separated.",
    ),
]
SeedsOption = Annotated[
    str | None, typer.Option("--seeds", help="Seeds in place of the suite's, such as 0,1,2 or 0-4.")
]
FormOption = Annotated[
    str | None, typer.Option("--form", help="Form in place of the suite's: native or controlled.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Device: auto, cpu, cuda or cuda:N.")]
PlannedDeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help=(
            "Device: auto, cpu, cuda or cuda:N. For a plan, where nothing is run, also a kind that has"
            " results, such as h200."
        ),
    ),
]
StackOption = Annotated[
    int | None,
    whole_option(
        "--stack",
        1,
        MOST,
        help="Train at most this many cells as one program (default: chosen for the device).",
    ),
]
AllowOption = Annotated[
    list[Law] | None,
    typer.Option(
        "--allow",
        metavar="LAW",
        help=(
            "Train layers of yours although they break a law: non-causal, batch-mixing or nondeterministic."
            " Their results are marked and take part in no verdict."
        ),
    ),
]


class VerdictFormat(StrEnum):
    """The format in which verdicts are printed."""

    terminal = "terminal"
    markdown = "markdown"


VerdictFormatOption = Annotated[
    VerdictFormat,
    typer.Option(
        "--format", help="terminal, or markdown for a comment or a job summary.", rich_help_panel="Results"
    ),
]


def warn_ignored_files(files: Mapping[Path, str]) -> None:
    """Print a line on standard error for each result file that is ignored, with the reason."""
    for path, why in files.items():
        tell(f"linbench: ignored result file {path}: {why}.")


def warn_left_out(missing: Mapping[str, str]) -> None:
    """Print a line on standard error for each name that cannot be run, with the reason."""
    for name, sentence in missing.items():
        tell(f"linbench: left out {name}: {sentence}")


def exit_if_failed(results: "Sequence[Result]", *, of: int | None = None) -> None:
    """Print a line on standard error and exit with code 3 if any cell failed.

    of: the number of cells that were to be run; None: one for each result.
    """
    bad = [result for result in results if result["status"] != "ok"]
    if bad:
        first = f"{bad[0]['label']} {bad[0]['status']}: {bad[0]['reason']}"
        tell(f"linbench: {len(bad)} of {of or len(results)} cells failed; first failure: {first}.")
        raise typer.Exit(EXIT_CELLS_FAILED)


def parse_names(option: str, text: str | None, *, required: bool = False) -> list[str]:
    """Return the names in a comma-separated list; none if the option is not given.

    Args:
        option: its name, for messages.
        text: the list.
        required: whether the option must be given.

    Raises UserError: a name in the list is empty.
    """
    parts = [] if text is None else [part.strip() for part in split(text, ",")]
    if not all(parts):
        end = "." if required else "; leave it out to take all."
        raise UserError(f"{option} takes comma-separated names, not '{text}'{end}")
    return parts


def parse_numbers(option: str, text: str | None) -> list[int]:
    """Return the whole numbers in a comma-separated list such as `256,4096`; none if the option is not given.

    Raises UserError: one is not a whole number from 1 to `MOST`.
    """
    parts = _parts(text)
    numbers = [whole_number(part, 1, MOST) for part in parts]
    if None in numbers:
        raise UserError(f"{option} takes whole numbers from 1 to {MOST:,}, such as 64,256, not '{text}'.")
    return [number for number in numbers if number is not None]


def _parts(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def task_settings(pairs: Sequence[str], verb: str) -> dict[str, Any]:
    """Read settings as `parse_settings` does, for a verb that builds only a task.

    Raises UserError: also for a setting of a model or protocol.
    """
    settings = parse_settings(pairs)
    for name in settings:
        if name.startswith(("model.", "protocol.")):
            raise UserError(f"{verb} takes only settings of the task (task.NAME); {name} has no effect here.")
    return settings


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return settings such as `task.kv_pairs=16` by name. A name that contains = is written in quotes.

    Raises UserError: one is not NAME=VALUE, or a name is given twice.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        equals = next((place for place, sign, _ in outside_quotes(pair) if sign == "="), None)
        before = pair[:equals]
        name = ".".join(strip_quotes(part) for part in split(before, ".")).strip()
        if equals is None or not name:
            raise UserError(f"--set takes NAME=VALUE, such as task.kv_pairs=16, not '{pair}'.")
        if name in settings:
            raise UserError(f"--set {name} is given twice; keep one of the two.")
        settings[name] = pair[equals + 1 :].strip()
    return settings
