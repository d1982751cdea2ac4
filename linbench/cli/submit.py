"""`linbench submit`: the place of a layer among all others, and its results in one file."""

import json
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    DeviceOption,
    JsonOption,
    ResultsOption,
    StackOption,
    exit_if_failed,
    warn_ignored_files,
)
from linbench.common import escape
from linbench.common.errors import UserError
from linbench.common.files import storage_sentence, try_named
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linbench.common.laws import Law
    from linbench.engine.compare import ComparisonPlan
    from linbench.engine.submit import Effort
    from linbench.results.schema.cells import CellResult

EXAMPLES = """
Examples:

  linbench submit ./mine.py:Mine --dry-run

  linbench submit ./mine.py:Mine --devices all

  linbench submit ./mine.py:Mine --device cpu --save submissions
"""


@with_executor_options
def submit(
    layer: Annotated[
        str,
        typer.Argument(
            metavar="LAYER",
            autocompletion=completion.models,
            help="The layer: ./file.py:Class, package.module:Class, or a name.",
        ),
    ],
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="SUITE",
            autocompletion=completion.suites,
            help="Suite that it is measured with, a name or a YAML file.",
            show_default="leaderboard on a GPU, leaderboard-quick on a CPU",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="reference|DIR",
            help="Folder with results of the others; reference: those that come with linbench.",
        ),
    ] = "reference",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would run and what it took other models. Run nothing."),
    ] = False,
    save: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Folder for the file of the submission.",
            rich_help_panel="Results",
        ),
    ] = Path(),
    device: DeviceOption = "auto",
    stack: StackOption = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Place a layer among all others: train it on a small suite, and print its rank in each question.

    All its results and its source go into one file, NAME-HASH.submission.zip. Whoever gets it can check it
    (`linbench results verify FILE`) and read it like a folder of results, such as for their leaderboard
    (`linbench site --results reference --results FILE`), which marks it as not rerun. Finished cells are not
    repeated.
    """
    from linbench import __version__
    from linbench.cli.running import run_with_progress
    from linbench.engine.compare import plan_comparison
    from linbench.engine.submit import Measured, efforts, sources, suite_for
    from linbench.experiments.pattern import split_models
    from linbench.experiments.suite import load
    from linbench.results.reference import store_at
    from linbench.results.submission import ENDING, Statement, write_submission

    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        layers = split_models(layer)
        if len(layers) != 1:
            raise UserError(f"a submission is of one layer, not of {len(layers)}; submit each by itself.")
        (layer,) = layers
        name = suite or suite_for(device)
        chosen = load(name)
        store = store_at(results)
        store.may_add()
        plan = plan_comparison([layer], chosen, against=against, device=device)
        everything = Measured()
        for each in plan.stores:
            everything.add(each.all())
        took = efforts(plan, layer, everything)
        _tell_cost(plan, took, layer, name, searched=chosen.search is not None)
        if not dry_run:
            with storage_sentence(save, "cannot write a submission in", "--save"):
                try_named(save / ENDING)
            new = run_with_progress(
                plan.cells,
                store,
                search=chosen.search,
                stack=stack,
                allow=allow or (),
                executor=executor,
                summarize=True,
            )
    if dry_run:
        if as_json:
            print(json.dumps(_plan_json(plan, took, name)))
        return
    rows = [row for block in plan.blocks for row in block.rows]
    own = [cell for part, cells in rows if part.model == layer for cell in cells]
    asked = [cell.identity for _, cells in rows for cell in cells]
    label = own[0].model.label
    if store.folder.is_dir():
        everything.add(store.all())
    statement: Statement = {
        "layer": label,
        "suite": name,
        "command": shlex.join(["linbench", "submit", layer, "--suite", name, *_allowed(allow)]),
        "linbench": __version__,
        "sources": sources(layer),
    }
    submission = write_submission(save, statement, everything.of(cell.identity for cell in own))
    # imported late: tables take a second to load
    from linbench.report.tables.placing import placing_table
    from linbench.results.comparison import comparisons
    from linbench.results.placing import overall, placings

    warn_ignored_files(store.set_aside)
    alike = comparisons(everything.of(asked))
    found = placings(alike, label)
    if not found:
        tell(f"linbench: {label} has no rank: {_why_no_rank(new)}.")
    table = placing_table(found, overall(alike, label), label)
    if as_json:
        print(
            json.dumps({**table.to_json(), "submission": str(submission.folder), "about": submission.about})
        )
    else:
        if found:
            table.show()
            print(f"\n{escape.one_line(table.caption)}\n")
        print(submission.folder)
    exit_if_failed(new)


def _allowed(laws: "Sequence[Law] | None") -> list[str]:
    """Return the words of the command that let a layer break laws."""
    return [word for law in laws or () for word in ("--allow", law.value)]


def _why_no_rank(results: "Sequence[CellResult]") -> str:
    from linbench.results.record import UNLAWFUL

    broken = sorted({mark for result in results for mark in result["marks"] if mark in UNLAWFUL})
    if broken:
        return f"its results are marked {', '.join(broken)}"
    return "no other model was asked just the same, with the same settings around it"


def _plan_json(plan: "ComparisonPlan", took: "Sequence[Effort]", suite: str) -> dict[str, Any]:
    """Return what would run, and what it took each of the other models."""
    return {
        "suite": suite,
        "tasks": len(plan.blocks),
        "cells": [cell.id for cell in plan.cells],
        "others": [one._asdict() for one in took],
    }


def _tell_cost(
    plan: "ComparisonPlan", took: "Sequence[Effort]", layer: str, suite: str, *, searched: bool
) -> None:
    """Print on standard error what is to be run, and what it took other models."""
    from linbench.report.style.wording import million_tokens

    tasks, cells = pluralize(len(plan.blocks), "task"), pluralize(len(plan.cells), "cell")
    more = ", and the searches of their learning rates" if searched and plan.cells else ""
    tell(f"linbench: {suite} asks {layer} {tasks}; {cells} to run{more}.")
    if not took:
        return
    models, tokens = pluralize(len(took), "other model"), sorted(one.tokens for one in took)
    seconds = [one.seconds for one in took]
    tell(
        f"linbench: {models} trained on {million_tokens(median(tokens))} tokens (median) and"
        f" {million_tokens(tokens[-1])} at most, searches and all budgets included. That took"
        f" {format_duration(median(seconds))} (median) and {format_duration(max(seconds))} at most, on a"
        " device that they shared."
    )


submit.__doc__ = (submit.__doc__ or "") + EXAMPLES
