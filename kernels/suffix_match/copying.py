"""The copy of a matched symbol, whose gradient is that of a relaxed match."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MISMATCH = 3.0
"""Rate at which signs that differ close the gate of a symbol: e^-3 if all do."""

WINDOW = 32
"""The most symbols that count in a relaxed suffix; a power of two."""

NOTHING = 0.5
"""Score of copying nothing."""

SLOPE = 1 + 2**0.5
"""Factor of a score, which makes it 1 for a suffix of one symbol that matches."""

Gradients = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def signs(x: Tensor) -> Tensor:
    """Return 1 where x > 0, else -1, in the dtype of x."""
    return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


class Copy(torch.autograd.Function):
    """Copies values from places, and has the gradient of a relaxed match among q, k and v [N, T, b].

    With signs s of q, k and v, and g_ij = e^(-3 d_ij) for the share d of signs that differ in q_i and k_j:

        o'_t = sum_{j<t} p_tj s(v_{j+1}),   p_t = softmax of a(S_tj) - log t for j < t, and 1/2 for nothing
        a(S) = (1 + sqrt 2) (sqrt(1 + S) - 1),   S_tj = g_tj + g_tj g_{t-1,j-1} + ... up to 32 factors

    The derivative of s(x) is that of softsign, 1 / (1 + |x|)^2, and d = (1 - s(q) . s(k) / b) / 2. This is
    the public surrogate that github.com/wjie98/rosa_soft describes; the source has published no rule.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, values: Tensor, places: Tensor, gradients: Gradients
    ) -> Tensor:
        """Return values [N, S, b] at places [N, T], and zeros at place 0.

        `gradients` returns those of the relaxed match, of signs of q, k and v and of a gradient of o'.
        """
        index = places[..., None].expand(*places.shape, values.shape[-1])
        return torch.where(index > 0, values.gather(1, index), 0.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the relaxed match reads."""
        q, k, v, _, _, ctx.gradients = inputs
        ctx.save_for_backward(q, k, v)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """Return the gradients of q, k and v."""
        given = ctx.saved_tensors
        of_signs = ctx.gradients(*map(signs, given), gradient)
        inputs = (of_sign / (1 + x.abs()).square() for of_sign, x in zip(of_signs, given, strict=True))
        return *inputs, None, None, None


def in_parts(
    function: Callable[..., tuple[Tensor, ...]], most: int, *given: Tensor | None
) -> tuple[Tensor, ...]:
    """Apply a function to at most so many rows of tensors [N, ...] at a time, and join its results."""
    rows = next(x for x in given if x is not None).shape[0]
    parts = [
        function(*(None if x is None else x[start : start + most] for x in given))
        for start in range(0, max(1, rows), most)
    ]
    return parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))
