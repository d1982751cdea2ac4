"""`linbench claims`: claims of the literature, tested on stored results."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    JsonOption,
    PlannedDeviceOption,
    exit_if_failed,
    warn_ignored_files,
)
from linbench.cli.pages import command_line, save_page
from linbench.cli.result_folders import DEFAULT, FoldersOption, require_folders, store_for_new, stores_in
from linbench.common.errors import UserError, unknown
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.claims.claim import Claim
    from linbench.claims.run import Runner
    from linbench.claims.stored_results import Stored
    from linbench.claims.verdict import Verdict

EXAMPLES = """
Examples:

  linbench claims

  linbench claims C13

  linbench claims C32 --run --device cpu

  linbench claims --all --tier T1

  linbench claims --tier T1 --run --results results/mine --results results

  linbench claims --save docs/claims.md
"""


@with_executor_options
def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CLAIM",
            autocompletion=completion.claims,
            help="Claims to show, such as C17 (default: all).",
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIER",
            help=(
                "Show only claims of this cost, by the time one model takes on a GPU. T0: seconds, nothing"
                " is trained; T1: under 3 minutes; T2: 3 to 15; T3: 15 to 60; X: not possible at this size."
            ),
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also show what is missing to decide each claim, and how long it may take."
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help=(
                "Run what is missing. Claims are judged with 14, 24 and 32 seeds: the next number of seeds is"
                " run until a claim is decided. Results go to the first --results."
            ),
        ),
    ] = False,
    device: PlannedDeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the verdicts as a page of Markdown.")
    ] = None,
    results: FoldersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test claims of the literature on stored results: each is supported, refuted or undecided.

    Every claim has written rules. With a name, show the statement, its rules, the numbers that decide it, and
    what is missing. Whatever needs no training is computed at once.
    """
    from linbench.claims.run import decide
    from linbench.common.files import check_writable

    if save:
        check_writable(save, "cannot write", "--save")
    options = {"executor": executor, "allow": allow or ()}
    with redirect_stdout(sys.stderr):  # plugins may print; standard output is ours
        runner = _runner(results or DEFAULT, device, options) if run else None
        chosen = _select_claims(names or [], tier or [])
        verdicts, stored, new_results = decide(chosen, partial(_load, results, new=run), runner)
        if run and not new_results:
            tell("linbench: nothing is left to run.")
    warn_ignored_files(stored.set_aside)
    if save:
        command = command_line("linbench claims", names, {"--tier": tier, "--results": results}, save)
        _save(save, verdicts, stored, command)
    remaining = partial(_remaining, stored=stored, device=device)
    if as_json:
        _print_json(verdicts, remaining if names or everything else None)
    elif names and not save:
        print("\n\n".join(_in_full(verdict, stored, remaining(verdict)) for verdict in verdicts))
    elif not save:
        _print_table(verdicts, remaining if everything else None)
    exit_if_failed(new_results)


claims.__doc__ = (claims.__doc__ or "") + EXAMPLES


def _select_claims(names: list[str], tiers: list[str]) -> "list[Claim]":
    """Return the claims to show. Raises UserError: an unknown claim or tier, or no claim is left."""
    from linbench.claims.claim import claims as shipped
    from linbench.claims.claim import find
    from linbench.claims.schema import TIERS

    if wrong := [tier for tier in tiers if tier not in TIERS]:
        raise unknown("tier", wrong[0], TIERS)
    selected = [find(name) for name in names] or list(shipped().values())
    by_id = {claim.id: claim for claim in selected}
    chosen = [claim for claim in by_id.values() if not tiers or claim.tiers[0] in tiers]
    if not chosen:
        raise UserError(f"none of these claims is of tier {', '.join(tiers)}; leave --tier out to see all.")
    return chosen


def _load(folders: list[Path] | None, *, new: bool) -> "Stored":
    """Read the results in folders and all folders in them.

    Args:
        given: the folders of --results.
        new: whether the first may be absent, as results will be written to it.

    Raises:
        StorageError: a folder is absent.
    """
    from linbench.claims.stored_results import Stored

    require_folders(folders or (), new=new)
    return Stored(stores_in(folders or DEFAULT))


