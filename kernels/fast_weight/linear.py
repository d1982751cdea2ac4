"""The fast weight of a linear network with plain steps: keys write on a GPU, queries read all at once.

What is sequential is in Triton (`linbench.kernels.fast_weight.triton`): gradients of keys, and weights from
one mini-batch to the next. It leaves them in memory, so that all queries read in a few products of torch, by
the formula of `linbench.kernels.fast_weight.chunkwise`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.call import Call
from linbench.kernels.fast_weight.description import Memory, Network, Step
from linbench.kernels.fast_weight.network import values

_WIDEST = 128
"""Largest dimension of a head that the kernels take."""

_LARGEST = 32
"""Most tokens of a mini-batch that they take: more fill an H100's registers."""


def linear(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token, of a call from the start."""
    from linbench.kernels.fast_weight.triton import triton_writes  # not installed everywhere, slow to import

    size, length, bias = call.step.size, call.q.shape[1], call.network.bias
    count, rates = -(-length // size), call.rates[..., 0]
    target = call.v - call.k if call.network.residual else call.v
    norm = None if call.norm is None else torch.stack(call.norm, dim=1)
    last = 1.0 if call.scales is None else call.scales[-1]
    start = call.memory().weights[0]
    slopes, weights = triton_writes(call.k, target, last * rates, start, norm, size)

    def lay_out(x: Tensor) -> Tensor:
        """Cut [B, T, H, D] into mini-batches [B, H, N, L, D], with zeros at the end."""
        x = F.pad(x, (0, 0, 0, 0, 0, count * size - length))
        return x.view(len(x), count, size, *x.shape[2:]).permute(0, 3, 1, 2, 4)

    keys, changes = lay_out(call.k), lay_out(-rates[..., None] * slopes)
    keys = F.pad(keys, (0, 1), value=1.0) if bias else keys
    before = weights[:, :, :-1]

    def read(_: int, x: Tensor) -> Tensor:
        x = x.view(*x.shape[:2], count, size, x.shape[-1])
        change = (x @ keys.mT).tril() @ changes
        scales = 1.0 if call.scales is None else call.scales[:, None]
        return (x @ before + scales * change).flatten(2, 3)

    o = values(call.network, call.norm, read, lay_out(call.q).flatten(2, 3))[:, :, :length].transpose(1, 2)
    no_window = before.new_zeros(*before.shape[:2], 0, 0)
    if length % size:
        gathered = keys[:, :, -1].mT @ changes[:, :, -1]
        memory = Memory((before[:, :, -1],), (gathered,), (), None, no_window)
    else:
        after = weights[:, :, -1]
        memory = Memory((after,), (torch.zeros_like(after),), (), None, no_window)
    return o, memory.pack(call.step)


def has_kernel(network: Network, step: Step, key_dim: int, value_dim: int) -> bool:
    """Tell whether there is a kernel for a network and its step, of heads with these dimensions."""
    plain = network._replace(bias=False, residual=False) == Network() and step == Step(step.size)
    return plain and step.size <= _LARGEST and max(key_dim, value_dim) <= _WIDEST
