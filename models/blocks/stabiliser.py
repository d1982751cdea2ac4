"""Exponential gates without overflow: the memory is kept divided by e^m, m a running maximum of the
logarithms of what it holds."""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.decays import bounded_for_scores
from linbench.models.blocks.prefix_scan import running_maximum, running_sum


class StabilisedGates(NamedTuple):
    """What a memory divided by e^m forgets by, log_decay <= 0, and writes with, strength <= 1, and m itself:
    [B, T, H]."""

    log_decay: Tensor
    strength: Tensor
    maximum: Tensor


def stabilise_gates(log_forget: Tensor, log_input: Tensor, before: Tensor) -> StabilisedGates:
    """m_t = max(log f_t + m_{t-1}, log i_t); log_decay = log f_t + m_{t-1} - m_t, strength = i_t / e^{m_t}.
    arXiv:2405.04517.

    All tokens at once: m less the sum F of all log f so far is a running maximum of log i - F. What is read,
    times e^m, does not depend on m, so that no gradient flows through it; results in the dtype of the gates.

    Args:
        log_forget, log_input: [B, T, H], log_forget <= 0, below -1e4 as if that: nothing is left. before: m
            before the first token [B, H].
    """
    write, start = (x.double() for x in (log_input, before[:, None]))  # or F would lose what m differs by
    forget = bounded_for_scores(log_forget)
    forgotten = running_sum(forget.detach())
    maximum = forgotten + torch.maximum(running_maximum(write.detach() - forgotten), start.detach())
    fallen = torch.cat([start.detach(), maximum[:, :-1]], dim=1) - maximum
    fallen = torch.minimum(fallen, -forget.detach())  # but for rounding it is: nothing grows
    made = forget + fallen, (write - maximum).exp(), maximum
    return StabilisedGates(*(x.to(log_forget.dtype) for x in made))
