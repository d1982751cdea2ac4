"""Cases of the short convolution, with torch's own convolution; and the operation that is timed."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import (
    Family,
    Inputs,
    KernelCase,
    Operation,
    Shape,
    no_products,
    normal,
    random_inputs,
)
from linbench.kernels.short_convolution import short_convolution

CHANNELS = 96


def _case(
    width: int,
    l2_heads: tuple[int, int] | None,
    state: bool,
    silu: bool = True,
    parts: tuple[int, ...] = (CHANNELS,),
    bias: bool = False,
) -> KernelCase:
    inputs = {"x": normal(3, 99, CHANNELS), "weight": normal(width, CHANNELS)}
    if bias:
        inputs["bias"] = normal(CHANNELS)
    if state:
        inputs["before"] = normal(3, width - 1, CHANNELS)

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        y, last = short_convolution(
            given["x"],
            given["weight"],
            given.get("before"),
            bias=given.get("bias"),
            activation="silu" if silu else None,
            l2_heads=l2_heads,
            parts=parts,
        )
        return *y, last

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        x, weight = given["x"], given["weight"]
        before = given.get("before", x.new_zeros(len(x), width - 1, CHANNELS))
        padded = torch.cat([before, x], dim=1)
        y = F.conv1d(padded.mT, weight.mT[:, None], given.get("bias"), groups=CHANNELS).mT
        y = F.silu(y) if silu else y
        y = y if l2_heads is None else _unit_heads(y, *l2_heads)
        return *torch.split(y, list(parts), dim=-1), padded[:, x.shape[1] :]

    return KernelCase(kernel, reference, inputs)


def _unit_heads(y: Tensor, channels: int, head_dim: int) -> Tensor:
    """Give each head of the first `channels` channels unit length."""
    heads = y[..., :channels].view(*y.shape[:-1], -1, head_dim)
    unit = heads / (heads.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    return torch.cat([unit.flatten(-2), y[..., channels:]], dim=-1)


def _call(given: Inputs) -> Tensor:
    """Convolve queries, keys and values, and give the first two unit heads as wide as all heads together."""
    width = given["x"].shape[-1] // 3
    (y,), _ = short_convolution(given["x"], given["weight"], l2_heads=(2 * width, width))
    return y


def _sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    channels = 3 * shape.H * shape.D
    return {"x": (shape.B, shape.T, channels), "weight": (4, channels)}


FAMILY = Family(
    cases={
        "short_convolution": {
            "kernel 4, unit heads, from a state": partial(_case, 4, (64, 32), True, parts=(32, 32, 32)),
            "kernel 2": partial(_case, 2, None, False),
            "kernel 4, with a bias": partial(_case, 4, None, True, parts=(64, 32), bias=True),
            "kernel 3, no activation": partial(_case, 3, None, True, silu=False),
        }
    },
    profile_kind="short convolution",
    profile_names=("short_convolution",),
    operations={"short_convolution": Operation(partial(random_inputs, sizes=_sizes), _call, no_products)},
)
