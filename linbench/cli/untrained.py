"""The verb `linbench untrained`: scores of update rules and of simple predictors, without training."""

import json
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli import completion
from linbench.cli.options import JsonOption, task_settings, whole_option
from linbench.cli.untrained_gradient import plan_trained, show_gradient, show_trained
from linbench.cli.untrained_shallow import show_shallow
from linbench.common import escape
from linbench.common.errors import UserError, unknown
from linbench.common.numbers import LARGEST
from linbench.common.text import format_decimal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from linbench.engine.evaluate import TestMetrics
    from linbench.verify.update_rules import Row, Trials


class Question(StrEnum):
    """The questions about update rules."""

    capacity = "capacity"
    overwriting = "overwriting"
    retention = "retention"
    blend = "blend"
    reflections = "reflections"
    similarity = "similarity"
    regression = "regression"
    gradient = "gradient"


_FIGURES = (Question.regression, Question.gradient)
"""The questions that have a figure."""

_RULES_PANEL, _TASKS_PANEL, _LAYERS_PANEL = "Update rules", "Baselines of tasks", "Layers"


def untrained(
    what: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION|TASK",
            help=(
                f"A question about update rules or layers: {', '.join(Question)}. Or a task that has"
                " baselines, such as regression, which is both."
            ),
        ),
    ],
    dim: Annotated[
        int | None,
        whole_option(
            "--dim",
            2,
            4096,
            help="Dimensions of keys and values; for gradient the width of layers.",
            show_default="64; for regression 32",
            rich_help_panel=_RULES_PANEL,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        whole_option(
            "--trials",
            1,
            1 << 20,
            help="Number of random sequences, or of examples of a task, that are averaged over.",
            show_default="32; for gradient 8; for a task as many as models are tested on",
        ),
    ] = None,
    seed: Annotated[int, whole_option("--seed", 0, LARGEST, help="Random seed.")] = 0,
    device: Annotated[
        str,
        typer.Option(help="auto, cpu, cuda or cuda:N: float64 on a CPU, else float32 through the kernels."),
    ] = "cpu",
    preset: Annotated[
        str | None, typer.Option(help="Preset of the task.", rich_help_panel=_TASKS_PANEL)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting of the task: task.NAME.",
            rich_help_panel=_TASKS_PANEL,
        ),
    ] = None,
    shallow: Annotated[
        bool,
        typer.Option(
            "--shallow",
            help="Score predictors that need no memory, on any task: half a minute.",
            rich_help_panel=_TASKS_PANEL,
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODELS",
            help="Models of gradient, comma-separated, as linbench run takes them.",
            show_default="all that come with linbench",
            autocompletion=completion.models,
            rich_help_panel=_LAYERS_PANEL,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="Form of the layers of gradient: native or controlled.",
            show_default="native; with --after that of the preset",
            rich_help_panel=_LAYERS_PANEL,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help=(
                "Task that models of the layers of gradient are trained on, about a minute each; --preset and"
                " --set are then as linbench run takes them."
            ),
            autocompletion=completion.tasks,
            rich_help_panel=_LAYERS_PANEL,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="DIR",
            help=(
                "Folder for the figure of regression or gradient. With --after, what is found of each model"
                " is kept there, and such a model is not trained again."
            ),
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at memory update rules, layers or simple predictors of a task, without training.

    The update rules sum, decay, delta rule and least squares store random keys and values. The questions are:

    capacity: recall and error against the number of pairs, for keys that are more or less alike. overwriting:
    recall of the last value, and answers with an older one, by the number of writes. retention: what a decay
    costs and gains. blend: what is read after 5 and then 10 was written to one key, and the weights of the
    new and the old value in it. reflections: how far PaTH's scores are from the weights of a delta rule, and
    its factors from reflections. similarity: recall against the cosine of the keys of a cluster, and answers
    with another value of the cluster. regression: the error of a sum, of gradient steps plain, with momentum,
    preconditioned and orthogonal, of conjugate gradients and of exact least squares, against the condition
    number of the keys and the drift of what is learned. The baselines of the task regression stand below;
    with --preset or --set they stand alone.

    gradient asks of every layer how far back a gradient reaches before training: log10 of the size of the
    gradient of a last output by the input a number of tokens before. It takes a minute or two for all layers,
    and --model names some. With --after TASK, models of these layers are trained as linbench run trains them,
    and the same is asked of their first layers before and after.

    Given a task, its baselines are scored: predictors that learn from the context alone. They see the
    examples that a model of the same seed is tested on. The optimum, or an upper bound of it, stands beside
    them. With --shallow these are predictors that read next to nothing of a sequence, such as its last
    answer. A model must do better to have shown anything; docs/tasks.md says how much.
    """
    if shallow:
        if what in list(Question) or any(x is not None for x in (dim, model, form, after, save)):
            raise UserError("--shallow needs a task, and takes --preset, --set, --seed and --json only.")
        show_shallow(what, preset, set_ or [], trials=trials, seed=seed, as_json=as_json)
        return
    layers = what == Question.gradient
    of_task = (preset is not None or bool(set_)) and not (layers and after is not None)
    if what in list(Question) and what != Question.regression and of_task:
        told = "layers, with --after TASK" if layers else "update rules and takes --dim, --trials and --seed"
        raise UserError(f"--preset and --set need a task; {what} is a question about {told}.")
    if save is not None and (what not in _FIGURES or of_task):
        raise UserError(
            f"--save needs the question {' or '.join(_FIGURES)}, without --preset and --set: no other has a"
            " figure."
        )
    if layers:
        from linbench.verify.gradient import TRIALS

        if after is not None and dim is not None:
            raise UserError(
                "--dim is the width of layers that are not trained; with --after the task's preset or --set"
                " model.d_model=N gives it."
            )
        looked_at = _trials(dim or 64, trials or TRIALS, seed, device)
        if after is None:
            show_gradient(model, form or "native", looked_at, save, as_json=as_json)
        else:
            cells = plan_trained(after, preset, set_ or [], model, form, seed, device)
            show_trained(cells, looked_at, save, as_json=as_json)
        return
    if any(given is not None for given in (model, form, after)):
        raise UserError(f"--model, --form and --after are for the question gradient; {what} has no layers.")
    if what in list(Question) and not of_task:
        if what != Question.regression:
            _show_rules(what, dim or 64, trials or 32, seed, device, as_json=as_json)
            return
        rows = _regression(dim, trials, seed, device, save)
        if not as_json:
            _print_regression(rows)
    elif dim is not None:
        raise UserError(
            f"--dim sets the size of random keys and values; {what} has settings of its own, as --set"
            " task.NAME=VALUE."
        )
    else:
        rows = []
    _show_baselines(what, preset, set_ or [], trials, seed, device, rows, as_json=as_json)


def _show_rules(what: str, dim: int, trials: int, seed: int, device: str, *, as_json: bool) -> None:
    from linbench.report.terminal import show
    from linbench.verify import similarity, update_rules

    module = similarity if what == Question.similarity else update_rules
    rows: list[Row] = getattr(module, what)(trials=_trials(dim, trials, seed, device))
    if as_json:
        print(json.dumps(rows))
        return
    texts = [
        [_figure(value) if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    show(list(rows[0]), texts, left=("rule",))


def _trials(dim: int, trials: int, seed: int, device: str) -> "Trials":
    import torch

    from linbench.experiments.device import pick_device
    from linbench.verify.update_rules import Trials

    place = pick_device(device)
    return Trials(trials, dim, seed, place, torch.float64 if place == "cpu" else torch.float32)


def _regression(dim: int | None, trials: int | None, seed: int, device: str, to: Path | None) -> "list[Row]":
    """Return the rows of the question regression, and draw them if there is a folder to draw to."""
    from linbench.verify.regression import DIM, regression

    rows = regression(trials=_trials(dim or DIM, trials or 32, seed, device))
    if to is not None:
        from linbench.report.figure import save
        from linbench.verify.regression_panels import drawing

        save([drawing(rows)], to)
    return rows


def _print_regression(rows: "list[Row]") -> None:
    from linbench.report.terminal import show
    from linbench.verify.regression_panels import panels, short

    print(f"update rules: relative squared error of fresh keys in {rows[0]['dim']} dimensions")
    for panel in panels(rows):
        print(f"\nby {panel.title}:")
        lines = [[name, *map(short, errors)] for name, errors in panel.errors.items()]
        show(["rule", *(f"{value:g}" for value in panel.at)], lines, left=("rule",))
    print()


def _show_baselines(
    name: str,
    preset: str | None,
    pairs: list[str],
    trials: int | None,
    seed: int,
    device: str,
    update_rules: "list[Row]",
    *,
    as_json: bool,
) -> None:
    """Show baselines of a task; in JSON, with rows of update rules where there are any."""
    from linbench.experiments.device import pick_device
    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.protocol import default_protocol
    from linbench.verify.baselines import baselines, has_baselines

    _refuse_unknown(name)
    task, _, chosen = make_task(name, preset=preset, settings=task_settings(pairs, "untrained"))
    if not has_baselines(type(task)):
        raise UserError(
            f"{name} has no baselines of its own; {', '.join(_tasks_with_baselines())} have. --shallow scores"
            " those of any task."
        )
    examples = trials or {**default_protocol(), **chosen.protocol}["test_examples"]
    scores = baselines(task, examples=examples, seed=seed, device=pick_device(device))
    if as_json:
        answer = {
            **({"update_rules": update_rules} if update_rules else {}),
            "task": name,
            "settings": task.settings.model_dump(mode="json"),
            "baselines": {baseline: score._asdict() for baseline, score in scores.items()},
        }
        print(json.dumps(answer))
        return
    settings = ", ".join(f"{setting} {value}" for setting, value in task.settings.model_dump().items())
    print(escape.one_line(f"{name}: {settings}; {examples} examples, test split, seed {seed}"), end="\n\n")
    _print_scores(scores, list(task.slice_sizes()))


def _refuse_unknown(name: str) -> None:
    """Raise UserError if a name is neither a question nor a task."""
    from linbench.experiments.loading import is_location
    from linbench.experiments.pattern import split_task
    from linbench.experiments.registry import registry

    task, _ = split_task(name)
    if not is_location(task) and task not in registry("task").entries:
        raise unknown("question", name, {*Question, *_tasks_with_baselines()})


def _tasks_with_baselines() -> list[str]:
    from linbench.experiments.registry import registry
    from linbench.verify.baselines import has_baselines

    return [name for name, entry in registry("task").entries.items() if has_baselines(entry.cls)]


def _print_scores(scores: "Mapping[str, TestMetrics]", slices: list[str]) -> None:
    """Print a table of all metrics, then one for each metric by each slice, at powers of two."""
    from linbench.report.terminal import show

    metrics = dict.fromkeys(metric for score in scores.values() for metric in score.metrics)
    rows = [
        [baseline, *(_figure(score.metrics.get(metric)) for metric in metrics)]
        for baseline, score in scores.items()
    ]
    show(["baseline", *metrics], rows, left=("baseline",))
    for metric, slice_ in product(metrics, slices):
        parts = {
            baseline: score.slices[slice_] for baseline, score in scores.items() if metric in score.metrics
        }
        at = next(iter(parts.values()))["at"]
        columns = [i for i, value in enumerate(at) if value.bit_count() <= 1 or value == at[-1]]
        rows = []
        for baseline, part in parts.items():
            sums, weights = part[metric]["sum"], part[metric]["weight"]
            rows.append([baseline, *(_figure(sums[i] / weights[i]) for i in columns)])
        print("\n" + escape.one_line(f"{metric} by {slice_}, at powers of two:"))
        show(["baseline", *(str(at[i]) for i in columns)], rows, left=("baseline",))


def _figure(value: float | None) -> str:
    return "–" if value is None else format_decimal(value)
