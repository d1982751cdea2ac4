"""The selective scan on a GPU: one launch forward, one backward.

A program has a sequence and some channels with all their states, and goes through the tokens a tile at a
time, forward from the first, backward from the last: inside a tile an associative scan over [tokens, channels
and states], from tile to tile one row. Forward the row that a tile starts from is kept, and no other state
leaves the chip; backward the tile's states are computed from it again. `write` and `read`, which all channels
share, get a gradient from each program, and these are added up.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.scan.triton import then


@triton.jit
def _decayed(step, rate, SIGNED: tl.constexpr):
    """Return exp(step rate), or twice that less one."""
    left = tl.exp(step * rate)
    if SIGNED:
        left = 2.0 * left - 1.0
    return left


@triton.jit
def _place(W, N, BW: tl.constexpr, BN: tl.constexpr):
    """Return this program's sequence, its block, and its channels and states [1, BW BN], side by side.

    These come with their mask.
    """
    program, blocks = tl.program_id(0), tl.cdiv(W, BW)
    c = tl.arange(0, BW * BN)[None, :]
    w, n = program % blocks * BW + c // BN, c % BN
    return (program // blocks).to(tl.int64), program % blocks, w, n, (w < W) & (n < N)


@triton.jit
def _forward(
    u,
    step,
    rate,
    write,
    read,
    state,
    y,
    last,
    starts,
    T,
    W,
    N,
    rows,
    SIGNED: tl.constexpr,
    BT: tl.constexpr,
    BW: tl.constexpr,
    BN: tl.constexpr,
):
    """Compute y, the last state, and starts [B, tiles, W, N], what every tile starts from.

    Grid (B * blocks of channels). u, step, y [B, T, W], rate [G, W, N], each for `rows` sequences, write,
    read [B, T, N], state, last [B, W, N].
    """
    row, block, w, n, mask = _place(W, N, BW, BN)
    i = tl.arange(0, BT)[:, None]
    rates = tl.load(rate + (row // rows * W + w) * N + n, mask=mask, other=0.0)
    one = (row * W + w) * N + n
    carried = tl.load(state + one, mask=mask, other=0.0)
    tiles = tl.cdiv(T, BT)
    own = block * BW + tl.arange(0, BW)[None, :]
    for tile in range(tiles):
        t = tile * BT + i
        here = mask & (t < T)
        tl.store(starts + ((row * tiles + tile) * W + w) * N + n, carried, mask=mask)
        paces = tl.load(step + (row * T + t) * W + w, mask=here, other=0.0)
        written = (
            paces
            * tl.load(u + (row * T + t) * W + w, mask=here, other=0.0)
            * tl.load(write + (row * T + t) * N + n, mask=here, other=0.0)
        )
        left, made = tl.associative_scan((_decayed(paces, rates, SIGNED), written), 0, then)
        h = made + left * carried  # beyond the last token it stays: steps of zero forget nothing
        seen = h * tl.load(read + (row * T + t) * N + n, mask=here, other=0.0)
        tl.store(
            y + (row * T + t) * W + own,
            tl.sum(tl.reshape(seen, [BT, BW, BN]), axis=2),
            mask=(t < T) & (own < W),
        )
        carried = tl.sum(tl.where(i == BT - 1, h, 0.0), axis=0, keep_dims=True)
    tl.store(last + one, carried, mask=mask)


@triton.jit
def _backward(
    u, step, rate, write, read, starts, dy, dlast, du, dstep, drate, dwrite, dread, dstate, T, W, N, rows,
    SIGNED: tl.constexpr, BT: tl.constexpr, BW: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute gradients. Grid as in `_forward`.

    dy, du, dstep [B, T, W], dlast, dstate, drate [B, W, N], dwrite, dread [B, blocks, T, N]. dlast enters at
    the last token; tokens beyond it pass it on as it is.
    """
    row, block, w, n, mask = _place(W, N, BW, BN)
    i = tl.arange(0, BT)[:, None]
    rates = tl.load(rate + (row // rows * W + w) * N + n, mask=mask, other=0.0)
    one = (row * W + w) * N + n
    carried = tl.load(dlast + one, mask=mask, other=0.0)
    drates = tl.zeros([1, BW * BN], tl.float32)
    tiles = tl.cdiv(T, BT)
    own, states = block * BW + tl.arange(0, BW)[None, :], tl.arange(0, BN)[None, :]
    shared = (row * tl.cdiv(W, BW) + block) * T
    for back in range(tiles):
        tile = tiles - 1 - back
        t = tile * BT + i
        here, before, after = mask & (t < T), mask & (i > 0) & (t <= T), mask & (t < T - 1)
        at, wide = (row * T + t) * N + n, (row * T + t) * W + w
        # what each token starts from: the tile's first from what was kept, the others after the one before
        paces = tl.load(step + wide - W, mask=before, other=0.0)
        written = (
            paces
            * tl.load(u + wide - W, mask=before, other=0.0)
            * tl.load(write + at - N, mask=before, other=0.0)
        )
        left, made = tl.associative_scan((_decayed(paces, rates, SIGNED), written), 0, then)
        held = made + left * tl.load(starts + ((row * tiles + tile) * W + w) * N + n, mask=mask, other=0.0)
        # what each token's state is worth: read there, and through the decay of the next
        told = tl.load(dy + wide, mask=here, other=0.0)
        given = told * tl.load(read + at, mask=here, other=0.0)
        next_left = _decayed(tl.load(step + wide + W, mask=after, other=0.0), rates, SIGNED)
        left, made = tl.associative_scan((next_left, given), 0, then, reverse=True)
        worth = made + left * carried
        paces, values = tl.load(step + wide, mask=here, other=0.0), tl.load(u + wide, mask=here, other=0.0)
        writes = tl.load(write + at, mask=here, other=0.0)
        plain = tl.exp(paces * rates)
        kept = 2.0 * plain - 1.0 if SIGNED else plain
        slope = tl.where(here, worth * held * plain, 0.0) * (2.0 if SIGNED else 1.0)
        drates += tl.sum(slope * paces, axis=0, keep_dims=True)
        into = tl.where(here, worth * writes, 0.0)
        mine = (t < T) & (own < W)
        place = (row * T + t) * W + own
        drive = tl.sum(tl.reshape(into, [BT, BW, BN]), axis=2)  # of step u
        pull = tl.sum(tl.reshape(slope * rates, [BT, BW, BN]), axis=2)
        tl.store(du + place, drive * tl.load(step + place, mask=mine, other=0.0), mask=mine)
        tl.store(dstep + place, pull + drive * tl.load(u + place, mask=mine, other=0.0), mask=mine)
        ours = (t < T) & (states < N)
        h = kept * held + paces * values * writes
        tl.store(
            dwrite + (shared + t) * N + states,
            tl.sum(tl.reshape(tl.where(here, worth * paces * values, 0.0), [BT, BW, BN]), axis=1),
            mask=ours,
        )
        tl.store(
            dread + (shared + t) * N + states,
            tl.sum(tl.reshape(tl.where(here, told * h, 0.0), [BT, BW, BN]), axis=1),
            mask=ours,
        )
        # through the first token's decay, for the tile before it
        carried = tl.sum(tl.where(i == 0, worth, 0.0), axis=0, keep_dims=True)
    tl.store(drate + one, drates, mask=mask)
    first = tl.load(step + row * T * W + w, mask=mask, other=0.0)
    tl.store(dstate + one, carried * _decayed(first, rates, SIGNED), mask=mask)


def launch(batch: int, length: int, channels: int, states: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the parameters of a launch: tiles of up to 16 channels and 4096 numbers, eight warps."""
    width, wide, steps = (1 << (n - 1).bit_length() for n in (channels, states, length))
    width = min(16, width)
    return (batch * -(-channels // width),), {
        "BT": max(2, min(16, steps, 4096 // (width * wide))),
        "BW": width,
        "BN": wide,
        "num_warps": 8,
    }


@operator("selective_scan")
def forward(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y [B, T, W], the last state, and what every tile starts from.

    Takes u, step [B, T, W], rate [G, W, N], write, read [B, T, N] and state [B, W, N] in float32.
    """
    u, step, rate, write, read, state = (x.contiguous() for x in (u, step, rate, write, read, state))
    (batch, length, width), states = u.shape, rate.shape[2]
    grid, shape = launch(batch, length, width, states)
    y, last, starts = (
        torch.empty_like(u),
        torch.empty_like(state),
        state.new_empty(batch, -(-length // shape["BT"]), width, states),
    )
    _forward[grid](
        u, step, rate, write, read, state, y, last, starts, length,
        width, states, batch // len(rate), SIGNED=signed, **shape,
    )  # fmt: skip
    return y, last, starts


@operator("selective_scan_backward", differentiable=False)
def backward(
    u: Tensor,
    step: Tensor,
    rate: Tensor,
    write: Tensor,
    read: Tensor,
    starts: Tensor,
    dy: Tensor,
    dlast: Tensor,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of u, step, rate, write, read and state."""
    u, step, rate, write, read, starts, dy, dlast = (
        x.contiguous() for x in (u, step, rate, write, read, starts, dy, dlast)
    )
    (batch, length, width), states = u.shape, rate.shape[2]
    grid, shape = launch(batch, length, width, states)
    du, dstep, dstate, drate = (
        torch.empty_like(u),
        torch.empty_like(u),
        torch.empty_like(dlast),
        torch.empty_like(dlast),
    )
    dwrite = write.new_empty(batch, grid[0] // batch, length, states)
    dread = torch.empty_like(dwrite)
    _backward[grid](
        u, step, rate, write, read, starts, dy, dlast, du, dstep, drate,
        dwrite, dread, dstate, length, width, states, batch // len(rate),
        SIGNED=signed, **shape,
    )  # fmt: skip
    return (
        du,
        dstep,
        reduce_partials(drate.unflatten(0, (len(rate), -1))),
        reduce_partials(dwrite),
        reduce_partials(dread),
        dstate,
    )


@forward.register_fake
def _(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    (batch, length, width), states = u.shape, rate.shape[2]
    tiles = -(-length // launch(batch, length, width, states)[1]["BT"])
    return u.new_empty(u.shape), state.new_empty(state.shape), state.new_empty(batch, tiles, width, states)


@backward.register_fake
def _(
    u: Tensor,
    step: Tensor,
    rate: Tensor,
    write: Tensor,
    read: Tensor,
    starts: Tensor,
    dy: Tensor,
    dlast: Tensor,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    du, dstep, drate, dwrite, dread, dstate = (
        x.new_empty(x.shape) for x in (u, step, rate, write, read, dlast)
    )
    return du, dstep, drate, dwrite, dread, dstate


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *given, _, ctx.signed = inputs
    ctx.save_for_backward(*given, output[2])


def _differentiate(ctx: Any, dy: Tensor, dlast: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *backward(*ctx.saved_tensors, dy, dlast, ctx.signed), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_selective_scan(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """Return y and the state; arguments are those of `reference`."""
    y, last, _ = forward(u, step, rate[None], write, read, state, signed)
    return y, last
