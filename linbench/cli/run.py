"""`linbench run`: train and judge models on a task."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import AllowOption, JsonOption, ResultsOption, parse_settings, tell_failed, tell_set_aside
from linbench.common.errors import UserError

EXAMPLES = """
Examples:

  linbench run mqar --model gated_deltanet

  linbench run mqar --model attention,linear_attention,deltanet,gated_deltanet --preset quick-hard --seeds 0,1,2

  linbench run mqar --model deltanet,gated_deltanet --search --seeds 0-2

  linbench run variable_overwrite --model deltanet,linear_attention --test-lengths 1x,2x,4x

  linbench run mqar --model ./mine.py:Mine --set task.kv_pairs=16 --set protocol.lr=3e-3
"""


def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task: a name (linbench list tasks), ./file.py:Class or package.module:Class.")],
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            "-m",
            metavar="MODELS",
            help="Models, separated by commas: names, ./file.py:Class, package.module:Class, or patterns such as 3xdeltanet+attention.",
        ),
    ],
    preset: Annotated[str | None, typer.Option(help="Named settings of the task; the first is the default (linbench show task TASK).")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2 or 0-4.")] = "0",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting: task.NAME, model.NAME, model.MIXER.NAME or protocol.NAME."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(help="native: as published. controlled: the same surroundings for all, so that only the recurrence differs."),
    ] = None,
    stack: Annotated[int | None, typer.Option(min=1, help="Cells trained as one program at most; default: as suits the device.")] = None,
    test_lengths: Annotated[str | None, typer.Option(metavar="1x,2x,...", help="Test on sequences so many times as long, each test by itself.")] = None,
    search: Annotated[bool, typer.Option("--search", help="Choose each model's learning rate on tuning seeds first, all on one grid.")] = False,
    protocol: Annotated[str | None, typer.Option(help="A published protocol, such as zoology; without it the default.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, or bf16 in products of matrices: a row of its own.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    again: Annotated[bool, typer.Option("--again", help="Repeat cells that are finished.")] = False,
    allow: AllowOption = None,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Train and judge models on a task; show them side by side with a table and learning curves.

    Finished cells are read from the results folder, not repeated.
    """
    from rich.console import Console

    from linbench.common.lengths import parse_lengths
    from linbench.common.seeds import parse_seeds
    from linbench.pattern import split_models
    from linbench.plan import plan
    from linbench.progress import Live, Plain
    from linbench.runner import run_cells
    from linbench.search import refuse_rate, run_searched
    from linbench.store import Store

    stderr = Console(stderr=True)
    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        models = [name for text in model for name in split_models(text)]
        settings = parse_settings(set_ or [])
        if search:
            refuse_rate(settings)
        if precision is not None:
            if "protocol.precision" in settings:
                raise UserError("--precision and --set protocol.precision both say the precision; give one of the two.")
            settings["protocol.precision"] = precision
        lengths = [] if test_lengths is None else parse_lengths(test_lengths)
        numbers = parse_seeds(seeds)
        cells = plan(task, models, preset=preset, form=form, protocol=protocol, seeds=numbers, settings=settings, test_lengths=lengths, device=device)
        store = Store(results)
        progress = Live(stderr) if stderr.is_terminal else Plain(stderr)
        found = (run_searched if search else run_cells)(cells, store, progress, again=again, stack=stack, allow=allow or ())
    # not before: what draws takes a second to load
    from linbench.report.figures import AFTER_A_RUN
    from linbench.report.pictures import save_figures
    from linbench.report.tables import markdown, rich_tables
    from linbench.results import comparisons

    tell_set_aside(store.set_aside)
    shown = comparisons(found, order=[cell.model.label for cell in cells])
    if as_json:
        print(json.dumps(found))
    elif sys.stdout.isatty():
        console = Console()
        for comparison in shown:
            console.print(*rich_tables(comparison))
    else:
        print("\n".join(markdown(comparison) for comparison in shown))
    for path in save_figures(shown, store.folder / "figures", AFTER_A_RUN, option="--results"):
        if path.suffix != ".txt":
            print(f"drew {path}", file=sys.stderr)
    tell_failed(found)


run.__doc__ = (run.__doc__ or "") + EXAMPLES
