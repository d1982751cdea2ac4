"""The learning rate over the steps of a training, and the steps at which it is validated."""

import math

from linbench.experiments.cell import Cell
from linbench.experiments.protocol import Protocol


def stable_steps(cell: Cell) -> int:
    """Return the number of steps before the learning rate of the schedule wsd falls.

    Up to there a training with a larger budget is the same.
    """
    return cell.steps - _cooldown_steps(cell.steps, cell.protocol)


def evaluation_steps(cell: Cell) -> set[int]:
    """Return the steps after which a cell is validated.

    They divide the base budget evenly. Every doubling of the budget has half as many more, so that the times
    at which a longer training is looked at are those of a shorter one, too. The schedule wsd is validated on
    these while its rate stays, when it begins to fall (also with smaller budgets), and at the end.
    """
    base, steps, count = cell.base_steps, cell.steps, cell.protocol.evaluations
    if cell.protocol.schedule != "wsd":
        return {round(steps * (i + 1) / count) for i in range(count)}
    parts = [(i + 1) / count for i in range(count)]
    for doubling in range(cell.protocol.doublings):
        parts += [2**doubling * (1 + 2 * (i + 1) / count) for i in range(count // 2)]
    stable = [stable_steps(cell.rung(-fewer)) for fewer in range(cell.protocol.doublings + 1)]
    grid = {round(base * part) for part in parts}
    return {step for step in grid if step <= max(stable)} | {*stable, steps}


def learning_rate_factors(
    steps: int, protocol: Protocol, *, epoch: float | None = None, base: int | None = None
) -> list[float]:
    """Return the factor by which the peak learning rate is multiplied at every step.

    There is a linear warm-up first, then the schedule of the protocol. The schedule wsd (warm-up, stable,
    decay) is that of arXiv 2404.06395, with a linear decay.

    Args:
        steps: number of steps in all.
        protocol: its `warmup` and `schedule`.
        epoch: steps of an epoch; needed for the schedule epoch_cosine alone.
        base: steps that the warm-up is a fraction of; None for all steps.
    """
    warmup = round(protocol.warmup * (base or steps))
    return [_factor(step, steps, protocol, warmup, epoch) for step in range(1, steps + 1)]


def _factor(step: int, steps: int, protocol: Protocol, warmup: int, epoch: float | None) -> float:
    if step <= warmup:
        return step / warmup
    if protocol.schedule == "constant":
        return 1.0
    if protocol.schedule == "wsd":
        falling = _cooldown_steps(steps, protocol)
        return min(1.0, (steps + 1 - step) / (falling + 1))
    done, total = step - warmup, max(1, steps - warmup)
    if protocol.schedule == "linear":
        return 1 - done / total
    if protocol.schedule == "epoch_cosine":
        assert epoch is not None
        done, total = int((step - 1) / epoch), max(1, round(steps / epoch))
    return 0.5 * (1 + math.cos(math.pi * done / total))


def _cooldown_steps(steps: int, protocol: Protocol) -> int:
    return max(1, round(protocol.cooldown * steps))
