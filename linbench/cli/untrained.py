"""`linbench untrained`: what update rules recall before anything is trained."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from linbench.cli.options import JsonOption


class What(StrEnum):
    """What is asked of the rules."""

    capacity = "capacity"
    overwriting = "overwriting"
    retention = "retention"
    blend = "blend"


def untrained(
    what: Annotated[What, typer.Argument(metavar="capacity|overwriting|retention|blend", help="What is asked of the rules.")],
    dim: Annotated[int, typer.Option(min=2, help="Dimensions of keys and values.")] = 64,
    trials: Annotated[int, typer.Option(min=1, help="Random sequences that a figure is the mean of.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Of these.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N: float64 on a CPU, else float32 through the kernels.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Sum, decay, delta rule and least squares on random keys and values, nothing trained: what the arithmetic of a memory gives, in seconds.

    capacity: recall and error against the number of pairs, for keys more and less alike. overwriting: recall of the last value, and stale answers, by
    number of writes. retention: what a decay costs and gains. blend: what is read where 5, then 10 was written.
    """
    import torch

    from linbench import untrained as rules
    from linbench.plan import pick_device
    from linbench.report.lines import show

    where = pick_device(device)
    asked = rules.Trials(trials, dim, seed, where, torch.float64 if where == "cpu" else torch.float32)
    rows: list[dict[str, Any]] = getattr(rules, what.value)(trials=asked)
    if as_json:
        print(json.dumps(rows))
        return
    show(list(rows[0]), [[f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows], left=("rule",))
