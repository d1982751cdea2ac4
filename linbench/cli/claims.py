"""`linbench claims`: what the literature says, held against what was measured."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    DeviceOption,
    JsonOption,
    tell_failed,
    tell_set_aside,
)
from linbench.common.errors import HopelessError, StorageError, UserError, unknown
from linbench.common.streams import tell
from linbench.common.text import counted, duration
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.claims.claim import Claim
    from linbench.claims.stored_results import Stored
    from linbench.claims.verdict import Verdict
    from linbench.experiments.cell import Cell
    from linbench.experiments.learning_rates import SearchSettings
    from linbench.results.record import Result

EXAMPLES = """
Examples:

  linbench claims

  linbench claims C17

  linbench claims C32 --run --device cpu

  linbench claims --all --tier T1

  linbench claims --tier T1 --run --results results/mine --results results

  linbench claims --save docs/claims.md
"""

DEFAULT = (Path("results"), Path("reference"))
"""The user's own results, and those that come with linbench."""


@with_executor_options
def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLAIM", autocompletion=completion.claims, help="Such as C17; none: all."),
    ] = None,
    tier: Annotated[
        list[str] | None, typer.Option(metavar="TIER", help="Only those of this cost: T0, T1, T2, T3 or X.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is missing to decide each, and what that may cost.")
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help=(
                "Run what nothing stored decides, with up to eight times the training; results go to the"
                " first --results."
            ),
        ),
    ] = False,
    device: DeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all of them as a page of Markdown.")
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help="Folders of result files, with all below them; reference: those that come with linbench.",
            show_default="results and reference",
            rich_help_panel="Results",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Claims of the literature with their verdicts: supported, refuted or undecided, by rules that stand
    beside their sources.

    With a name: the statement, its rule, what would decide it and what that costs, and the figures that are
    there. What needs no training is computed at once.
    """
    from linbench.claims.verdict import verdict
    from linbench.common.files import check_writable
    from linbench.experiments.device import pick_device

    done: list[Result] = []
    if save:
        check_writable(save, "cannot write", "--save")
    if run:
        pick_device(device)  # an unknown one is told at once
    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        chosen = _chosen(names or [], tier or [])
        stored = _stored(results, new=run)
        found = [verdict(claim, stored) for claim in chosen]
        if run:
            how = {"executor": executor, "allow": allow or ()}
            waiting = [each for each in found if not each.complete]
            while waiting:
                more = _run(waiting, stored, device, (results or DEFAULT)[0], how)
                done += more
                stored = _stored(results, new=run)
                found = [verdict(claim, stored) for claim in chosen]
                waiting = [each for each in found if more and each.short]
            if not done:
                tell("linbench: nothing is left to run.")
    tell_set_aside(stored.set_aside)
    if save:
        _save(
            save,
            found,
            stored,
            [
                *(names or []),
                *(f"--tier {name}" for name in tier or []),
                *(f"--results {quote(str(folder))}" for folder in results or []),
            ],
        )
    if as_json:
        from linbench.claims.page import plain

        told = [
            plain(each) | ({"ahead": _ahead(each, stored, device)} if names or everything else {})
            for each in found
        ]
        print(json.dumps(told))
    elif names and not save:
        print("\n\n".join(_at_length(each, stored, device) for each in found))
    elif not save:
        _list(found, stored, device if everything else None)
    tell_failed(done)


claims.__doc__ = (claims.__doc__ or "") + EXAMPLES


def _chosen(names: list[str], tiers: list[str]) -> "list[Claim]":
    """Raises UserError: no claim or tier of that name, or nothing left."""
    from linbench.claims.claim import claims as shipped
    from linbench.claims.claim import find
    from linbench.claims.schema import TIERS

    if wrong := [tier for tier in tiers if tier not in TIERS]:
        raise unknown("tier", wrong[0], TIERS)
    asked = [find(name) for name in names] or list(shipped().values())
    chosen = [
        claim
        for claim in {claim.id: claim for claim in asked}.values()
        if not tiers or claim.tiers[0] in tiers
    ]
    if not chosen:
        raise UserError(f"no claim that is asked for is of tier {', '.join(tiers)}.")
    return chosen


def _stored(given: list[Path] | None, *, new: bool) -> "Stored":
    """Of these folders and all below them; the first may be `new`. Raises StorageError: a folder that is
    named is not there."""
    from linbench.claims.stored_results import Stored
    from linbench.results.reference import REFERENCE, stores_below

    for folder in (given or [])[new:]:
        if str(folder) != REFERENCE and not folder.is_dir():
            raise StorageError(f"there is no results folder {folder}; --results names those that there are.")
    return Stored(store for folder in given or DEFAULT for store in stores_below(folder))


def _run(
    verdicts: "list[Verdict]", stored: "Stored", device: str, folder: Path, how: dict[str, Any]
) -> "list[Result]":
    """What they wait for that is neither a name nor a measure that is not there; cells of all whose learning
    rates are chosen alike together."""
    from linbench.bench.run import run
    from linbench.claims.cells import parts
    from linbench.claims.requirements import unmet
    from linbench.claims.speed_evidence import untimed
    from linbench.cli.running import carry_out
    from linbench.engine.former import to_run
    from linbench.experiments.device import device_class, pick_device
    from linbench.results.reference import store_at

    waiting = [each for each in verdicts if each.claim.measures and not unmet(each.claim)]
    together: dict[str, tuple[dict[str, Cell], SearchSettings | None]] = {}
    place = pick_device(device)
    kind = device_class(place)
    for part in (
        part for each in waiting for part in parts(each.claim, device=device, longer=each.budget(kind))
    ):
        there = stored.find(part.cells, part.search, kind)
        if missing := {cell.id: cell for cell in to_run(part.cells, there)}:
            together.setdefault(str(part.search), ({}, part.search))[0].update(missing)
    done: list[Result] = []
    for found, search in together.values():
        try:
            done += carry_out(list(found.values()), store_at(folder), search=search, stack=None, **how)
        except HopelessError as error:  # the other models have run
            tell(f"linbench: {error}")
    cases = {case.id: case for each in waiting for case in untimed(each.claim, stored, device=place)}
    if cases:
        done += run(list(cases.values()), store_at(folder), again=True, tell=tell)
    return done


def _save(path: Path, verdicts: "list[Verdict]", stored: "Stored", asked: list[str]) -> None:
    from linbench.claims.figure import drawings
    from linbench.claims.page import page, pictures
    from linbench.common.files import storage_sentence, write_named
    from linbench.report.figure import save

    command = " ".join(["linbench claims", *asked, f"--save {quote(str(path))}"])
    with storage_sentence(path, "cannot write", "--save"):
        write_named(path, page(verdicts, stored, command=command, beside=path).encode())
    tell(f"wrote {path}")
    drawn = save([drawing for verdict in verdicts for drawing in drawings(verdict)], pictures(path), ["png"])
    tell(f"wrote {counted(len(drawn) // 2, 'picture')} to {pictures(path)}")


def _at_length(verdict: "Verdict", stored: "Stored", device: str) -> str:
    from linbench.claims.page import detail

    return "\n".join(
        [
            f"{verdict.claim.id}, {verdict.claim.section}",
            "",
            *detail(verdict, stored),
            "",
            _outlook(verdict, stored, device),
        ]
    )


def _ahead(verdict: "Verdict", stored: "Stored", device: str) -> dict[str, Any] | None:
    """What is left to run on a device, by name of its kind; None of a claim that waits."""
    from linbench.claims.remaining import outlook
    from linbench.claims.requirements import unmet
    from linbench.experiments.device import device_class, pick_device

    if unmet(verdict.claim) or not verdict.claim.measures:
        return None
    where = pick_device(device)
    return {"device": device_class(where), **outlook(verdict, stored, device=where)._asdict()}


def _outlook(verdict: "Verdict", stored: "Stored", device: str) -> str:
    """What decides it, and what is missing of that."""
    from linbench.claims.requirements import unmet

    claim = verdict.claim
    ahead = _ahead(verdict, stored, device)
    if ahead is None:
        return f"It waits for: {'; '.join(unmet(claim)) or 'cells that decide it'} ({claim.cost})."
    if not ahead["cells"] and not ahead["timings"]:
        return "Nothing is trained for it."
    if verdict.complete:
        return "All that decides it has results on one kind of device."
    told = []
    if ahead["cells"]:
        cost = (
            "nothing finished there tells how long that takes"
            if ahead["seconds"] is None
            else f"about {duration(ahead['seconds'])}"
        )
        told.append(
            f"{counted(ahead['cells'], 'run')} decide it, those that choose learning rates among them;"
            f" {ahead['left']} are left: {cost}"
        )
    if ahead["timings"]:
        told.append(f"{counted(ahead['timings'], 'timing')} of layers decide it; {ahead['untimed']} are left")
    return f"On {ahead['device']} {', and '.join(told)} ({claim.cost})."


def _list(verdicts: "list[Verdict]", stored: "Stored", device: str | None) -> None:
    """By sections, a line each; with a device also what is missing there."""
    from linbench.claims.page import line, tally
    from linbench.report.terminal import show

    for section in dict.fromkeys(each.claim.section for each in verdicts):
        print(f"\n{section}")
        own = [each for each in verdicts if each.claim.section == section]
        rows = [line(each) + ([] if device is None else [_outlook(each, stored, device)]) for each in own]
        columns = ["claim", "verdict", "says", "why", *([] if device is None else ["what is missing"])]
        show(columns, rows, left=columns)
    print(f"\n{tally(verdicts)}")
