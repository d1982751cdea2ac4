"""The learning rate over the steps of a training."""

import math

from linbench.experiments.protocol import Protocol


def learning_rate_factors(steps: int, protocol: Protocol, *, epoch: float | None = None) -> list[float]:
    """Return the factor by which the peak learning rate is multiplied at every step.

    There is a linear warm-up first, then the schedule of the protocol.

    Args:
        steps: number of steps in all.
        protocol: its `warmup` and `schedule`.
        epoch: steps of an epoch; needed for the schedule epoch_cosine alone.
    """
    return [_factor(step, steps, protocol, epoch) for step in range(1, steps + 1)]


def _factor(step: int, steps: int, protocol: Protocol, epoch: float | None) -> float:
    warmup = round(protocol.warmup * steps)
    if step <= warmup:
        return step / warmup
    if protocol.schedule == "constant":
        return 1.0
    done, total = step - warmup, max(1, steps - warmup)
    if protocol.schedule == "epoch_cosine":
        assert epoch is not None
        done, total = int((step - 1) / epoch), max(1, round(steps / epoch))
    return 0.5 * (1 + math.cos(math.pi * done / total))
