"""The learning rate's share of its peak at every step."""

import math

from linbench.experiments.protocol import Protocol


def shares(steps: int, protocol: Protocol, *, epoch: float | None = None) -> list[float]:
    """The share of the peak learning rate at every step: a linear warm-up, then the schedule; `epoch`: steps
    of one, for epoch_cosine."""
    return [_share(step, steps, protocol, epoch) for step in range(1, steps + 1)]


def _share(step: int, steps: int, protocol: Protocol, epoch: float | None) -> float:
    warmup = round(protocol.warmup * steps)
    if step <= warmup:
        return step / warmup
    if protocol.schedule == "constant":
        return 1.0
    done, all_ = step - warmup, max(1, steps - warmup)
    if protocol.schedule == "epoch_cosine":
        assert epoch is not None
        done, all_ = int((step - 1) / epoch), max(1, round(steps / epoch))
    return 0.5 * (1 + math.cos(math.pi * done / all_))
