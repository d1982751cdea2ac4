"""`linbench compare`: variants side by side."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli import completion
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    DeviceOption,
    FormOption,
    JsonOption,
    ResultsOption,
    SeedsOption,
    StackOption,
    VerdictFormat,
    VerdictFormatOption,
    exit_if_failed,
    warn_ignored_files,
    warn_left_out,
)
from linbench.common import escape
from linbench.common.streams import tell
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

if TYPE_CHECKING:
    from linbench.results.schema.cells import CellResult

EXAMPLES = """
Examples:

  linbench compare gated_deltanet deltanet ./mine.py:Mine --form native

  linbench compare gated_deltanet kda --suite quick --seeds 0-5 --format markdown

  linbench compare ./mine.py:Mine --suite quick --against reference

  linbench compare gated_deltanet deltanet --protocol converged --seeds 0-5
"""


@with_executor_options
def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            autocompletion=completion.models,
            help="Names, ./file.py:Class or patterns. All others are compared with the first.",
        ),
    ],
    suite: Annotated[
        str,
        typer.Option(
            metavar="SUITE",
            autocompletion=completion.suites,
            help="Suite with tasks, settings and seeds: a name (see linbench list suites) or a YAML file.",
        ),
    ] = "quick",
    form: FormOption = None,
    seeds: SeedsOption = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "Published protocol in place of the suite's, or converged: each model is trained until it has"
                " learned, and tokens to learn are compared, too."
            ),
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=1, help="Tokens to train with, in place of the suite's budget."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="reference|DIR",
            help=(
                "Compare also with the suite's own models, whose results are read from this folder and not"
                " trained. reference: the results that come with linbench."
            ),
        ),
    ] = None,
    device: DeviceOption = "auto",
    stack: StackOption = None,
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    allow: AllowOption = None,
    format_: VerdictFormatOption = VerdictFormat.terminal,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Compare models on a suite: run what is missing, then print one table for each form.

    A table has each model's score, its difference to the first with an interval, a verdict, sizes, and the
    speed of its layers if `linbench bench` has measured it. Verdicts are better, worse, or no difference
    shown, with the seeds that are lacking. What they must be read with stands beside them: marks, and sizes
    that differ. A layer that declares no state is compared at equal parameters. Finished cells are not
    repeated.
    """
    from linbench.cli.running import run_with_progress
    from linbench.engine.compare import plan_comparison
    from linbench.experiments.pattern import split_models
    from linbench.experiments.suite import load
    from linbench.results.reference import store_at

    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        names = [name for text in models for name in split_models(text)]
        chosen_suite = load(suite)
        store = store_at(results)
        plan = plan_comparison(
            names,
            chosen_suite,
            seeds=seeds,
            form=form,
            protocol=protocol,
            budget=budget,
            against=against,
            read=[store] if store.read_only else [],
            device=device,
        )
        warn_left_out(plan.left_out)
        new_results: list[CellResult] = []
        if plan.cells:
            new_results = run_with_progress(
                plan.cells,
                store,
                search=chosen_suite.search,
                stack=stack,
                allow=allow or (),
                executor=executor,
            )
    # imported late: tables take a second to load
    from linbench.cli.bench_hint import unmeasured
    from linbench.report.tables.side_by_side import table

    comparisons = plan.tables(new_results, store)
    tables = [table(each_table) for each_table in comparisons]
    ignored: dict[Path, str] = {}
    for read in (*plan.stores, store):
        ignored |= read.set_aside
    warn_ignored_files(ignored)
    if as_json:
        print(json.dumps([each_table.to_json() for each_table in tables]))
    elif format_ is VerdictFormat.markdown:
        for each_table in tables:
            print(each_table.to_markdown())
    else:
        for each_table in tables:
            each_table.show()
            print(f"\n{escape.one_line(each_table.caption)}\n")
    folder = "results" if store.read_only else str(results)
    for comparison in comparisons:
        for sentence in unmeasured(comparison, suite=suite, results=folder):
            tell(f"linbench: {sentence}")
    exit_if_failed(new_results)


compare.__doc__ = (compare.__doc__ or "") + EXAMPLES
