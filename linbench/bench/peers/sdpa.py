"""Softmax attention of torch's own parts: linear maps around `scaled_dot_product_attention`.

It has no positions and no norms. Decoding attends to a cache that is written in place.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from linbench.bench.layer import LayerCase
from linbench.bench.layer_side import Side
from linbench.bench.peer import Peer, UnsupportedByPeerError


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
        " writes its cache in place."
    ),
    layer=layer,
)
