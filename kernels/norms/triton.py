"""The same on a GPU: each number read once and written once, forward and backward.

Rows [N, D] are taken a tile at a time, D padded to a power of two. Backward a program takes several tiles and leaves what they add to
the gradient of the weight in a place of its own: no atomics, the same sum every time.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, summed


@triton.jit
def _place(tile, replica, rows, D, ROWS: tl.constexpr, BD: tl.constexpr):
    """Offsets and mask [ROWS, BD] of a tile of a replica, which has `rows` rows."""
    row, column = tile * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BD)[None, :]
    return (replica * rows + row) * D + column, (row < rows) & (column < D)


@triton.jit
def _forward(
    x, added, weight, gate, total, y, rows, D, tiles, share, eps,
    ROWS: tl.constexpr, BD: tl.constexpr, ADDED: tl.constexpr, WEIGHT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Grid (replicas * tiles). x, gate, y [replicas * rows, D], weight [replicas, D]; `share`: of the sum of squares, 1 or 1 / D.

    ADDED: `added` [replicas * rows, D] is added to x before, which gives `total`.
    """
    program = tl.program_id(0).to(tl.int64)
    replica, tile = program // tiles, program % tiles
    place, mask = _place(tile, replica, rows, D, ROWS, BD)
    o = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    if ADDED:
        kept = (o + tl.load(added + place, mask=mask, other=0.0).to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + place, kept, mask=mask)
        o = kept.to(tl.float32)
    o *= tl.rsqrt(tl.sum(o * o, axis=1, keep_dims=True) * share + eps)
    if WEIGHT:
        column = tl.arange(0, BD)[None, :]
        o *= tl.load(weight + replica * D + column, mask=column < D, other=0.0).to(tl.float32)
    if ACTIVATION != "none":
        g = tl.load(gate + place, mask=mask, other=0.0).to(tl.float32)
        o *= tl.sigmoid(g)
        if ACTIVATION == "swish":
            o *= g
    tl.store(y + place, o.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    x, weight, gate, dy, dtotal, dx, dadded, dweight, dgate, rows, D, programs, share, eps,
    ROWS: tl.constexpr, BD: tl.constexpr, TILES: tl.constexpr, TOTAL: tl.constexpr, ADDED: tl.constexpr, WEIGHT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Grid (replicas * programs), TILES tiles each; dweight [replicas, programs, D] in float32.

    TOTAL: x, which is a sum, has a gradient of its own besides. ADDED: what was added to it wants the gradient in a dtype of its own.
    """
    program = tl.program_id(0).to(tl.int64)
    replica = program // programs
    column = tl.arange(0, BD)[None, :]
    w, dw = 1.0, tl.zeros([ROWS, BD], tl.float32)
    if WEIGHT:
        w = tl.load(weight + replica * D + column, mask=column < D, other=0.0).to(tl.float32)
    for i in range(TILES):
        place, mask = _place(program % programs + i * programs, replica, rows, D, ROWS, BD)
        o = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
        do = tl.load(dy + place, mask=mask, other=0.0).to(tl.float32)
        r = tl.rsqrt(tl.sum(o * o, axis=1, keep_dims=True) * share + eps)
        o *= r
        if ACTIVATION != "none":
            g = tl.load(gate + place, mask=mask, other=0.0).to(tl.float32)
            s = tl.sigmoid(g)
            if ACTIVATION == "swish":
                opened, slope = g * s, s * (1 + g * (1 - s))
            else:
                opened, slope = s, s * (1 - s)
            tl.store(dgate + place, (do * o * w * slope).to(dgate.dtype.element_ty), mask=mask)
            do *= opened
        if WEIGHT:
            dw += do * o
            do *= w
        do = r * (do - o * (tl.sum(do * o, axis=1, keep_dims=True) * share))
        if TOTAL:
            do += tl.load(dtotal + place, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx + place, do.to(dx.dtype.element_ty), mask=mask)
        if ADDED:
            tl.store(dadded + place, do.to(dadded.dtype.element_ty), mask=mask)
    if WEIGHT:
        tl.store(dweight + program * D + column, tl.sum(dw, axis=0, keep_dims=True), mask=column < D)


class Launch(NamedTuple):
    """Tiles of `rows` rows of D padded to `padded`, so many `tiles` to a program."""

    padded: int
    rows: int
    tiles: int
    warps: int


def forward_launch(width: int) -> Launch:
    """Tiles of 2048 numbers with four warps, wider where a row is."""
    padded = _power_of_two(width)
    return Launch(padded, max(1, 2048 // padded), 1, max(4, min(16, padded // 1024)))


def backward_launch(rows: int, width: int, *, weight: bool) -> Launch:
    """Tiles as forward. With a weight several to a program, up to 64, but so that a thousand programs are left."""
    launch = forward_launch(width)
    tiles = -(-rows // launch.rows)
    return launch._replace(tiles=max(1, min(64, _power_of_two(tiles // 1024 + 1) // 2)) if weight else 1)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@operator("norm")
def forward(
    x: Tensor, added: Tensor | None, weight: Tensor | None, gate: Tensor | None, activation: str, mean: bool, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """x, added, gate [N, D], weight [replicas, D] with `replicas` dividing N; the mean of squares or, for the l2 norm, their sum.

    Returns the norm, and x + added, empty where nothing is.
    """
    x, added, weight, gate = x.contiguous(), _contiguous(added), _contiguous(weight), _contiguous(gate)
    replicas, width = 1 if weight is None else len(weight), x.shape[1]
    rows, launch, y = len(x) // replicas, forward_launch(width), torch.empty_like(x, dtype=dtype)
    total = x.new_empty(x.shape if added is not None else (len(x), 0))
    tiles = -(-rows // launch.rows)
    _forward[(replicas * tiles,)](
        x, added, weight, gate, total, y, rows, width, tiles, 1 / width if mean else 1.0, eps,
        ROWS=launch.rows, BD=launch.padded, ADDED=added is not None, WEIGHT=weight is not None, ACTIVATION=activation, num_warps=launch.warps,
    )  # fmt: skip
    return y, total


@operator("norm_backward", differentiable=False)
def backward(
    x: Tensor, weight: Tensor | None, gate: Tensor | None, dy: Tensor, dtotal: Tensor | None, activation: str, mean: bool, eps: float, added: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, which is the sum where there is one, in its dtype and in that of what was `added`, of weight and of gate; empty for what is not
    there, or the same."""
    x, weight, gate, dy, dtotal = x.contiguous(), _contiguous(weight), _contiguous(gate), dy.contiguous(), _contiguous(dtotal)
    replicas, width = 1 if weight is None else len(weight), x.shape[1]
    rows = len(x) // replicas
    launch = backward_launch(len(x), width, weight=weight is not None)
    programs = -(-rows // (launch.rows * launch.tiles))
    dx, dgate = torch.empty_like(x), torch.empty_like(gate) if gate is not None else x.new_empty(0)
    dadded = x.new_empty(x.shape if added != x.dtype else (len(x), 0), dtype=added)
    partial = x.new_empty(replicas, programs if weight is not None else 0, width, dtype=torch.float32)
    _backward[(replicas * programs,)](
        x, weight, gate, dy, dtotal, dx, dadded, partial, dgate, rows, width, programs, 1 / width if mean else 1.0, eps,
        ROWS=launch.rows, BD=launch.padded, TILES=launch.tiles, TOTAL=dtotal is not None, ADDED=added != x.dtype,
        WEIGHT=weight is not None, ACTIVATION=activation, num_warps=launch.warps,
    )  # fmt: skip
    return dx, dadded, x.new_empty(0) if weight is None else summed(partial).to(weight.dtype), dgate


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


@forward.register_fake
def _(
    x: Tensor, added: Tensor | None, weight: Tensor | None, gate: Tensor | None, activation: str, mean: bool, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape if added is not None else (x.shape[0], 0))


@backward.register_fake
def _(
    x: Tensor, weight: Tensor | None, gate: Tensor | None, dy: Tensor, dtotal: Tensor | None, activation: str, mean: bool, eps: float, added: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dweight, dgate = (x.new_empty(0) if given is None else given.new_empty(given.shape) for given in (weight, gate))
    return x.new_empty(x.shape), x.new_empty(x.shape if added != x.dtype else (x.shape[0], 0), dtype=added), dweight, dgate


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, added, weight, gate, *ctx.options, _ = inputs
    ctx.added = None if added is None else added.dtype
    ctx.save_for_backward(x if added is None else output[1], weight, gate)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dy: Tensor | None, dtotal: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, gate = ctx.saved_tensors
    dy = torch.zeros_like(x) if dy is None else dy
    dx, dadded, dweight, dgate = backward(x, weight, gate, dy, dtotal if ctx.added else None, *ctx.options, ctx.added or x.dtype)
    second = None if ctx.added is None else dadded if ctx.added != x.dtype else dx
    return dx, second, None if weight is None else dweight, None if gate is None else dgate, None, None, None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def l2_norm(x: Tensor, eps: float) -> Tensor:
    """Arguments and result as at the door."""
    y: Tensor = forward(x.reshape(-1, x.shape[-1]), None, None, None, "none", False, float(eps), x.dtype)[0]
    return y.view(x.shape)


def rms_norm(x: Tensor, weight: Tensor, gate: Tensor | None, activation: str | None, eps: float, dtype: torch.dtype) -> Tensor:
    """Arguments and result as at the door."""
    x_rows, gate_rows = (None if given is None else given.reshape(-1, x.shape[-1]) for given in (x, gate))
    y: Tensor = forward(x_rows, None, weight[None], gate_rows, activation or "none", True, float(eps), dtype)[0]
    return y.view(x.shape)


def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Arguments and results as at the door."""
    y, total = forward(*(given.reshape(-1, x.shape[-1]) for given in (x, added)), weight[None], None, "none", True, float(eps), dtype)
    return total.view(x.shape), y.view(x.shape)
