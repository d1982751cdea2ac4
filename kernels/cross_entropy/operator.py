"""Loss and gradients, a block of rows at a time, as a torch operator.

It compiles, differentiates, and stacks under vmap.
"""

from typing import Any

import torch
from torch import Tensor

from linbench.kernels.cross_entropy import eager
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matmul import product, sum_of_products
from linbench.kernels.operators import Backend, fold_replicas, operator

LOGITS = {"cpu": 1 << 20, "cuda": 1 << 24}
"""Logits in a block, by kind of device: about as many as its caches hold."""


def blocks(hidden: Tensor, weight: Tensor) -> list[tuple[slice, slice]]:
    """Cut hidden [R, N, D] into blocks of at most `LOGITS` logits, each as replicas and rows.

    A block has several replicas, or some rows of one, as equal in number as can be, and at least D of them,
    which may be more logits: with fewer rows, adding a block's part to the gradient of the weight [R, V, D]
    would cost more than the logits themselves.
    """
    replicas, rows, width = hidden.shape
    most = LOGITS.get(hidden.device.type, LOGITS["cuda"]) // weight.shape[1]
    if rows <= max(most, width):
        size = max(1, most // max(1, rows))
        return [(slice(start, start + size), slice(0, rows)) for start in range(0, replicas, size)]
    size = -(-rows // -(-rows // max(most, width)))
    return [
        (slice(r, r + 1), slice(start, min(start + size, rows)))
        for r in range(replicas)
        for start in range(0, rows, size)
    ]


@operator("cross_entropy")
def forward(
    hidden: Tensor, weight: Tensor, targets: Tensor, ignore: int, gradients: bool, triton: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses [R] and their gradients over hidden and weight, empty if these are not asked for.

    Takes hidden [R, N, D], weight [R, V, D] and targets [R, N].
    """
    replicas, rows, _ = hidden.shape
    hidden, weight, targets, wide = (
        hidden.contiguous(),
        weight.to(hidden.dtype).contiguous(),
        targets.contiguous(),
        at_least_float32(hidden.dtype),
    )
    losses = hidden.new_empty(replicas, rows, dtype=wide)
    count = (targets != ignore).sum(dim=-1)
    share = count.clamp(min=1).to(wide).reciprocal()
    dhidden = hidden.new_empty(hidden.shape if gradients else (replicas, 0, 0))
    dweight = _room(hidden, weight, gradients)
    block = _triton_block() if triton else eager.block
    backend: Backend = "auto" if triton else "torch"
    for some, these in blocks(hidden, weight):
        x, w = hidden[some, these], weight[some]
        logits = product(x, w.mT, backend=backend)  # [r, n, V], and in its place the gradient
        block(logits, targets[some, these], ignore, share[some], losses[some, these], gradients=gradients)
        if gradients:
            dhidden[some, these] = product(logits, w, backend=backend)
            part = sum_of_products(logits, x) if x.is_cuda else product(logits.mT, x, backend=backend)
            if these.start:
                dweight[some] += part
            else:
                dweight[some] = part
    return losses.sum(dim=-1) / count, dhidden, dweight


def _room(hidden: Tensor, weight: Tensor, gradients: bool) -> Tensor:
    """Allocate the gradient of the weight: a sum over blocks is taken in at least float32."""
    summed = any(these.start for _, these in blocks(hidden, weight))
    return hidden.new_empty(
        weight.shape if gradients else (len(weight), 0, 0),
        dtype=at_least_float32(hidden.dtype) if summed else hidden.dtype,
    )


def _triton_block() -> Any:
    from linbench.kernels.cross_entropy import triton

    return triton.block


@forward.register_fake
def _(
    hidden: Tensor, weight: Tensor, targets: Tensor, ignore: int, gradients: bool, triton: bool
) -> tuple[Tensor, Tensor, Tensor]:
    replicas = hidden.shape[0]
    dhidden = hidden.new_empty(hidden.shape if gradients else (replicas, 0, 0))
    return (
        hidden.new_empty(replicas, dtype=at_least_float32(hidden.dtype)),
        dhidden,
        _room(hidden, weight, gradients),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.dtypes = [x.dtype for x in inputs[:2]]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dloss: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    if any(other is not None for other in others):
        raise RuntimeError("cross_entropy has no second derivative")
    if dloss is None:
        return (None,) * 6
    scaled = (
        torch.mul(x, dloss[:, None, None]).to(dtype)
        for x, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
    )
    return *scaled, *[None] * 4


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
