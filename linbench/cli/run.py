"""`linbench run`: train and judge models on a task."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli import completion
from linbench.cli.drawing import draw_beside
from linbench.cli.executor_options import with_executor_options
from linbench.cli.options import (
    AllowOption,
    DeviceOption,
    JsonOption,
    ResultsOption,
    StackOption,
    exit_if_failed,
    parse_settings,
    warn_ignored_files,
)
from linbench.common.errors import UserError
from linbench.engine.executors import DEFAULT_EXECUTOR, ExecutorChoice

FIRST = "gated_deltanet"
"""The model that runs where none is named, so that a first look needs a task alone."""

EXAMPLES = """
Examples:

  linbench run mqar --model gated_deltanet

  linbench run mqar --model attention,deltanet,gated_deltanet --preset quick-hard --seeds 0,1,2

  linbench run mqar --model deltanet,gated_deltanet --search --seeds 0-2

  linbench run variable_overwrite --model deltanet,linear_attention --test-lengths 1x,2x,4x

  linbench run mqar --model ./mine.py:Mine --set task.kv_pairs=16 --set protocol.lr=3e-3
"""


@with_executor_options
def run(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            autocompletion=completion.tasks,
            help="Task: a name (see linbench list tasks), ./file.py:Class or package.module:Class.",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODELS",
            autocompletion=completion.models,
            help=(
                "Models, comma-separated: names, ./file.py:Class, package.module:Class, or patterns such as"
                " 3xdeltanet+attention."
            ),
            show_default=FIRST,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.presets,
            help="Preset of the task (default: its first; see linbench show task TASK).",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2 or 0-4.")] = "0",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting: task.NAME, model.NAME, model.MIXER.NAME or protocol.NAME.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help=(
                "native: each model as published. controlled: the same surroundings for all models, so that"
                " only the recurrence differs."
            )
        ),
    ] = None,
    stack: StackOption = None,
    test_lengths: Annotated[
        str | None,
        typer.Option(
            metavar="1x,2x,...", help="Also test at these multiples of the task's length, each on its own."
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="First choose each model's learning rate on separate tuning seeds."),
    ] = False,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=(
                "zoology or another published protocol, or converged: train until it is learned (default:"
                " linbench's own, with one budget)."
            )
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Precision: fp32, or bf16 for matrix products. Each is a row of its own."),
    ] = None,
    device: DeviceOption = "auto",
    executor: ExecutorChoice = DEFAULT_EXECUTOR,
    again: Annotated[bool, typer.Option("--again", help="Repeat finished cells.")] = False,
    allow: AllowOption = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FOLDER",
            help=(
                "Train the only cell in this process, finished or not, and write its model into this folder"
                " for linbench probe and transformers."
            ),
        ),
    ] = None,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Train and test models on a task, and show them side by side in a table and learning curves.

    Finished cells are read from the results folder and not repeated. Tasks and layers of linbench train in
    this process unless an option says otherwise. A task or layer of your own trains in a separate process,
    which is killed when it has been silent for too long.
    """
    from rich.console import Console

    from linbench.cli.running import export_with_progress, run_with_progress
    from linbench.common.parsing import parse_lengths, parse_seeds
    from linbench.experiments.learning_rates import default_search, refuse_rate
    from linbench.experiments.pattern import split_models
    from linbench.experiments.plan import plan
    from linbench.experiments.run_spec import RunSpec
    from linbench.results.reference import store_at

    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        settings = parse_settings(set_ or [])
        if search:
            refuse_rate(settings)
        if precision is not None:
            if "protocol.precision" in settings:
                raise UserError(
                    "--precision and --set protocol.precision both give the precision; keep one of the two."
                )
            settings["protocol.precision"] = precision
        spec = RunSpec(
            task=task,
            models=[name for text in model or [FIRST] for name in split_models(text)],
            preset=preset,
            form=form,
            protocol=protocol,
            seeds=parse_seeds(seeds),
            settings=settings,
            test_lengths=[] if test_lengths is None else parse_lengths(test_lengths),
            device=device,
        )
        cells = plan(spec)
        store = store_at(results)
        rates = default_search() if search else None
        if export is not None:
            results_of_cells = [export_with_progress(cells, store, export, search=search)]
        else:
            results_of_cells = run_with_progress(
                cells,
                store,
                search=rates,
                stack=stack,
                retry=True,
                again=again,
                allow=allow or (),
                executor=executor,
                here=True,
            )
    # imported late: drawing takes a second to load
    from linbench.report.figures import drawings_after_run
    from linbench.report.tables.comparison import table
    from linbench.results.comparison import comparisons

    warn_ignored_files(store.set_aside)
    side_by_side = comparisons(results_of_cells, order=[cell.model.label for cell in cells])
    if as_json:
        print(json.dumps(results_of_cells))
    elif sys.stdout.isatty():
        console = Console()
        for comparison in side_by_side:
            console.print(table(comparison).to_terminal())
    else:
        print("\n".join(table(comparison).to_markdown() for comparison in side_by_side))
    code = draw_beside(store, lambda: drawings_after_run(side_by_side))
    exit_if_failed(results_of_cells)
    if code:
        raise typer.Exit(code)


run.__doc__ = (run.__doc__ or "") + EXAMPLES
