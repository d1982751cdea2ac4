"""Exponential gates without overflow: the memory is kept divided by e^m.

m is a running maximum of the logarithms of the weights in the memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.decays import bounded_for_scores
from linbench.models.blocks.prefix_scan import running_maximum, running_sum


class StabilisedGates(NamedTuple):
    """Gates of a memory that is divided by e^m, each [B, T, H].

    log_decay: logarithm of the forget gate, <= 0. strength: factor of a write, <= 1. maximum: m.
    """

    log_decay: Tensor
    strength: Tensor
    maximum: Tensor


def stabilise_gates(log_forget: Tensor, log_input: Tensor, before: Tensor) -> StabilisedGates:
    """Return m_t = max(log f_t + m_{t-1}, log i_t) and the gates relative to it. arXiv:2405.04517.

    log_decay = log f_t + m_{t-1} - m_t and strength = i_t / e^{m_t}. All tokens are computed at once: m less
    the sum F of all log f so far is a running maximum of log i - F. What is read from the memory, times e^m,
    does not depend on m, so no gradient flows through m. Results have the dtype of the gates.

    Args:
        log_forget: [B, T, H], <= 0; values below -1e4 count as that, which forgets everything.
        log_input: [B, T, H].
        before: m before the first token [B, H].
    """
    # in float64: F grows with length, and differences of m must keep their digits
    write, start = log_input.double(), before[:, None].double()
    forget = bounded_for_scores(log_forget)
    forget_sum = running_sum(forget.detach())  # F
    maximum = forget_sum + torch.maximum(running_maximum(write.detach() - forget_sum), start.detach())
    previous = torch.cat([start.detach(), maximum[:, :-1]], dim=1)
    # m_{t-1} - m_t <= -log f_t holds up to rounding; enforced, so that the memory never grows by itself
    change = torch.minimum(previous - maximum, -forget.detach())
    gates = forget + change, (write - maximum).exp(), maximum
    return StabilisedGates(*(x.to(log_forget.dtype) for x in gates))
