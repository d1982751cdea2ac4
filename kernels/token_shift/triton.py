"""Token shift on a GPU: one launch forward, one and a sum backward.

A program has a tile of tokens and channels [ROWS, BD]. Forward the rows are tokens one after the other.
Backward each row goes through STEPS tokens: it keeps of one what the next one needs, so that every number is
read once, and the program stores its part of the gradient of the mix in a place of its own: no atomics, the
same sum every time.
"""

import triton
import triton.language as tl


@triton.jit
def _place(tokens, D, STEPS: tl.constexpr, BD: tl.constexpr):
    """Return this program's sequence, chunk, number of chunks, and channels [1, BD].

    The channels come with their mask.
    """
    program = tl.program_id(0)
    blocks, chunks = tl.cdiv(D, BD), tl.cdiv(tokens, STEPS)
    c = program % blocks * BD + tl.arange(0, BD)[None, :]
    return (program // (blocks * chunks)).to(tl.int64), program // blocks % chunks, chunks, c, c < D


@triton.jit
def _share(mix, offset, n: tl.constexpr, c, place, exists, here, D, OFFSET: tl.constexpr):
    """Return how much of the token before stream n takes [ROWS, BD].

    c is [ROWS, BD], so that it is loaded where it is used.
    """
    share = tl.load(mix + (n * D + c), mask=exists, other=0.0).to(tl.float32)
    if OFFSET:
        share += tl.load(offset + place, mask=here, other=0.0).to(tl.float32)
    return share


@triton.jit
def _mixed(y, mix, offset, n: tl.constexpr, own, back, at, place, c, exists, here, D, OFFSET: tl.constexpr):
    """Write stream n, whose first row lies at `at`, as that of the offset does."""
    if OFFSET:
        offset += at
    o = own + _share(mix, offset, n, c, place, exists, here, D, OFFSET) * back
    tl.store(y + at + place, o.to(y.dtype.element_ty), mask=here)


@triton.jit
def forward(
    x, mix, last, o0, o1, o2, o3, o4, o5, y0, y1, y2, y3, y4, y5, T, D, rows_per_replica,
    N: tl.constexpr, ROWS: tl.constexpr, BD: tl.constexpr, LAST: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Compute the streams. Grid (B * chunks * blocks).

    x, on, yn [B, T, D], mix [replicas, N, D], last [B, D].
    """
    b, chunk, _, c, exists = _place(T, D, ROWS, BD)
    row = tl.arange(0, ROWS)[:, None]
    at, place = (b * T + chunk * ROWS) * D, row * D + c
    c += 0 * row
    t = chunk * ROWS + row
    here = exists & (t < T)
    own = tl.load(x + at + place, mask=here, other=0.0).to(tl.float32)
    earlier = tl.load(x + at + (place - D), mask=here & (t > 0), other=0.0).to(tl.float32)
    if LAST:
        earlier += tl.load(last + b * D + c, mask=exists & (t == 0), other=0.0).to(tl.float32)
    back = earlier - own
    mix += b // rows_per_replica * N * D
    _mixed(y0, mix, o0, 0, own, back, at, place, c, exists, here, D, OFFSET)
    if N > 1:
        _mixed(y1, mix, o1, 1, own, back, at, place, c, exists, here, D, OFFSET)
    if N > 2:
        _mixed(y2, mix, o2, 2, own, back, at, place, c, exists, here, D, OFFSET)
    if N > 3:
        _mixed(y3, mix, o3, 3, own, back, at, place, c, exists, here, D, OFFSET)
    if N > 4:
        _mixed(y4, mix, o4, 4, own, back, at, place, c, exists, here, D, OFFSET)
    if N > 5:
        _mixed(y5, mix, o5, 5, own, back, at, place, c, exists, here, D, OFFSET)


@triton.jit
def _returned(
    kept,
    given,
    dy,
    mix,
    offset,
    doffset,
    n: tl.constexpr,
    back,
    at,
    place,
    c,
    exists,
    here,
    counted,
    D,
    OFFSET: tl.constexpr,
):
    """Add what stream n gives to the gradients of the token, of the one before, and of its share.

    The share's part counts only if the token is `counted`.
    """
    if OFFSET:
        offset += at
    dy = tl.load(dy + at + place, mask=here, other=0.0).to(tl.float32)
    to_earlier, dshare = (
        dy * _share(mix, offset, n, c, place, exists, here, D, OFFSET),
        tl.where(counted, dy * back, 0.0),
    )
    if OFFSET:
        tl.store(doffset + at + place, dshare.to(doffset.dtype.element_ty), mask=counted)
    return kept + (dy - to_earlier), given + to_earlier, dshare


@triton.jit
def _left(dmix, n: tl.constexpr, dshare, c, exists, D):
    tl.store(dmix + n * D + c, tl.sum(dshare, axis=0, keep_dims=True), mask=exists)


@triton.jit
def backward(
    x, mix, last, o0, o1, o2, o3, o4, o5, dy0, dy1, dy2, dy3, dy4, dy5, dx,
    dmix, dlast, do0, do1, do2, do3, do4, do5, T, D, rows_per_replica,
    N: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
    BD: tl.constexpr, LAST: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Compute gradients; dmix [B, chunks, N, D] in float32. Grid as in `forward`.

    Token t completes the gradient of the token before, so that each row goes through the first token of the
    next one, too.
    """
    b, chunk, chunks, channel, exists = _place(T, D, ROWS * STEPS, BD)
    row = tl.arange(0, ROWS)[:, None]
    first, c = chunk * (ROWS * STEPS) + row * STEPS, channel + 0 * row
    at, place = (b * T + chunk * (ROWS * STEPS)) * D, row * STEPS * D + c
    mix += b // rows_per_replica * N * D
    earlier = tl.load(x + at + (place - D), mask=exists & (first > 0) & (first < T), other=0.0).to(tl.float32)
    if LAST:
        earlier += tl.load(last + b * D + c, mask=exists & (first == 0), other=0.0).to(tl.float32)
    zeros = tl.zeros([ROWS, BD], tl.float32)
    before, m0, m1, m2, m3, m4, m5 = zeros, zeros, zeros, zeros, zeros, zeros, zeros
    for i in range(STEPS + 1):
        t = first + i
        here = exists & (t < T)
        counted = here & (i < STEPS)
        own = tl.load(x + at + place, mask=here, other=0.0).to(tl.float32)
        back = earlier - own
        kept, given, m = _returned(
            zeros, zeros, dy0, mix, o0, do0, 0, back, at, place, c, exists, here, counted, D, OFFSET
        )
        m0 += m
        if N > 1:
            kept, given, m = _returned(
                kept, given, dy1, mix, o1, do1, 1, back, at, place, c, exists, here, counted, D, OFFSET
            )
            m1 += m
        if N > 2:
            kept, given, m = _returned(
                kept, given, dy2, mix, o2, do2, 2, back, at, place, c, exists, here, counted, D, OFFSET
            )
            m2 += m
        if N > 3:
            kept, given, m = _returned(
                kept, given, dy3, mix, o3, do3, 3, back, at, place, c, exists, here, counted, D, OFFSET
            )
            m3 += m
        if N > 4:
            kept, given, m = _returned(
                kept, given, dy4, mix, o4, do4, 4, back, at, place, c, exists, here, counted, D, OFFSET
            )
            m4 += m
        if N > 5:
            kept, given, m = _returned(
                kept, given, dy5, mix, o5, do5, 5, back, at, place, c, exists, here, counted, D, OFFSET
            )
            m5 += m
        tl.store(
            dx + at + (place - D),
            (before + given).to(dx.dtype.element_ty),
            mask=exists & (t > first) & (t <= T),
        )
        if LAST:
            tl.store(dlast + b * D + c, given.to(dlast.dtype.element_ty), mask=exists & (t == 0))
        earlier, before = own, kept
        at += D
    dmix += (b * chunks + chunk) * N * D
    _left(dmix, 0, m0, channel, exists, D)
    if N > 1:
        _left(dmix, 1, m1, channel, exists, D)
    if N > 2:
        _left(dmix, 2, m2, channel, exists, D)
    if N > 3:
        _left(dmix, 3, m3, channel, exists, D)
    if N > 4:
        _left(dmix, 4, m4, channel, exists, D)
    if N > 5:
        _left(dmix, 5, m5, channel, exists, D)
