"""The short convolution on a GPU: with SiLU and norm in one launch, their gradients in one more and a sum.

A program has a tile of channels in groups of D, the head dimension if a norm is asked for, otherwise any
width: [G, D] with D padded to BD, a power of two. Forward it has BT steps at once; backward it goes through
them, each input and gradient read once, and stores its part of the gradient of the weight in a place of its
own: no atomics, the same sum every time.
"""

import triton
import triton.language as tl


@triton.jit
def _place(T, C, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr):
    """Return this program's sequence, chunk, number of chunks, groups [G, 1] and channels [G, BD].

    The channels come with their mask.
    """
    program = tl.program_id(0)
    blocks, chunks = tl.cdiv(C, G * D), tl.cdiv(T, BT)
    group, d = program % blocks * G + tl.arange(0, G)[:, None], tl.arange(0, BD)[None, :]
    c = group * D + d
    return (
        (program // (blocks * chunks)).to(tl.int64),
        program // blocks % chunks,
        chunks,
        group,
        c,
        (d < D) & (c < C),
    )


@triton.jit
def _part(y0, y1, y2, c, C0, C1, C2):
    """Return which of three tensors holds the channels c [G, BD] of this program, where in it, and its width.

    A tile lies in one of them.
    """
    first = tl.min(c)
    y = tl.where(first >= C0 + C1, y2, tl.where(first >= C0, y1, y0))
    before = tl.where(first >= C0 + C1, C0 + C1, tl.where(first >= C0, C0, 0))
    return y, c - before, tl.where(first >= C0 + C1, C2, tl.where(first >= C0, C1, C0))


@triton.jit
def _inputs(x, state, step, c, mask, T, C, W: tl.constexpr, STATE: tl.constexpr):
    """Load inputs of a sequence at `step` >= 1 - W in float32.

    Before the first come those of its state, if there is one, otherwise zeros.
    """
    given = tl.load(x + (step * C + c), mask=mask & (step >= 0) & (step < T), other=0.0).to(tl.float32)
    if STATE:
        given += tl.load(state + ((W - 1 + step) * C + c), mask=mask & (step < 0), other=0.0).to(tl.float32)
    return given


@triton.jit
def _step(x, dy, step, c, own, mask, T, C, width):
    """Load the input of a sequence and the gradient of its output at one step."""
    mask &= step < T
    return tl.load(x + (step * C + c), mask=mask, other=0.0), tl.load(
        dy + (step * width + own), mask=mask, other=0.0
    )


@triton.jit
def _sigmoid(z):
    """Return the sigmoid as a square: a quotient takes five instructions more."""
    root = tl.rsqrt(1.0 + tl.exp(-z))
    return root * root


@triton.jit
def _tap(weight, lag: tl.constexpr, c, mask, C, W: tl.constexpr):
    """Load the weight of a replica that meets the input `lag` steps back, or its bias for lag -1."""
    return tl.load(weight + ((W - 1 - lag) * C + c), mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _at(x, row, C):
    """Return where row `row`, in 64 bits, begins: what is added to it fits into 32."""
    return x + row * C


@triton.jit
def forward(
    x, weight, state, y0, y1, y2, last, T, C, C0, C1, C2, rows_per_replica, normed, eps,
    W: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr,
    BIAS: tl.constexpr, STATE: tl.constexpr, SILU: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Compute y and last. Grid (B * chunks * blocks).

    x [B, T, C], yi [B, T, Ci], weight [replicas, W + BIAS, C], state, last [B, W-1, C]; `normed`: groups with
    a norm.
    """
    b, chunk, chunks, group, c, mask = _place(T, C, D, BD, G, BT)
    steps = chunk * BT + tl.arange(0, BT)[:, None, None]
    x, weight = _at(x, b * T, C), _at(weight, b // rows_per_replica * (W + BIAS), C)
    if STATE:
        state = _at(state, b * (W - 1), C)
    z = tl.zeros([BT, G, BD], tl.float32)
    if BIAS:
        z += _tap(weight, -1, c, mask, C, W)[None]
    for lag in tl.static_range(W):
        z += _tap(weight, lag, c, mask, C, W)[None] * _inputs(
            x, state, steps - lag, c[None], mask[None], T, C, W, STATE
        )
    s = z
    if SILU:
        s *= _sigmoid(z)
    if NORM:
        s *= tl.where(group[None] < normed, tl.rsqrt(tl.sum(s * s, axis=2, keep_dims=True) + eps), 1.0)
    y, own, width = _part(y0, y1, y2, c, C0, C1, C2)
    tl.store(
        _at(y, b * T, width) + (steps * width + own[None]),
        s.to(y0.dtype.element_ty),
        mask=mask[None] & (steps < T),
    )
    if chunk == chunks - 1:
        for i in tl.static_range(W - 1):
            kept = _inputs(x, state, T - (W - 1) + i, c, mask, T, C, W, STATE)
            tl.store(_at(last, b * (W - 1), C) + (i * C + c), kept.to(last.dtype.element_ty), mask=mask)


@triton.jit
def backward(
    x, weight, state, dy0, dy1, dy2, dlast, dx, dweight,
    dstate, T, C, C0, C1, C2, rows_per_replica, normed, eps,
    W: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, G: tl.constexpr, BT: tl.constexpr,
    BIAS: tl.constexpr, STATE: tl.constexpr, LAST: tl.constexpr, SILU: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Compute gradients; dweight [B, chunks, W + BIAS, C] in float32. Grid as in `forward`.

    LAST: the last inputs have a gradient dlast of their own. Step t has dz_t, the gradient of the
    convolution's output; with those of the W - 1 steps before it the gradient of the input W - 1 steps back
    is complete: dx_u = sum over lags of tap(lag) dz_{u+lag}. So W - 1 steps of the next chunk are gone
    through, too.
    """
    b, chunk, chunks, group, c, mask = _place(T, C, D, BD, G, BT)
    first = chunk * BT
    x, dx, weight = _at(x, b * T, C), _at(dx, b * T, C), _at(weight, b // rows_per_replica * (W + BIAS), C)
    if STATE:
        state, dstate = _at(state, b * (W - 1), C), _at(dstate, b * (W - 1), C)
    if LAST:
        dlast = _at(dlast, b * (W - 1), C)
    zeros = tl.zeros([G, BD], tl.float32)
    # at a step: taps and inputs by lag, what the gradients of the inputs lag steps back have so far, and what
    # the weight's has by lag
    w0, w1, w2, w3 = _tap(weight, 0, c, mask, C, W), zeros, zeros, zeros
    x1, x2, x3, dx1, dx2, dx3 = zeros, zeros, zeros, zeros, zeros, zeros
    dw0, dw1, dw2, dw3, dbias, bias = zeros, zeros, zeros, zeros, zeros, zeros
    if BIAS:
        bias = _tap(weight, -1, c, mask, C, W)
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
        if BIAS:
            z += bias
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
        if BIAS:
            dbias += here
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
            dx0 += tl.load(dlast + (place * C + c), mask=mask & (place >= 0) & (u < T), other=0.0).to(
                tl.float32
            )
        tl.store(dx + (u * C + c), dx0.to(dx.dtype.element_ty), mask=mask & (u >= first) & (u < T))
        if STATE:
            tl.store(dstate + ((W - 1 + u) * C + c), dx0.to(dstate.dtype.element_ty), mask=mask & (u < 0))
        x1, x2, x3 = x0, x1, x2
    place = (b * chunks + chunk) * (W + BIAS)
    tl.store(dweight + (place + W - 1) * C + c, dw0, mask=mask)
    if W > 1:
        tl.store(dweight + (place + W - 2) * C + c, dw1, mask=mask)
    if W > 2:
        tl.store(dweight + (place + W - 3) * C + c, dw2, mask=mask)
    if W > 3:
        tl.store(dweight + place * C + c, dw3, mask=mask)
    if BIAS:
        tl.store(dweight + (place + W) * C + c, dbias, mask=mask)
