"""The fast weight of a linear network with plain steps on a GPU: keys write, then all queries read at once.

What is sequential is a kernel of its own (`triton.writes`): gradients of keys, and
weights from one mini-batch to the next. It leaves them in memory, where another finds them for all
mini-batches at once (`triton.reads`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.call import Call
from linbench.kernels.fast_weight.description import Memory, Network, Step

_WIDEST = 128
"""Largest dimension of a head that the kernels take."""

_LARGEST = 32
"""Most tokens of a mini-batch that they take: more fill an H100's registers."""


def linear(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token, of a call from the start."""
    # not installed everywhere, slow to import
    from linbench.kernels.fast_weight.triton.reads import triton_reads
    from linbench.kernels.fast_weight.triton.writes import triton_writes

    size, length, rates = call.step.size, call.q.shape[1], call.rates[..., 0]
    target = call.v - call.k if call.network.residual else call.v
    norm = None if call.norm is None else torch.stack(call.norm, dim=1)
    last = 1.0 if call.scales is None else call.scales[-1]
    start = call.memory().weights[0]
    slopes, weights = triton_writes(call.k, target, last * rates, start, norm, size)
    o = triton_reads(
        call.q, call.k, slopes, rates, weights, call.scales, norm, size, residual=call.network.residual
    )
    unfinished = length % size
    before = weights[:, :, -2 if unfinished else -1]
    gathered = torch.zeros_like(before)
    if unfinished:
        keys, changes = (x[:, -unfinished:].transpose(1, 2) for x in (call.k, -rates[..., None] * slopes))
        keys = F.pad(keys, (0, 1), value=1.0) if call.network.bias else keys
        gathered = keys.mT @ changes
    no_window = before.new_zeros(*before.shape[:2], 0, 0)
    return o, Memory((before,), (gathered,), (), None, no_window).pack(call.step)


def has_kernel(network: Network, step: Step, key_dim: int, value_dim: int) -> bool:
    """Tell whether there is a kernel for a network and its step, of heads with these dimensions."""
    plain = network._replace(bias=False, residual=False) == Network() and step == Step(step.size)
    return plain and step.size <= _LARGEST and max(key_dim, value_dim) <= _WIDEST
