"""The short causal convolution in front of a recurrence.

Its SiLU and the norm of queries and keys that follows are part of it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from linbench.kernels.operators import Backend, uses_triton
from linbench.kernels.short_convolution.eager import eager

__all__ = ["VERSION", "Activation", "short_convolution"]

VERSION = 2
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""
WIDEST = 4
"""Largest kernel: no published variant has a longer one (`INPUT_CONVOLUTION` and `conv` of the models)."""

PARTS = 3
"""Largest number of results: queries, keys and values."""

Activation = Literal["silu"]


def short_convolution(
    x: Tensor,
    weight: Tensor,
    state: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    activation: Activation | None = "silu",
    l2_heads: tuple[int, int] | None = None,
    parts: Sequence[int] | None = None,
    eps: float = 1e-6,
    backend: Backend = "auto",
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return y_t = activation(sum_i weight_i * x_{t-W+1+i} + bias), with a filter for every channel.

    H3 (arXiv:2212.14052), Mamba (2312.00752).

    Args:
        x: [B, T, C].
        weight: [W, C] with W at most 4; its last row meets the token itself.
        state: [B, W-1, C], the inputs that came before; None is zeros.
        bias: [C]; None is zeros.
        activation: "silu"; None is the bare convolution.
        l2_heads: (channels, head_dim): the first `channels` of y are divided by sqrt(sum y^2 + eps) head by
            head; zero stays zero.
        parts: how many channels of y go into each of up to three results, such as queries, keys and values;
            None: one for all.
        backend: "auto" takes the fastest that runs on this device.

    Returns: y as parts [B, T, C_i], and the last W-1 inputs [B, W-1, C], in the dtype of x. Inside, at least
    float32.

    Raises ValueError: shapes that do not fit together, an activation or a backend that is not there or does
    not run on x.
    """
    if (
        x.dim() != 3
        or x.shape[1] < 1
        or weight.dim() != 2
        or not 1 <= weight.shape[0] <= WIDEST
        or x.shape[2] != weight.shape[1]
    ):
        raise ValueError(
            f"x [B, T, C] with T >= 1 and weight [W, C] with W from 1 to {WIDEST}, not"
            f" {[*map(tuple, (x.shape, weight.shape))]}"
        )
    batch, _, channels = x.shape
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"bias must be [C] = ({channels},), not {tuple(bias.shape)}")
    if state is not None and state.shape != (batch, weight.shape[0] - 1, channels):
        raise ValueError(
            f"state must be [B, W-1, C] = {(batch, weight.shape[0] - 1, channels)}, not {tuple(state.shape)}"
        )
    if l2_heads is not None and (
        l2_heads[1] < 1 or not 0 <= l2_heads[0] <= channels or l2_heads[0] % l2_heads[1]
    ):
        raise ValueError(
            f"l2_heads are (channels, head_dim) with head_dim dividing channels and at most {channels}"
            f" channels, not {l2_heads}"
        )
    parts = (channels,) if parts is None else tuple(parts)
    if not 1 <= len(parts) <= PARTS or min(parts) < 1 or sum(parts) != channels:
        raise ValueError(f"parts are at most {PARTS} numbers of channels, {channels} in all, not {parts}")
    if activation not in ("silu", None):
        raise ValueError(f"activation must be silu or None, not {activation!r}")
    triton_form = uses_triton(x, backend)
    if state is not None:
        state = state.to(x.dtype)
    if not triton_form:
        y, last = eager(x, weight, bias, state, activation, l2_heads, eps)
        return torch.split(y, list(parts), dim=-1), last
    from linbench.kernels.short_convolution import operator

    return operator.short_convolution(x, weight, bias, state, activation, l2_heads, parts, eps)