def _runner(folders: Sequence[Path], device: str, options: dict[str, Any]) -> "Runner":
    """Return what makes the results that no folder has, and stores them in the first.

    Raises UserError: an unknown device.
    """
    from linbench.bench.run import run
    from linbench.claims.run import Runner
    from linbench.cli.running import run_with_progress
    from linbench.experiments.device import pick_device

    place, store = pick_device(device), store_for_new(folders)
    return Runner(
        device=place,
        train=lambda cells, search: run_with_progress(cells, store, search=search, stack=None, **options),
        time_layers=lambda cases: run(list(cases), store, again=True, tell=tell),
        warn=lambda words: tell(f"linbench: {words}"),
    )


def _save(path: Path, verdicts: "list[Verdict]", stored: "Stored", command: str) -> None:
    from linbench.claims.figure import drawings
    from linbench.claims.page import page

    text = page(verdicts, stored, command=command, beside=path)
    save_page(path, text, [drawing for verdict in verdicts for drawing in drawings(verdict)])


def _print_json(
    verdicts: "list[Verdict]", remaining: "Callable[[Verdict], dict[str, Any] | None] | None"
) -> None:
    from linbench.claims.page import to_json

    rows = [to_json(verdict) | ({"ahead": remaining(verdict)} if remaining else {}) for verdict in verdicts]
    print(json.dumps(rows))


def _in_full(verdict: "Verdict", stored: "Stored", remaining: dict[str, Any] | None) -> str:
    from linbench.claims.page import detail

    title = f"{verdict.claim.id}, {verdict.claim.section}"
    return "\n".join([title, "", *detail(verdict, stored), "", _remaining_words(verdict, remaining)])


def _remaining(verdict: "Verdict", *, stored: "Stored", device: str) -> dict[str, Any] | None:
    """Return what is left to run for a claim on a device; None if it needs what linbench does not have."""
    from linbench.claims.remaining import remaining_work
    from linbench.experiments.device import device_class, pick_device

    if verdict.waits:
        return None
    place = pick_device(device, kinds=lambda: stored.kinds)
    return {"device": device_class(place), **remaining_work(verdict, stored, device=place)._asdict()}


def _remaining_words(verdict: "Verdict", work: dict[str, Any] | None) -> str:
    """Return in words how much decides a claim, and how much of that is missing."""
    from linbench.claims.requirements import missing_requirements

    claim = verdict.claim
    if work is None:
        missing = "; ".join(missing_requirements(claim)) or "an experiment, as none is written yet"
        return f"It waits for: {missing} ({claim.cost})."
    if not work["cells"] and not work["timings"]:
        return "Nothing is trained for it."
    if verdict.complete:
        return "Nothing is missing: no further seed is needed, or none could decide it."
    parts: list[str] = []
    if work["cells"]:
        seconds = work["seconds"]
        cost = (
            "no finished run tells how long that takes"
            if seconds is None
            else f"about {format_duration(seconds)}"
        )
        parts.append(
            f"{work['left']} of {pluralize(work['cells'], 'run')} are missing, learning-rate searches"
            f" included ({cost})"
        )
    if work["most_to_come"]:
        parts.append(f"searches may add up to {pluralize(work['most_to_come'], 'run')}")
    if work["doublings"]:
        times = pluralize(work["doublings"], "time")
        parts.append(f"training may go on with twice the budget up to {times}, which is not counted")
    if work["timings"]:
        parts.append(f"{work['untimed']} of {pluralize(work['timings'], 'timing')} of layers are missing")
    return f"On {work['device']}, {'; '.join(parts)}; {claim.cost}."


def _print_table(
    verdicts: "list[Verdict]", remaining: "Callable[[Verdict], dict[str, Any] | None] | None"
) -> None:
    """Print a line for every claim, section by section; with `remaining`, also what is missing for it."""
    from linbench.claims.page import LINE, line, tally
    from linbench.report.terminal import show

    columns = [*LINE, *(["what is missing"] if remaining else [])]
    for section in dict.fromkeys(verdict.claim.section for verdict in verdicts):
        print(f"\n{section}")
        of_section = [verdict for verdict in verdicts if verdict.claim.section == section]
        rows = [
            line(verdict) + ([_remaining_words(verdict, remaining(verdict))] if remaining else [])
            for verdict in of_section
        ]
        show(columns, rows, left=columns)
    print(f"\n{tally(verdicts)}")
