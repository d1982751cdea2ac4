"""The short convolution in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32

_ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def eager(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor | None,
    activation: str | None,
    l2_heads: tuple[int, int] | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return y and the last inputs; arguments are those of `short_convolution`."""
    length = x.shape[1]
    if state is None:
        state = x.new_zeros(x.shape[0], weight.shape[0] - 1, x.shape[2])
    inputs = torch.cat([state, x], dim=1)
    wide = at_least_float32(x.dtype)
    y = _convolve(inputs.to(wide), weight.to(wide), length)
    y = y if bias is None else y + bias.to(wide)
    if activation == "silu":
        y = F.silu(y)
    if l2_heads is not None:
        channels, head_dim = l2_heads
        heads, rest = torch.split(y, [channels, x.shape[2] - channels], dim=-1)
        heads = heads.reshape(*x.shape[:2], channels // head_dim, head_dim)
        heads = heads * torch.rsqrt(heads.square().sum(dim=-1, keepdim=True) + eps)
        y = torch.cat([heads.flatten(-2), rest], dim=-1)
    return y.to(x.dtype), inputs[:, length:].clone()


def _convolve(inputs: Tensor, weight: Tensor, length: int) -> Tensor:
    """Convolve inputs [B, W-1+T, C] to [B, T, C]."""
    if _ONEDNN and inputs.device.type == "cpu" and inputs.dtype == torch.float32 and length > 1:
        # oneDNN has a kernel for an image one pixel high whose channels lie innermost; elsewhere this is
        # slower than the sum below, or TF32
        return F.conv2d(inputs.mT[:, :, None], weight.mT[:, None, None], groups=inputs.shape[2])[:, :, 0].mT
    taps = [row * inputs[:, i : i + length] for i, row in enumerate(weight.unbind())]
    return sum(taps[1:], start=taps[0])
