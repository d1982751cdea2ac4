"""The recurrence as it is defined, token by token in one launch.

It is for decoding, with few tokens and no gradient.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.bonus import load_bonus
from linbench.kernels.matrix_state.triton.chunk import place, place_in_grid, place_of_decays
from linbench.kernels.matrix_state.triton.decay import decay_to_base_2
from linbench.kernels.matrix_state.triton.tiles import load_rows, store_rows


@triton.jit
def row(base, stride, t, places, width):
    """Load row t of a row-major matrix, in float32."""
    return tl.load(base + t * stride + places, mask=places < width, other=0.0).to(tl.float32)


@triton.jit
def recurrent(
    q, k, v, g, beta, p, b, u, first, o, last, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, ERASE: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, STEPS: tl.constexpr, STATE: tl.constexpr,
):  # fmt: skip
    """Compute o and the final state. Grid (V / BV of every B H), BK all of K."""
    block, bh = place_in_grid(tl.cdiv(V, BV))
    vs = block * BV + tl.arange(0, BV)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    ks = tl.arange(0, BK)
    erase = p if ERASE else k
    state = tl.zeros([BK, BV], tl.float32)
    if STATE:
        state += load_rows(first + bh * K * V, ks, K, V, vs, V)
    for t in range(0, T):
        before = state
        if t % STEPS == 0:
            if DECAY == "vector":
                g_t = tl.load(g + decays + t // STEPS * g_stride + ks, mask=ks < K, other=0.0)
                state *= tl.exp2(decay_to_base_2(g_t))[:, None]
            elif DECAY == "scalar":
                state *= tl.exp2(decay_to_base_2(tl.load(g + decays + t // STEPS * g_stride)))
        k_t, write = row(k + keys, HK * K, t, ks, K), row(v + gates * V, H * V, t, vs, V)
        if UPDATE != "add":
            recalled = tl.sum(
                (before if P_BEFORE else state) * row(erase + keys, HK * K, t, ks, K)[:, None], axis=0
            )
            if UPDATE == "delta":
                write = tl.load(beta + gates + t * H).to(tl.float32) * (write - recalled)
            else:
                state += row(b + keys, HK * K, t, ks, K)[:, None] * recalled[None, :]
        state += k_t[:, None] * write[None, :]
        if t % STEPS == (0 if Q_BEFORE else STEPS - 1):
            q_t = row(q + queries, HK * K, t // STEPS, ks, K)
            o_t = scale * tl.sum((before if Q_BEFORE else state) * q_t[:, None], axis=0)
            if u is not None:
                o_t += (
                    scale
                    * tl.sum(q_t * k_t * tl.sum(load_bonus(u, bh, group, H, ks, K), axis=0), axis=0)
                    * write
                )
            tl.store(o + outputs * V + t // STEPS * H * V + vs, o_t.to(o.dtype.element_ty), mask=vs < V)
    if last is not None:
        store_rows(last + bh * K * V, ks, K, V, vs, V, state)
