"""Softmax attention as torch has it: one product for q, k and v, `scaled_dot_product_attention`, one for the
output; no positions, nothing around the heads. Decoding attends to a cache that is written in place."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from linbench.bench.layer import Case
from linbench.bench.layer_side import Side
from linbench.bench.peers import LacksError


def layer(case: Case, compiling: bool) -> Side:
    """Of the case's width and heads. Raises LacksError: another model than attention."""
    if case.mixer != "attention":
        raise LacksError("has softmax attention only")
    settings: Any = case.settings
    softmax = Softmax(case.width, settings.heads, settings.head_dim)

    def after(batch: int, context: int) -> Callable[[Tensor], Any]:
        weight = softmax.out.weight
        keys, values = (
            weight.new_zeros(batch, softmax.heads, context + 1, softmax.head_dim) for _ in range(2)
        )

        def one(x: Tensor) -> Tensor:
            q, k, v = softmax.projected(x)
            keys[:, :, context:], values[:, :, context:] = k, v
            return softmax.joined(F.scaled_dot_product_attention(q, keys, values))

        return one

    return Side(softmax, softmax, softmax.prompt, after)


class Softmax(nn.Module):
    """x [B, T, D] -> y [B, T, D]; a head is D / heads wide unless `head_dim` says otherwise."""

    def __init__(self, width: int, heads: int, head_dim: int | None = None) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim or width // heads
        self.qkv, self.out = (
            nn.Linear(width, 3 * heads * self.head_dim),
            nn.Linear(heads * self.head_dim, width),
        )

    def projected(self, x: Tensor) -> list[Tensor]:
        """q, k and v [B, H, T, K]."""
        return [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1)]

    def joined(self, o: Tensor) -> Tensor:
        """o [B, H, T, K] -> y [B, T, D]."""
        y: Tensor = self.out(o.transpose(1, 2).flatten(-2))
        return y

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        q, k, v = self.projected(x)
        return self.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def prompt(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y, and the keys and values that are kept."""
        q, k, v = self.projected(x)
        return (
            self.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)),
            k.contiguous(),
            v.contiguous(),
        )
