"""The question gradient of `linbench untrained`: how far a gradient reaches, before and after training."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from linbench.cli.options import exit_if_failed, parse_settings
from linbench.common import escape

if TYPE_CHECKING:
    from linbench.experiments.cell import Cell
    from linbench.verify.update_rules import Trials

TITLE = "log10 of the gradient of a last output, by the distance of the input in tokens"


def show_gradient(
    model: str | None, form: str, trials: "Trials", folder: Path | None, *, as_json: bool
) -> None:
    """Show how far back a gradient reaches in every layer, and draw it if there is a folder to draw to."""
    from linbench.common.text import pluralize
    from linbench.experiments.pattern import split_models
    from linbench.report.terminal import show
    from linbench.verify.gradient import gradient, shipped
    from linbench.verify.gradient_panels import drawing, lines, short

    names = shipped(form) if model is None else split_models(model)
    rows = gradient(names, form=form, trials=trials)
    if folder is not None:
        from linbench.report.figure import save

        save([drawing(rows, trials=pluralize(trials.count, "draw"), dim=trials.dim, form=form)], folder)
    if as_json:
        print(json.dumps(rows))
        return
    distances, sizes = lines(rows)
    print(f"{TITLE}\n")
    texts = [[escape.one_line(name), *map(short, line)] for name, line in sizes.items()]
    show(["model", *map(str, distances)], texts, left=("model",))


def plan_trained(
    task: str,
    preset: str | None,
    pairs: Sequence[str],
    model: str | None,
    form: str | None,
    seed: int,
    device: str,
) -> "list[Cell]":
    """Return the cell that `linbench run` would train for each model, each model once.

    Raises UserError: a name or value that is not allowed.
    """
    from linbench.experiments.pattern import split_models
    from linbench.experiments.plan import pick_form, plan
    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.run_spec import RunSpec
    from linbench.verify.gradient import shipped

    settings = parse_settings(pairs)
    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        _, _, chosen = make_task(task, preset=preset, settings=settings)
        names = shipped(pick_form(form, chosen)) if model is None else split_models(model)
        cells = plan(RunSpec(task, names, preset, form, seeds=[seed], settings=settings, device=device))
    return list({cell.model.label: cell for cell in cells}.values())


def show_trained(cells: "list[Cell]", trials: "Trials", folder: Path | None, *, as_json: bool) -> None:
    """Show the same of models before and after training; exit with code 3 if any could not be trained."""
    from rich.console import Console

    from linbench.common.text import format_decimal, pluralize
    from linbench.engine.display import display_on
    from linbench.report.terminal import show
    from linbench.verify.gradient_panels import lines, short
    from linbench.verify.trained_gradient import trained_gradient
    from linbench.verify.trained_gradient_panels import WHEN, drawing, widths

    with redirect_stdout(sys.stderr):
        progress = display_on(Console(stderr=True))
        rows, failed = trained_gradient(cells, progress, trials=trials, folder=folder)
    task, length = cells[0].task_entry.name, cells[0].task.seq_len
    if rows and folder is not None:
        from linbench.report.figure import save

        count, form = pluralize(trials.count, "draw"), cells[0].model.form
        save([drawing(rows, trials=count, task=task, length=length, form=form)], folder)
    if as_json:
        print(json.dumps(rows))
    elif rows:
        distances, _ = lines(rows, WHEN[0])
        accuracy = {row["model"]: format_decimal(row["accuracy"]) for row in rows}
        print(f"{TITLE},")
        print(f"before and after training on {task} in {length} tokens; layers are {widths(rows)} wide\n")
        texts = [
            [escape.one_line(name), when, *map(short, lines(rows, when)[1][name]), accuracy[name]]
            for name in accuracy
            for when in WHEN
        ]
        show(["model", "training", *map(str, distances), "accuracy"], texts, left=("model", "training"))
    exit_if_failed(failed, of=len(cells))
