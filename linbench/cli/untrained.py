"""The verb `linbench untrained`: scores of update rules and of simple predictors, without any training."""

import json
from enum import StrEnum
from itertools import product
from typing import Annotated, Any

import typer

from linbench.cli.options import JsonOption, task_settings, whole_option
from linbench.common import escape
from linbench.common.errors import UserError, unknown
from linbench.common.numbers import LARGEST
from linbench.common.text import format_decimal


class What(StrEnum):
    """The questions about update rules."""

    capacity = "capacity"
    overwriting = "overwriting"
    retention = "retention"
    blend = "blend"
    reflections = "reflections"


_OF_RULES, _OF_TASKS = "Update rules", "Baselines of tasks"


def untrained(
    what: Annotated[
        str,
        typer.Argument(
            help=f"Of update rules: {', '.join(What)}. Or a task that has baselines, such as regression."
        ),
    ],
    dim: Annotated[
        int | None,
        whole_option(
            "--dim",
            2,
            4096,
            help="Dimensions of keys and values.",
            show_default="64",
            rich_help_panel=_OF_RULES,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        whole_option(
            "--trials",
            1,
            1 << 20,
            help="Random sequences that a figure is the mean of.",
            show_default="32; of a task as many as models are tested on",
        ),
    ] = None,
    seed: Annotated[int, whole_option("--seed", 0, LARGEST, help="Of these.")] = 0,
    device: Annotated[
        str,
        typer.Option(help="auto, cpu, cuda or cuda:N: float64 on a CPU, else float32 through the kernels."),
    ] = "cpu",
    preset: Annotated[str | None, typer.Option(help="Of the task.", rich_help_panel=_OF_TASKS)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A knob, task.NAME.", rich_help_panel=_OF_TASKS),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score memory update rules, or simple predictors of a task, in seconds and without any training.

    The update rules sum, decay, delta rule and least squares store random keys and values:

    capacity: recall and error against the number of pairs, for keys that are more or less alike. overwriting:
    recall of the last value, and answers with an older one, by the number of writes. retention: what a decay
    costs and gains. blend: what is read after 5 and then 10 was written to one key, and the weights of the
    new and the old value in it. reflections: how far PaTH's scores are from the weights of a delta rule, and
    its factors from reflections.

    Given a task, its baselines are scored: predictors that learn from the context alone. They see the
    examples that a model of the same seed is tested on. The optimum, or an upper bound of it, stands beside
    them.
    """
    if what not in list(What):
        if dim is not None:
            raise UserError(
                f"--dim is of random keys and values; {what} has knobs of its own, as --set task.NAME=VALUE."
            )
        _tell_baselines(what, preset, set_ or [], trials, seed, device, as_json=as_json)
        return
    if preset is not None or set_:
        raise UserError(
            f"--preset and --set are of tasks; {what} is asked of update rules, and takes --dim, --trials and"
            " --seed."
        )
    _tell_rules(what, dim or 64, trials or 32, seed, device, as_json=as_json)


def _tell_rules(what: str, dim: int, trials: int, seed: int, device: str, *, as_json: bool) -> None:
    import torch

    from linbench.experiments.device import pick_device
    from linbench.report.terminal import show
    from linbench.verify import update_rules as rules

    where = pick_device(device)
    asked = rules.Trials(trials, dim, seed, where, torch.float64 if where == "cpu" else torch.float32)
    rows: list[dict[str, Any]] = getattr(rules, what)(trials=asked)
    if as_json:
        print(json.dumps(rows))
        return
    show(
        list(rows[0]),
        [
            [_figure(value) if isinstance(value, float) else str(value) for value in row.values()]
            for row in rows
        ],
        left=("rule",),
    )


def _tell_baselines(
    name: str,
    preset: str | None,
    pairs: list[str],
    trials: int | None,
    seed: int,
    device: str,
    *,
    as_json: bool,
) -> None:
    from linbench.experiments.device import pick_device
    from linbench.experiments.loading import is_location
    from linbench.experiments.pattern import split_task
    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.protocol import default_protocol
    from linbench.experiments.registry import registry
    from linbench.report.terminal import show
    from linbench.verify.baselines import baselines, has_baselines

    tasks = registry("task").entries
    having = [other for other, entry in tasks.items() if has_baselines(entry.cls)]
    named, _ = split_task(name)
    if not is_location(named) and named not in tasks:
        raise unknown("question", name, [*What, *having])
    task, _, chosen = make_task(name, preset=preset, settings=task_settings(pairs, "untrained"))
    if not has_baselines(type(task)):
        raise UserError(f"{name} has no baselines; {', '.join(having)} have.")
    examples = trials or {**default_protocol(), **chosen.protocol}["test_examples"]
    found = baselines(task, examples=examples, seed=seed, device=pick_device(device))
    if as_json:
        print(
            json.dumps(
                {
                    "task": name,
                    "settings": task.settings.model_dump(mode="json"),
                    "baselines": {each: of._asdict() for each, of in found.items()},
                }
            )
        )
        return
    knobs = ", ".join(f"{knob} {value}" for knob, value in task.settings.model_dump().items())
    print(escape.one_line(f"{name}: {knobs}; {examples} examples, test split, seed {seed}"), end="\n\n")
    metrics = dict.fromkeys(metric for of in found.values() for metric in of.metrics)
    show(
        ["baseline", *metrics],
        [[each, *(_figure(of.metrics.get(metric)) for metric in metrics)] for each, of in found.items()],
        left=("baseline",),
    )
    for metric, slice_ in product(metrics, task.slice_sizes()):
        parts = {each: of.slices[slice_] for each, of in found.items() if metric in of.metrics}
        at = next(iter(parts.values()))["at"]
        shown = [i for i, value in enumerate(at) if value.bit_count() <= 1 or value == at[-1]]
        rows = [
            [each, *(_figure(part[metric]["sum"][i] / part[metric]["weight"][i]) for i in shown)]
            for each, part in parts.items()
        ]
        print("\n" + escape.one_line(f"{metric} by {slice_}, at powers of two:"))
        show(["baseline", *(str(at[i]) for i in shown)], rows, left=("baseline",))


def _figure(value: float | None) -> str:
    return "–" if value is None else format_decimal(value)
