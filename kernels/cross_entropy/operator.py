"""Loss and gradients a block of rows at a time, as a torch operator: it compiles, differentiates, and stacks under vmap."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.cross_entropy import plain
from linbench.kernels.operators import fold_replicas

LOGITS = {"cpu": 1 << 20, "cuda": 1 << 23}
"""Logits in a block, by kind of device: about what its caches hold."""


def blocks(hidden: Tensor, weight: Tensor) -> Iterator[slice]:
    """Rows of hidden [R, N, D] in blocks of almost equal size, with at most `LOGITS` logits in all, or D rows a replica if that is more.

    With fewer rows, adding a block's part to the gradient of the weight [R, V, D] would cost more than the logits themselves.
    """
    replicas, rows, width = hidden.shape
    most = max(LOGITS.get(hidden.device.type, LOGITS["cuda"]) // (replicas * weight.shape[1]), width)
    size = -(-rows // -(-rows // most)) if rows else 1
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


@torch.library.custom_op("linbench::cross_entropy", mutates_args=())
def forward(hidden: Tensor, weight: Tensor, targets: Tensor, ignore: int, gradients: bool, triton: bool) -> tuple[Tensor, Tensor, Tensor]:
    """hidden [R, N, D], weight [R, V, D], targets [R, N] -> loss [R] and its gradients over hidden and weight, empty if not asked for."""
    replicas, rows, _ = hidden.shape
    hidden, weight, targets, wide = hidden.contiguous(), weight.contiguous(), targets.contiguous(), torch.promote_types(hidden.dtype, torch.float32)
    losses = hidden.new_empty(replicas, rows, dtype=wide)
    count = (targets != ignore).sum(dim=-1)
    share = count.clamp(min=1).to(wide).reciprocal()
    dhidden = hidden.new_empty(hidden.shape if gradients else (replicas, 0, 0))
    dweight = hidden.new_zeros(weight.shape if gradients else (replicas, 0, 0), dtype=wide)
    block = _triton_block() if triton else plain.block
    for these in blocks(hidden, weight):
        logits = hidden[:, these] @ weight.mT  # [R, n, V], and in its place the gradient
        block(logits, targets[:, these], ignore, share, losses[:, these], gradients=gradients)
        if gradients:
            dhidden[:, these] = logits @ weight
            if dweight.dtype == logits.dtype:
                dweight.baddbmm_(logits.mT, hidden[:, these])
            else:
                dweight += logits.mT @ hidden[:, these]
    return losses.sum(dim=-1) / count, dhidden, dweight


def _triton_block() -> Any:
    from linbench.kernels.cross_entropy import triton

    return triton.block


@forward.register_fake
def _(hidden: Tensor, weight: Tensor, targets: Tensor, ignore: int, gradients: bool, triton: bool) -> tuple[Tensor, Tensor, Tensor]:
    wide, none = torch.promote_types(hidden.dtype, torch.float32), (hidden.shape[0], 0, 0)
    dhidden, dweight = hidden.new_empty(hidden.shape if gradients else none), hidden.new_empty(weight.shape if gradients else none, dtype=wide)
    return hidden.new_empty(hidden.shape[0], dtype=wide), dhidden, dweight


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dloss: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    if any(other is not None for other in others):
        raise RuntimeError("cross_entropy has no second derivative")
    dhidden, dweight = ctx.saved_tensors
    if dloss is None:
        return (None,) * 6
    dloss = dloss[:, None, None]
    return (dhidden * dloss).to(dhidden.dtype), (dweight * dloss).to(dhidden.dtype), None, None, None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
