"""The same on a GPU: convolution, SiLU and norm in one launch, their gradients in one more and a sum.

A program has a tile of channels in groups of D, the head dimension where a norm is asked for, otherwise any width: [G, D] with D padded
to BD, a power of two. Forward it has BT steps at once; backward it walks them, each input and gradient read once, and leaves what its
steps add to the gradient of the weight in a place of its own: no atomics, the same sum every time.
"""

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, summed
from linbench.kernels.short_convolution import PARTS


@triton.jit
def _place(T, C, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr):
    """Of this program: sequence, chunk and how many there are, groups [G, 1], channels [G, BD] and which of them exist."""
    program = tl.program_id(0)
    blocks, chunks = tl.cdiv(C, G * D), tl.cdiv(T, BT)
    group, d = program % blocks * G + tl.arange(0, G)[:, None], tl.arange(0, BD)[None, :]
    c = group * D + d
    return (program // (blocks * chunks)).to(tl.int64), program // blocks % chunks, chunks, group, c, (d < D) & (c < C)


@triton.jit
def _part(y0, y1, y2, c, C0, C1, C2):
    """Which of three tensors holds the channels c [G, BD] of this program: where it does, and how many it has. A tile lies in one of them."""
    first = tl.min(c)
    y = tl.where(first >= C0 + C1, y2, tl.where(first >= C0, y1, y0))
    before = tl.where(first >= C0 + C1, C0 + C1, tl.where(first >= C0, C0, 0))
    return y, c - before, tl.where(first >= C0 + C1, C2, tl.where(first >= C0, C1, C0))


@triton.jit
def _inputs(x, state, step, c, mask, T, C, W: tl.constexpr, STATE: tl.constexpr):
    """Inputs of a sequence at `step` >= 1 - W in float32: before the first come those of its state, if there is one, otherwise zeros."""
    given = tl.load(x + (step * C + c), mask=mask & (step >= 0) & (step < T), other=0.0).to(tl.float32)
    if STATE:
        given += tl.load(state + ((W - 1 + step) * C + c), mask=mask & (step < 0), other=0.0).to(tl.float32)
    return given


@triton.jit
def _step(x, dy, step, c, own, mask, T, C, width):
    """Input and gradient of the output of a sequence at one step."""
    mask &= step < T
    return tl.load(x + (step * C + c), mask=mask, other=0.0), tl.load(dy + (step * width + own), mask=mask, other=0.0)


@triton.jit
def _sigmoid(z):
    """As a square: a quotient takes five instructions more."""
    root = tl.rsqrt(1.0 + tl.exp(-z))
    return root * root


@triton.jit
def _tap(weight, lag: tl.constexpr, c, mask, C, W: tl.constexpr):
    """The weight of a replica that meets the input `lag` steps back."""
    return tl.load(weight + ((W - 1 - lag) * C + c), mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _at(x, row, C):
    """Where row `row`, in 64 bits, begins: what is added to it fits into 32."""
    return x + row * C


@triton.jit
def _forward(
    x, weight, state, y0, y1, y2, last, T, C, C0, C1, C2, rows_per_replica, normed, eps,
    W: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr,
    STATE: tl.constexpr, SILU: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Grid (B * chunks * blocks). x [B, T, C], yi [B, T, Ci], weight [replicas, W, C], state, last [B, W-1, C]; `normed`: groups with a norm."""
    b, chunk, chunks, group, c, mask = _place(T, C, D, BD, G, BT)
    steps = chunk * BT + tl.arange(0, BT)[:, None, None]
    x, weight = _at(x, b * T, C), _at(weight, b // rows_per_replica * W, C)
    if STATE:
        state = _at(state, b * (W - 1), C)
    z = tl.zeros([BT, G, BD], tl.float32)
    for lag in tl.static_range(W):
        z += _tap(weight, lag, c, mask, C, W)[None] * _inputs(x, state, steps - lag, c[None], mask[None], T, C, W, STATE)
    s = z
    if SILU:
        s *= _sigmoid(z)
    if NORM:
        s *= tl.where(group[None] < normed, tl.rsqrt(tl.sum(s * s, axis=2, keep_dims=True) + eps), 1.0)
    y, own, width = _part(y0, y1, y2, c, C0, C1, C2)
    tl.store(_at(y, b * T, width) + (steps * width + own[None]), s.to(y0.dtype.element_ty), mask=mask[None] & (steps < T))
    if chunk == chunks - 1:
        for i in tl.static_range(W - 1):
            kept = _inputs(x, state, T - (W - 1) + i, c, mask, T, C, W, STATE)
            tl.store(_at(last, b * (W - 1), C) + (i * C + c), kept.to(last.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    x, weight, state, dy0, dy1, dy2, dlast, dx, dweight, dstate, T, C, C0, C1, C2, rows_per_replica, normed, eps,
    W: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr,
    STATE: tl.constexpr, LAST: tl.constexpr, SILU: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Grid as in `_forward`; dweight [B, chunks, W, C] in float32. LAST: the last inputs have a gradient, dlast, of their own.

    Step t has dz_t, the gradient of the convolution's output; with those of the W - 1 steps before it the gradient of the input
    W - 1 steps back is complete: dx_u = sum over lags of tap(lag) dz_{u+lag}. So W - 1 steps of the next chunk are walked too.
    """
    b, chunk, chunks, group, c, mask = _place(T, C, D, BD, G, BT)
    first = chunk * BT
    x, dx, weight = _at(x, b * T, C), _at(dx, b * T, C), _at(weight, b // rows_per_replica * W, C)
    if STATE:
        state, dstate = _at(state, b * (W - 1), C), _at(dstate, b * (W - 1), C)
    if LAST:
        dlast = _at(dlast, b * (W - 1), C)
    zeros = tl.zeros([G, BD], tl.float32)
    # at a step: taps and inputs by lag, what the gradients of the inputs lag steps back have so far, and what the weight's has by lag
    w0, w1, w2, w3 = _tap(weight, 0, c, mask, C, W), zeros, zeros, zeros
    x1, x2, x3, dx1, dx2, dx3 = zeros, zeros, zeros, zeros, zeros, zeros
    dw0, dw1, dw2, dw3 = zeros, zeros, zeros, zeros
    if W > 1:
        w1 = _tap(weight, 1, c, mask, C, W)
        x1 = _inputs(x, state, first - 1, c, mask, T, C, W, STATE)
    if W > 2:
        w2 = _tap(weight, 2, c, mask, C, W)
        x2 = _inputs(x, state, first - 2, c, mask, T, C, W, STATE)
    if W > 3:
        w3 = _tap(weight, 3, c, mask, C, W)
        x3 = _inputs(x, state, first - 3, c, mask, T, C, W, STATE)
    dy, own, width = _part(dy0, dy1, dy2, c, C0, C1, C2)
    # asked for four steps ahead, so that they come while others are worked on
    dy = _at(dy, b * T, width)
    xa, ya = _step(x, dy, first, c, own, mask, T, C, width)
    xb, yb = _step(x, dy, first + 1, c, own, mask, T, C, width)
    xc, yc = _step(x, dy, first + 2, c, own, mask, T, C, width)
    xd, yd = _step(x, dy, first + 3, c, own, mask, T, C, width)
    for i in range(BT + W - 1):
        t = first + i
        x0, ds = xa.to(tl.float32), ya.to(tl.float32)
        xa, ya, xb, yb, xc, yc = xb, yb, xc, yc, xd, yd
        xd, yd = _step(x, dy, t + 4, c, own, mask, T, C, width)
        z = w0 * x0
        if W > 1:
            z += w1 * x1
        if W > 2:
            z += w2 * x2
        if W > 3:
            z += w3 * x3
        s = z
        if SILU:
            gate = _sigmoid(z)
            s = z * gate
        if NORM:
            r = tl.rsqrt(tl.sum(s * s, axis=1, keep_dims=True) + eps)
            ds = tl.where(group < normed, r * (ds - s * (r * r * tl.sum(s * ds, axis=1, keep_dims=True))), ds)
        dz = ds
        if SILU:
            dz = ds * gate * (1 + z * (1 - gate))
        here = tl.where(t < first + BT, dz, 0.0)
        dw0 += here * x0
        # sums, not a history of dz: Triton 3.6 was seen to compile the shifting of three equal tiles wrongly
        if W == 1:
            dx0 = w0 * dz
        if W == 2:
            dx0 = dx1 + w1 * dz
        if W == 3:
            dx0 = dx2 + w2 * dz
        if W == 4:
            dx0 = dx3 + w3 * dz
        dx3 = dx2 + w2 * dz
        dx2 = dx1 + w1 * dz
        dx1 = w0 * dz
        if W > 1:
            dw1 += here * x1
        if W > 2:
            dw2 += here * x2
        if W > 3:
            dw3 += here * x3
        u = t - (W - 1)
        if LAST:
            place = u - T + W - 1
            dx0 += tl.load(dlast + (place * C + c), mask=mask & (place >= 0) & (u < T), other=0.0).to(tl.float32)
        tl.store(dx + (u * C + c), dx0.to(dx.dtype.element_ty), mask=mask & (u >= first) & (u < T))
        if STATE:
            tl.store(dstate + ((W - 1 + u) * C + c), dx0.to(dstate.dtype.element_ty), mask=mask & (u < 0))
        x1, x2, x3 = x0, x1, x2
    place = (b * chunks + chunk) * W
    tl.store(dweight + (place + W - 1) * C + c, dw0, mask=mask)
    if W > 1:
        tl.store(dweight + (place + W - 2) * C + c, dw1, mask=mask)
    if W > 2:
        tl.store(dweight + (place + W - 3) * C + c, dw2, mask=mask)
    if W > 3:
        tl.store(dweight + place * C + c, dw3, mask=mask)


class Launch(NamedTuple):
    """Tile of a program: `groups` groups of channels, of head_dim padded to `padded`, over `steps` steps."""

    head_dim: int
    padded: int
    groups: int
    steps: int
    warps: int

    def programs(self, batch: int, length: int, channels: int) -> int:
        """How many of them cover [B, T, C]."""
        return batch * -(-length // self.steps) * -(-channels // (self.groups * self.head_dim))


def forward_launch(length: int, parts: Sequence[int], head_dim: int | None) -> Launch:
    """Tiles of 2048 numbers, their rows 64 channels wide, 128 where there are many."""
    head_dim, padded, groups = _tile(parts, head_dim)
    steps = max(1, min(_power_of_two(length), 2048 // (groups * padded)))
    return Launch(head_dim, padded, groups, steps, max(1, min(4, steps * groups * padded // 256)))


def backward_launch(batch: int, length: int, parts: Sequence[int], head_dim: int | None) -> Launch:
    """Rows as forward, four numbers a thread. At most 64 steps: half or a quarter as many where programs would not fill a GPU."""
    head_dim, padded, groups = _tile(parts, head_dim)
    warps = max(1, min(8, groups * padded // 128))
    launch = Launch(head_dim, padded, groups, min(64, _power_of_two(length)), warps)
    while launch.steps > 16 and launch.programs(batch, length, sum(parts)) < 2048:
        launch = launch._replace(steps=launch.steps // 2)
    return launch


def splits(parts: Sequence[int], head_dim: int | None) -> bool:
    """Whether every part can be a tensor of its own: it holds whole tiles, of rows that are worth a program."""
    head_dim, _, groups = _tile(parts, head_dim)
    width = groups * head_dim
    return len(parts) == 1 or (width >= _NARROWEST and not any(part % width for part in parts))


_NARROWEST = 16


def _tile(parts: Sequence[int], head_dim: int | None) -> tuple[int, int, int]:
    """Channels of a group, padded, and groups of a tile, which lies within one part if that can be."""
    channels = sum(parts)
    width = 128 if channels >= 512 else 64
    common = gcd(*parts) if len(parts) > 1 else _power_of_two(channels)
    if head_dim is None:
        head_dim = min(width, common & -common)
    padded = _power_of_two(head_dim)
    most = max(1, min(width // padded, _power_of_two(-(-channels // head_dim))))
    whole = common // head_dim
    return head_dim, padded, min(most, whole & -whole) if len(parts) > 1 and whole else most


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _switches(launch: Launch, width: int, silu: bool, normed: int, state: Tensor | None) -> dict[str, Any]:
    return {
        "W": width,
        "D": launch.head_dim,
        "BD": launch.padded,
        "G": launch.groups,
        "BT": launch.steps,
        "STATE": state is not None,
        "SILU": silu,
        "NORM": normed > 0,
        "num_warps": launch.warps,
    }


def _three(x: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """These, and for those that are not there something that is empty."""
    first, second, third = (*given, *[x.new_empty(len(x), 0) for _ in range(PARTS - len(given))])
    return first, second, third


@operator("short_convolution")
def forward(
    x: Tensor, weight: Tensor, state: Tensor | None, silu: bool, normed: int, head_dim: int, parts: list[int], eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [B, T, C], weight [replicas, W, C], state [B, W-1, C]; the first `normed` heads of `head_dim` channels get a norm. Parts and last inputs."""
    x, weight, state = x.contiguous(), weight.contiguous(), None if state is None else state.contiguous()
    (batch, length, channels), (replicas, width, _) = x.shape, weight.shape
    launch = forward_launch(length, parts, head_dim if normed else None)
    y, last = _three(x, [x.new_empty(batch, length, part) for part in parts]), x.new_empty(batch, width - 1, channels)
    _forward[(launch.programs(batch, length, channels),)](
        x, weight, state, *y, last, length, channels, *_widths(parts), batch // replicas, normed, eps, **_switches(launch, width, silu, normed, state)
    )
    return *y, last


@operator("short_convolution_backward", differentiable=False)
def backward(
    x: Tensor, weight: Tensor, state: Tensor | None, dy0: Tensor, dy1: Tensor, dy2: Tensor, dlast: Tensor | None,
    silu: bool, normed: int, head_dim: int, parts: list[int], eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x, weight and state; the last is empty where there is no state."""
    x, weight, dy = x.contiguous(), weight.contiguous(), [given.contiguous() for given in (dy0, dy1, dy2)]
    state, dlast = (None if given is None else given.contiguous() for given in (state, dlast))
    (batch, length, channels), (replicas, width, _) = x.shape, weight.shape
    launch = backward_launch(batch, length, parts, head_dim if normed else None)
    dx, dstate = torch.empty_like(x), x.new_empty(batch, width - 1 if state is not None else 0, channels)
    partial = x.new_empty(batch, -(-length // launch.steps), width, channels, dtype=torch.float32)
    _backward[(launch.programs(batch, length, channels),)](
        x, weight, state, *dy, dlast, dx, partial, dstate, length, channels, *_widths(parts), batch // replicas, normed, eps,
        **_switches(launch, width, silu, normed, state), LAST=dlast is not None,
    )  # fmt: skip
    return dx, summed(partial.view(replicas, -1, width, channels)).to(weight.dtype), dstate


def _widths(parts: Sequence[int]) -> list[int]:
    return [*parts, *[0] * (PARTS - len(parts))]


@forward.register_fake
def _(
    x: Tensor, weight: Tensor, state: Tensor | None, silu: bool, normed: int, head_dim: int, parts: list[int], eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = _three(x, [x.new_empty(*x.shape[:2], part) for part in parts])
    return *y, x.new_empty(x.shape[0], weight.shape[1] - 1, x.shape[2])


@backward.register_fake
def _(
    x: Tensor, weight: Tensor, state: Tensor | None, dy0: Tensor, dy1: Tensor, dy2: Tensor, dlast: Tensor | None,
    silu: bool, normed: int, head_dim: int, parts: list[int], eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape), weight.new_empty(weight.shape), x.new_empty(x.shape[0], 0 if state is None else state.shape[1], x.shape[2])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, state, *ctx.options = inputs
    ctx.save_for_backward(x, weight, state)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, state = ctx.saved_tensors
    *dy, dlast = gradients
    parts = ctx.options[-2]
    given = [x.new_zeros(*x.shape[:2], part) if one is None else one for one, part in zip(dy, parts, strict=False)]
    dx, dweight, dstate = backward(x, weight, state, *_three(x, given), dlast, *ctx.options)
    return dx, dweight, None if state is None else dstate, *[None] * 5


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def short_convolution(
    x: Tensor, weight: Tensor, state: Tensor | None, activation: str | None, l2_heads: tuple[int, int] | None, parts: tuple[int, ...], eps: float
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Arguments and results as at the door."""
    channels, head_dim = l2_heads or (0, 1)
    normed = channels // head_dim
    apart = splits(parts, head_dim if normed else None)
    *y, last = forward(x, weight[None], state, activation == "silu", normed, head_dim, parts if apart else (x.shape[2],), float(eps))
    return tuple(y[: len(parts)]) if apart else torch.split(y[0], list(parts), dim=-1), last
