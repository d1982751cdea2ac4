"""RWKV-7's keys on a GPU: one launch forward, one and a sum backward, each number read once and written once.

Rows [N, H, K] are taken as in kernels/row_tiles.py. Backward a program stores its part of the gradients of
base, k_k and k_a in a place of its own: no atomics, the same sum every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.row_tiles import backward_launch, forward_launch, place, program_index

_SHORTEST = 1e-12
"""Length below which a key is not divided by it, as in `torch.nn.functional.normalize`."""


@triton.jit
def _own(base, k_k, k_a, replica, head, heads, K, BK: tl.constexpr):
    """Load a head's base, k_k and k_a, each [1, BK]."""
    column = tl.arange(0, BK)[None, :]
    at, here = (replica * heads + head) * K + column, column < K
    first = tl.load(base + at, mask=here, other=0.0).to(tl.float32)
    return (
        first,
        tl.load(k_k + at, mask=here, other=0.0).to(tl.float32),
        tl.load(k_a + at, mask=here, other=0.0).to(tl.float32),
    )


@triton.jit
def _forward(
    k,
    offset,
    base,
    k_k,
    k_a,
    written,
    erased,
    rated,
    rows,
    heads,
    K,
    programs,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    SHORTEST: tl.constexpr,
):
    """Compute written, erased and rated. Grid (replicas * programs * heads).

    k, offset and the results are [replicas * rows, heads, K]; base, k_k, k_a [replicas, heads, K].
    """
    replica, head, program = program_index(tl.program_id(0).to(tl.int64), programs, heads)
    at, mask = place(program, replica, head, rows, heads, K, ROWS, BK)
    first, keyed, mixed = _own(base, k_k, k_a, replica, head, heads, K, BK)
    key = tl.load(k + at, mask=mask, other=0.0).to(tl.float32)
    rate = tl.sigmoid(first + tl.load(offset + at, mask=mask, other=0.0).to(tl.float32))
    c = key * keyed
    c *= 1 / tl.maximum(tl.sqrt(tl.sum(c * c, axis=1, keep_dims=True)), SHORTEST)
    tl.store(written + at, (key * (1 + (rate - 1) * mixed)).to(written.dtype.element_ty), mask=mask)
    tl.store(erased + at, (-c).to(erased.dtype.element_ty), mask=mask)
    tl.store(rated + at, (c * rate).to(rated.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    k, offset, base, k_k, k_a, dwritten, derased, drated, dk, doffset, sums, rows, heads, K, programs,
    ROWS: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, SHORTEST: tl.constexpr,
):  # fmt: skip
    """Compute dk, doffset, and parts of the gradients of base, k_k and k_a.

    Grid (replicas * programs * heads), TILES tiles each. sums [replicas, programs, 3, heads, K] are these
    parts.
    """
    replica, head, program = program_index(tl.program_id(0).to(tl.int64), programs, heads)
    first, keyed, mixed = _own(base, k_k, k_a, replica, head, heads, K, BK)
    dfirst, dkeyed, dmixed = (
        tl.zeros([ROWS, BK], tl.float32),
        tl.zeros([ROWS, BK], tl.float32),
        tl.zeros([ROWS, BK], tl.float32),
    )
    for i in range(TILES):
        at, mask = place(program + i * programs, replica, head, rows, heads, K, ROWS, BK)
        key = tl.load(k + at, mask=mask, other=0.0).to(tl.float32)
        rate = tl.sigmoid(first + tl.load(offset + at, mask=mask, other=0.0).to(tl.float32))
        dw = tl.load(dwritten + at, mask=mask, other=0.0).to(tl.float32)
        db = tl.load(drated + at, mask=mask, other=0.0).to(tl.float32)
        dc = db * rate - tl.load(derased + at, mask=mask, other=0.0).to(tl.float32)
        c = key * keyed
        length = tl.sqrt(tl.sum(c * c, axis=1, keep_dims=True))
        one_over = 1 / tl.maximum(length, SHORTEST)
        c *= one_over
        dlogit = (db * c + dw * key * mixed) * rate * (1 - rate)
        tl.store(doffset + at, dlogit.to(doffset.dtype.element_ty), mask=mask)
        along = tl.where(length >= SHORTEST, tl.sum(dc * c, axis=1, keep_dims=True), 0.0)
        dc = (dc - c * along) * one_over
        tl.store(dk + at, (dc * keyed + dw * (1 + (rate - 1) * mixed)).to(dk.dtype.element_ty), mask=mask)
        dfirst += dlogit
        dkeyed += dc * key
        dmixed += dw * key * (rate - 1)
    column = tl.arange(0, BK)[None, :]
    sums += ((replica * programs + program) * 3 * heads + head) * K + column
    tl.store(sums, tl.sum(dfirst, axis=0, keep_dims=True), mask=column < K)
    tl.store(sums + heads * K, tl.sum(dkeyed, axis=0, keep_dims=True), mask=column < K)
    tl.store(sums + 2 * heads * K, tl.sum(dmixed, axis=0, keep_dims=True), mask=column < K)


@operator("erasure")
def forward(
    k: Tensor, offset: Tensor, base: Tensor, k_k: Tensor, k_a: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of the door for k, offset [N, H, K] and base, k_k, k_a [replicas, H, K].

    `replicas` divides N.
    """
    k, offset, base, k_k, k_a = (given.contiguous() for given in (k, offset, base, k_k, k_a))
    (replicas, heads, width), launch = base.shape, forward_launch(k.shape[2])
    rows = len(k) // replicas
    programs = -(-rows // launch.rows)
    made = (
        torch.empty_like(k, dtype=dtype),
        torch.empty_like(k, dtype=dtype),
        torch.empty_like(k, dtype=dtype),
    )
    _forward[(replicas * programs * heads,)](
        k, offset, base, k_k, k_a, *made, rows, heads, width, programs,
        ROWS=launch.rows, BK=launch.padded, SHORTEST=_SHORTEST, num_warps=launch.warps,
    )  # fmt: skip
    return made


@operator("erasure_backward", differentiable=False)
def backward(
    k: Tensor,
    offset: Tensor,
    base: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    dwritten: Tensor,
    derased: Tensor,
    drated: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of k, of offset, and of base, k_k and k_a [replicas, 3, H, K] in float32."""
    k, offset, base, k_k, k_a = (given.contiguous() for given in (k, offset, base, k_k, k_a))
    replicas, heads, width = base.shape
    rows, launch = len(k) // replicas, backward_launch(len(k) * heads, width, summed=True)
    programs = -(-rows // (launch.rows * launch.tiles))
    dk, doffset = torch.empty_like(k), torch.empty_like(offset)
    sums = k.new_empty(replicas, programs, 3, heads, width, dtype=torch.float32)
    _backward[(replicas * programs * heads,)](
        k, offset, base, k_k, k_a, dwritten.contiguous(), derased.contiguous(),
        drated.contiguous(), dk, doffset, sums, rows, heads, width, programs,
        ROWS=launch.rows, BK=launch.padded, TILES=launch.tiles, SHORTEST=_SHORTEST, num_warps=launch.warps,
    )  # fmt: skip
    return dk, doffset, reduce_partials(sums)


@forward.register_fake
def _(
    k: Tensor, offset: Tensor, base: Tensor, k_k: Tensor, k_a: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        k.new_empty(k.shape, dtype=dtype),
        k.new_empty(k.shape, dtype=dtype),
        k.new_empty(k.shape, dtype=dtype),
    )


@backward.register_fake
def _(
    k: Tensor,
    offset: Tensor,
    base: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    dwritten: Tensor,
    derased: Tensor,
    drated: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        k.new_empty(k.shape),
        offset.new_empty(offset.shape),
        base.new_empty(base.shape[0], 3, *base.shape[1:], dtype=torch.float32),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _differentiate(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    dk, doffset, sums = backward(*ctx.saved_tensors, *gradients)
    return (
        dk,
        doffset,
        *(total.to(own.dtype) for total, own in zip(sums.unbind(1), ctx.saved_tensors[2:], strict=True)),
        None,
    )


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def erasure(
    k: Tensor, offset: Tensor, base: Tensor, k_k: Tensor, k_a: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three vectors; arguments are those of the door."""
    written, erased, rated = forward(
        *(given.reshape(-1, *base.shape) for given in (k, offset)), base[None], k_k[None], k_a[None], dtype
    )
    return written.view(k.shape), erased.view(k.shape), rated.view(k.shape)
