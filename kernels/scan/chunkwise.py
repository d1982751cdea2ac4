"""The scan in about twice the root of T steps: inside all chunks at once, then from chunk to chunk.

    h inside a chunk, from zero:    l_i = a_i l_{i-1} + b_i
    what is left of its start:      p_i = a_i p_{i-1}
    with what it starts from:       h_i = l_i + p_i h

Nothing is divided and no logarithm taken: zeros and signs are no trouble, and what has decayed away is zero.
The gradient g of h runs the other way round, g_t = dh_t + a_{t+1} g_{t+1}; that of b is g itself, that of a_t
is g_t h_{t-1}.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.operators import apply_function, call_undifferentiated, vmap_rule


def chunkwise(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h; arguments are those of `reference`."""
    h: Tensor = apply_function(Chunkwise, a, b, state)
    return h


def forward(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h, without gradients."""
    length = b.shape[1]
    chunk = 1 << (length.bit_length() // 2)
    left, h = (_chunks(x, chunk) for x in (a, b))
    for i in range(1, chunk):
        h[:, :, i].addcmul_(left[:, :, i], h[:, :, i - 1])
        left[:, :, i].mul_(left[:, :, i - 1])
    for n in range(h.shape[1]):
        h[:, n].addcmul_(left[:, n], state[:, None])
        state = h[:, n, -1]
    return h.flatten(1, 2)[:, :length]


def backward(dh: Tensor, a: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of a, b and state."""
    after = F.pad(a[:, 1:].flip(1), (0, 0, 1, 0))
    db = forward(after, dh.flip(1), torch.zeros_like(state)).flip(1)
    before = torch.cat([state[:, None], h[:, :-1]], dim=1)
    return db * before, db, a[:, 0] * db[:, 0]


def _chunks(x: Tensor, chunk: int) -> Tensor:
    """Return [B, T, C] as a copy [B, N, chunk, C], with zeros at the end."""
    copy = x.new_zeros(x.shape[0], -(-x.shape[1] // chunk), chunk, x.shape[2])
    copy.flatten(1, 2)[:, : x.shape[1]] = x
    return copy


class Chunkwise(torch.autograd.Function):
    """The autograd function of `forward`."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
        """Return `forward` of the arguments."""
        return forward(a, b, state)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the arguments, but for b, and the result."""
        a, _, state = inputs
        ctx.save_for_backward(a, output, state)

    @staticmethod
    def backward(ctx: Any, dh: Tensor) -> Any:
        """Return `backward` of what was kept."""
        return call_undifferentiated(backward, dh, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Scan with replicas as more sequences."""
        return vmap_rule(Chunkwise.apply, info, in_dims, *args)
