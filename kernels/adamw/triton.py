"""AdamW on a GPU in one launch: each number is read once and written once."""

import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.adamw.eager import EPSILON

BLOCK = 1024
"""Numbers of a program, eight for each of its 128 threads: chosen, not measured."""


@triton.jit
def _step(
    weights, gradients, means, squares, now, rates, decays,
    scale, decaying, norms, n, clip, beta1, beta2, epsilon,
    BLOCK: tl.constexpr, CLIPS: tl.constexpr,
):  # fmt: skip
    """Update weights and moments. Grid (n / BLOCK, R)."""
    replica = tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < n
    place = replica.to(tl.int64) * n + column
    rate = tl.load(rates + replica) * tl.load(now)
    pull = (rate * tl.load(decays + replica)).to(tl.float32)
    push = (rate / tl.load(now + 1)).to(tl.float32)
    square_bias = tl.load(now + 2).to(tl.float32)
    g = tl.load(gradients + place, mask=mask, other=0.0).to(tl.float32)
    if CLIPS:
        g *= tl.minimum(clip / (tl.load(norms + replica) + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    mean = tl.load(means + place, mask=mask, other=0.0).to(tl.float32)
    square = tl.load(squares + place, mask=mask, other=0.0).to(tl.float32)
    mean += (1 - beta1) * (g - mean)
    square = beta2 * square + (1 - beta2) * g * g
    tl.store(means + place, mean, mask=mask)
    tl.store(squares + place, square, mask=mask)
    own = tl.load(scale + column, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weights + place, mask=mask, other=0.0).to(tl.float32)
    w -= w * own * tl.load(decaying + column, mask=mask, other=0.0).to(tl.float32) * pull
    w -= own * push * mean / (tl.sqrt(square / square_bias) + epsilon)
    tl.store(weights + place, w, mask=mask)


def adamw(
    weights: Tensor, gradients: Tensor, mean: Tensor, square: Tensor,
    now: Tensor, rates: Tensor, decays: Tensor, scale: Tensor, decaying: Tensor,
    norms: Tensor | None, clip: float, betas: tuple[float, float],
) -> None:  # fmt: skip
    """Update weights and moments in place; arguments are those of `linbench.kernels.adamw.adamw`."""
    replicas, n = weights.shape
    _step[(triton.cdiv(n, BLOCK), replicas)](
        weights, gradients, mean, square, now, rates, decays, scale, decaying,
        weights if norms is None else norms, n, clip, *betas, EPSILON,
        BLOCK=BLOCK, CLIPS=norms is not None, num_warps=4,
    )  # fmt: skip
