"""Norms on a GPU: each number is read once and written once, forward and backward.

Rows [N, H, D] are taken as in kernels/row_tiles.py. Backward a program takes several tiles and stores its
part of the gradients of weight and bias in a place of its own: no atomics, the same sum every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.row_tiles import backward_launch, forward_launch, place, program_index


@triton.jit
def _forward(
    x, added, weight, bias, gate, total, y, rows, heads, D, programs, part, eps,
    ROWS: tl.constexpr, BD: tl.constexpr, ADDED: tl.constexpr, CENTRE: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute y. Grid (replicas * programs * heads).

    x, gate, y [replicas * rows, heads, D], weight, bias [replicas, heads, D]; `part`: factor on the sum of
    squares, 1 or 1 / D. ADDED: `added`, shaped as x, is added to x before, which gives `total`. CENTRE: the
    mean is taken off.
    """
    replica, head, program = program_index(tl.program_id(0).to(tl.int64), programs, heads)
    at, mask = place(program, replica, head, rows, heads, D, ROWS, BD)
    column = tl.arange(0, BD)[None, :]
    own = (replica * heads + head) * D + column
    o = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if ADDED:
        kept = (o + tl.load(added + at, mask=mask, other=0.0).to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + at, kept, mask=mask)
        o = kept.to(tl.float32)
    if CENTRE:
        o = _centred(o, mask, part)
    o *= tl.rsqrt(tl.sum(o * o, axis=1, keep_dims=True) * part + eps)
    if WEIGHT:
        o *= tl.load(weight + own, mask=column < D, other=0.0).to(tl.float32)
    if BIAS:
        o += tl.load(bias + own, mask=column < D, other=0.0).to(tl.float32)
    if ACTIVATION != "none":
        g = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
        o *= tl.sigmoid(g)
        if ACTIVATION == "swish":
            o *= g
    tl.store(y + at, o.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _centred(x, mask, part):
    """Return x [ROWS, BD] without its mean; zero outside the row."""
    return tl.where(mask, x - tl.sum(x, axis=1, keep_dims=True) * part, 0.0)


@triton.jit
def _backward(
    x, weight, bias, gate, dy, dtotal, dx, dadded, sums, dgate, rows, heads, D, programs, part, eps,
    ROWS: tl.constexpr, BD: tl.constexpr, TILES: tl.constexpr,
    TOTAL: tl.constexpr, ADDED: tl.constexpr, CENTRE: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute gradients. Grid (replicas * programs * heads), TILES tiles each.

    sums [replicas, programs, 1 or 2 with BIAS, heads, D] are parts of the gradients of weight and bias.
    TOTAL: x, which is a sum, has a gradient of its own besides. ADDED: the gradient of what was added to it
    has a dtype of its own.
    """
    replica, head, program = program_index(tl.program_id(0).to(tl.int64), programs, heads)
    column = tl.arange(0, BD)[None, :]
    own = (replica * heads + head) * D + column
    w, b, dw, db = 1.0, 0.0, tl.zeros([ROWS, BD], tl.float32), tl.zeros([ROWS, BD], tl.float32)
    if WEIGHT:
        w = tl.load(weight + own, mask=column < D, other=0.0).to(tl.float32)
    if BIAS:
        b = tl.load(bias + own, mask=column < D, other=0.0).to(tl.float32)
    for i in range(TILES):
        at, mask = place(program + i * programs, replica, head, rows, heads, D, ROWS, BD)
        o = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        do = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        if CENTRE:
            o = _centred(o, mask, part)
        r = tl.rsqrt(tl.sum(o * o, axis=1, keep_dims=True) * part + eps)
        o *= r
        if ACTIVATION != "none":
            g = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
            s = tl.sigmoid(g)
            if ACTIVATION == "swish":
                opened, slope = g * s, s * (1 + g * (1 - s))
            else:
                opened, slope = s, s * (1 - s)
            tl.store(dgate + at, (do * (o * w + b) * slope).to(dgate.dtype.element_ty), mask=mask)
            do *= opened
        if BIAS:
            db += do
        if WEIGHT:
            dw += do * o
            do *= w
        do = r * (do - o * (tl.sum(do * o, axis=1, keep_dims=True) * part))
        if CENTRE:
            do = _centred(do, mask, part)
        if TOTAL:
            do += tl.load(dtotal + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx + at, do.to(dx.dtype.element_ty), mask=mask)
        if ADDED:
            tl.store(dadded + at, do.to(dadded.dtype.element_ty), mask=mask)
    sums += (((replica * programs + program) * (1 + BIAS)) * heads + head) * D + column
    if WEIGHT:
        tl.store(sums, tl.sum(dw, axis=0, keep_dims=True), mask=column < D)
    if BIAS:
        tl.store(sums + heads * D, tl.sum(db, axis=0, keep_dims=True), mask=column < D)


@operator("norm")
def forward(
    x: Tensor,
    added: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    gate: Tensor | None,
    kind: str,
    activation: str,
    eps: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the norm, and x + added, empty if nothing is added.

    Args:
        x, added, gate: [N, H, D].
        weight, bias: [replicas, H, D] with `replicas` dividing N.
        kind: "l2", "rms" or "layer".
    """
    x, added, weight, bias, gate = (
        x.contiguous(),
        _contiguous(added),
        _contiguous(weight),
        _contiguous(bias),
        _contiguous(gate),
    )
    replicas, heads, width = 1 if weight is None else len(weight), *x.shape[1:]
    rows, launch, y = len(x) // replicas, forward_launch(width), torch.empty_like(x, dtype=dtype)
    total = x.new_empty(x.shape if added is not None else (len(x), 0))
    programs = -(-rows // launch.rows)
    _forward[(replicas * programs * heads,)](
        x, added, weight, bias, gate, total, y, rows, heads, width, programs, _part(kind, width), eps,
        ROWS=launch.rows, BD=launch.padded, ADDED=added is not None,
        CENTRE=kind == "layer", WEIGHT=weight is not None, BIAS=bias is not None,
        ACTIVATION=activation, num_warps=launch.warps,
    )  # fmt: skip
    return y, total


@operator("norm_backward", differentiable=False)
def backward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, gate: Tensor | None,
    dy: Tensor, dtotal: Tensor | None, kind: str, activation: str, eps: float,
    added: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of x, of `added`, of weight and bias [replicas, 1 or 2, H, D] in float32, and of gate.

    x is the sum if something was added. The gradient of `added` is that of x in another dtype. Each is empty
    if it is not there, or the same.
    """
    x, weight, bias, gate, dy, dtotal = (
        x.contiguous(),
        _contiguous(weight),
        _contiguous(bias),
        _contiguous(gate),
        dy.contiguous(),
        _contiguous(dtotal),
    )
    replicas, heads, width = 1 if weight is None else len(weight), *x.shape[1:]
    rows = len(x) // replicas
    launch = backward_launch(len(x) * heads, width, summed=weight is not None)
    programs = -(-rows // (launch.rows * launch.tiles))
    dx, dgate = torch.empty_like(x), torch.empty_like(gate) if gate is not None else x.new_empty(0)
    dadded = x.new_empty(x.shape if added != x.dtype else (len(x), 0), dtype=added)
    sums = x.new_empty(replicas, programs, _weights(weight, bias), heads, width, dtype=torch.float32)
    _backward[(replicas * programs * heads,)](
        x, weight, bias, gate, dy, dtotal, dx, dadded, sums, dgate,
        rows, heads, width, programs, _part(kind, width), eps,
        ROWS=launch.rows, BD=launch.padded, TILES=launch.tiles,
        TOTAL=dtotal is not None, ADDED=added != x.dtype, CENTRE=kind == "layer",
        WEIGHT=weight is not None, BIAS=bias is not None, ACTIVATION=activation, num_warps=launch.warps,
    )  # fmt: skip
    return dx, dadded, x.new_empty(0) if weight is None else reduce_partials(sums), dgate


def _part(kind: str, width: int) -> float:
    return 1.0 if kind == "l2" else 1 / width


def _weights(weight: Tensor | None, bias: Tensor | None) -> int:
    return sum(given is not None for given in (weight, bias))


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


@forward.register_fake
def _(
    x: Tensor,
    added: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    gate: Tensor | None,
    kind: str,
    activation: str,
    eps: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape if added is not None else (x.shape[0], 0))


@backward.register_fake
def _(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, gate: Tensor | None,
    dy: Tensor, dtotal: Tensor | None, kind: str, activation: str, eps: float,
    added: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dadded = x.new_empty(x.shape if added != x.dtype else (x.shape[0], 0), dtype=added)
    sums = (
        x.new_empty(0)
        if weight is None
        else x.new_empty(weight.shape[0], _weights(weight, bias), *weight.shape[1:], dtype=torch.float32)
    )
    return x.new_empty(x.shape), dadded, sums, x.new_empty(0) if gate is None else gate.new_empty(gate.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, added, weight, bias, gate, *ctx.options, _ = inputs
    ctx.added = None if added is None else added.dtype
    ctx.save_for_backward(x if added is None else output[1], weight, bias, gate)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dy: Tensor | None, dtotal: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, gate = ctx.saved_tensors
    dy = torch.zeros_like(x) if dy is None else dy
    dx, dadded, both, dgate = backward(
        x, weight, bias, gate, dy, dtotal if ctx.added else None, *ctx.options, ctx.added or x.dtype
    )
    second = None if ctx.added is None else dadded if ctx.added != x.dtype else dx
    dweight, dbias = (
        None if given is None else both[:, i].to(given.dtype) for i, given in enumerate((weight, bias))
    )
    return dx, second, dweight, dbias, None if gate is None else dgate, None, None, None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def l2_norm(x: Tensor, eps: float) -> Tensor:
    """Return x with norms of one; arguments are those of the door."""
    y: Tensor = forward(_rows(x), None, None, None, None, "l2", "none", float(eps), x.dtype)[0]
    return y.view(x.shape)


def rms_norm(
    x: Tensor, weight: Tensor, gate: Tensor | None, activation: str | None, eps: float, dtype: torch.dtype
) -> Tensor:
    """Return the norm; arguments are those of the door."""
    x_rows, gate_rows = (None if given is None else _rows(given) for given in (x, gate))
    y: Tensor = forward(
        x_rows, None, weight[None, None], None, gate_rows, "rms", activation or "none", float(eps), dtype
    )[0]
    return y.view(x.shape)


def add_rms_norm(
    x: Tensor, added: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the sum and its norm; arguments are those of the door."""
    y, total = forward(
        _rows(x), _rows(added), weight[None, None], None, None, "rms", "none", float(eps), dtype
    )
    return total.view(x.shape), y.view(x.shape)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    activation: str | None,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return the norm; arguments are those of the door."""
    x_rows, gate_rows = (None if given is None else given.reshape(-1, *weight.shape) for given in (x, gate))
    own = None if bias is None else bias[None]
    y: Tensor = forward(
        x_rows, None, weight[None], own, gate_rows, "layer", activation or "none", float(eps), dtype
    )[0]
    return y.view(x.shape)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, 1, x.shape[-1])
