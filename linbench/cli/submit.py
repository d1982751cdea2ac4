"""`linbench submit`: the place of a layer among all others, and its results in one file."""

import json
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

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
from linbench.common.streams import tell
from linbench.common.text import format_duration, pluralize
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.engine.compare import ComparisonPlan
    from linbench.engine.submit import Effort

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
        bool, typer.Option("--dry-run", help="Say what would run and what it took others, and run nothing.")
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
    from linbench.results.submission import Statement, write_submission

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
        stored = [result for each in plan.stores for result in each.all()]
        _tell_cost(plan, efforts(plan, layer, Measured(stored)), layer, name)
        if dry_run:
            return
        new = run_with_progress(
            plan.cells,
            store,
            search=chosen.search,
            stack=stack,
            allow=allow or (),
            executor=executor,
            summarize=True,
        )
        rows = [row for block in plan.blocks for row in block.rows]
        own = [cell for part, cells in rows if part.model == layer for cell in cells]
        asked = [cell.identity for _, cells in rows for cell in cells]
        everything = Measured([*stored, *store.all()])
        statement: Statement = {
            "layer": layer,
            "suite": name,
            "command": shlex.join(["linbench", "submit", layer, "--suite", name]),
            "linbench": __version__,
            "sources": sources(layer),
        }
        submission = write_submission(save, statement, everything.of(cell.identity for cell in own))
    # imported late: tables take a second to load
    from linbench.report.tables.placing import placing_table
    from linbench.results.comparison import comparisons
    from linbench.results.placing import overall, placings

    warn_ignored_files(store.set_aside)
    label = own[0].model.label
    alike = comparisons(everything.of(asked))
    found = placings(alike, label)
    if not found:
        tell(f"linbench: no other model was asked just the same as {label}, so it has no rank.")
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


def _tell_cost(plan: "ComparisonPlan", took: "list[Effort]", layer: str, suite: str) -> None:
    """Print on standard error what is to be run, and what it took other models."""
    tasks, cells = pluralize(len(plan.blocks), "task"), pluralize(len(plan.cells), "cell")
    tell(f"linbench: {suite} asks {layer} {tasks}; {cells} to run.")
    if not took:
        return
    tokens = sorted(one.tokens / 1e9 for one in took)
    seconds = [one.seconds for one in took]
    models, low, high = pluralize(len(took), "other model"), tokens[0], tokens[-1]
    tell(
        f"linbench: {models} trained on {low:.2g} to {high:.2g} billion tokens, {median(tokens):.2g} in the"
        f" middle, searches and all budgets included. This took {format_duration(median(seconds))} in the"
        f" middle and {format_duration(max(seconds))} at most, of a device that was shared."
    )


submit.__doc__ = (submit.__doc__ or "") + EXAMPLES
