"""Softmax attention of torch's own parts: `scaled_dot_product_attention`, alone and between linear maps.

The layer has no positions and no norms. Decoding attends to a cache that is written in place.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side
from linbench.bench.peer import OperationCalls, Peer, UnsupportedByPeerError

_TRIALS = 5
"""Calls of each of torch's kernels, of which the fastest decides which one is measured: chosen."""

Call = Callable[[dict[str, Tensor]], Tensor]


def operations(compiling: bool) -> OperationCalls:
    """Return causal attention, alone and with forget gates as a mask, by the fastest of torch's kernels."""
    return {"attention": _Fastest(_attend), "fox": _Fastest(_attend)}


def _attend(x: dict[str, Tensor]) -> Tensor:
    q, k, v = (x[name].transpose(1, 2) for name in ("q", "k", "v"))
    mask = None
    if "gate" in x:
        sums = x["gate"].cumsum(dim=1).mT  # [B, H, T]; the mask has fewer digits
        late = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
        left = (sums[..., :, None] - sums[..., None, :]).to(q.dtype)
        mask = left.masked_fill(late, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None).transpose(1, 2)


class _Fastest:
    """A call by that one of torch's kernels on a GPU which at first took least time, forward and backward."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.chosen: SDPBackend | None = None

    def __call__(self, x: dict[str, Tensor]) -> Tensor:
        """Compute the operation. The kernel is chosen by the first inputs, at which it is measured."""
        if not x["q"].is_cuda:
            return self.call(x)
        if self.chosen is None:
            self.chosen = min(_KERNELS, key=lambda kernel: self._seconds(kernel, x))
        with sdpa_kernel(self.chosen):
            return self.call(x)

    def _seconds(self, kernel: SDPBackend, x: dict[str, Tensor]) -> float:
        """Return the least seconds of forward and backward by a kernel, infinite if it does not take x."""
        seconds = float("inf")
        leaves = [y for y in x.values() if y.requires_grad]
        with suppress(RuntimeError), sdpa_kernel(kernel):
            for _ in range(_TRIALS):
                torch.cuda.synchronize()
                began = time.perf_counter()
                o = self.call(x)
                torch.autograd.grad(o, leaves, o.detach())
                torch.cuda.synchronize()
                seconds = min(seconds, time.perf_counter() - began)
        return seconds


_KERNELS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)


class Softmax(nn.Module):
    """Softmax attention, x [B, T, D] -> y [B, T, D].

    Args:
        head_dim: default: width / heads.
    """

    def __init__(self, width: int, heads: int, head_dim: int | None = None) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim or width // heads
        self.qkv = nn.Linear(width, 3 * heads * self.head_dim)
        self.out = nn.Linear(heads * self.head_dim, width)

    def project(self, x: Tensor) -> list[Tensor]:
        """Return q, k and v, each [B, H, T, K]."""
        return [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1)]

    def join_heads(self, o: Tensor) -> Tensor:
        """Map outputs of heads [B, H, T, K] to y [B, T, D]."""
        y: Tensor = self.out(o.transpose(1, 2).flatten(-2))
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Map x [B, T, D] to y [B, T, D]."""
        q, k, v = self.project(x)
        return self.join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return y, and the keys and values that a cache would hold."""
        q, k, v = self.project(x)
        y = self.join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return y, k.contiguous(), v.contiguous()


def layer(case: LayerCase, compiling: bool) -> Side:
    """Build attention of the case's width and heads.

    Raises UnsupportedByPeerError: the case's model is not attention.
    """
    if case.mixer != "attention":
        raise UnsupportedByPeerError("has softmax attention only")
    settings: Any = case.settings
    softmax = Softmax(case.width, settings.heads, settings.head_dim)

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        weight = softmax.out.weight
        shape = (batch, softmax.heads, context + 1, softmax.head_dim)
        keys, values = weight.new_zeros(shape), weight.new_zeros(shape)

        def decode(x: Tensor) -> Tensor:
            q, k, v = softmax.project(x)
            keys[:, :, context:], values[:, :, context:] = k, v
            return softmax.join_heads(F.scaled_dot_product_attention(q, keys, values))

        return decode

    return Side(softmax, softmax, softmax.prefill, after)


PEER = Peer(
    name="sdpa",
    package="torch",
    distribution="torch",
    runs_on=("cpu", "cuda"),
    note=(
        "sdpa: softmax attention of torch's own parts, without positions, convolution or norms; decoding"
        " writes its cache in place. Alone, it is the fastest of torch's kernels, and FoX's gates are a mask."
    ),
    operations=operations,
    layer=layer,
)
