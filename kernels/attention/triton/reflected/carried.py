"""Keys of a span of blocks as its last token sees them, and the transition of the whole span, on a GPU.

With H_n = I - P_n of block n, and F_n the transpose of the product of those after it, H_last ... H_{n+1},

    keys at the span's end  E_n = K_n F_n        F_{n-1} = F_n - P_n^T F_n        I - P_span = F_{first-1}^T

Later queries meet E_n, and go by P_span from one span to the next.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows


@triton.jit(do_not_specialize=["N", "S", "G"])
def carry(
    keys, P, ends, after, P_span, N, S, G,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute ends [B H, N, C, K], after (F) [B H, N, K, K] and P_span [B H, G, K, K].

    Grid (the first G spans of every B H, all of S blocks).
    """
    span, bh = place_in_grid(G)
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    one = tl.where(ks[:, None] == ks[None, :], 1.0, 0.0)
    F = one
    for back in range(S):
        block = bh * N + span * S + S - 1 - back
        store_rows(after + block * K * K, ks, K, K, ks, K, F)
        k_n = load_rows(keys + block * C * K, i, C, K, ks, K)
        store_rows(ends + block * C * K, i, C, K, ks, K, dot(k_n, F, DT))
        F -= dot(load_transposed(P + block * K * K, ks, K, K, ks, K), F, DT)
    place = P_span + (bh * G + span) * K * K + ks[None, :] * K + ks[:, None]
    inside = (ks[:, None] < K) & (ks[None, :] < K)
    tl.store(place, (one - F).to(DT), mask=inside)


@triton.jit(do_not_specialize=["N", "S", "G"])
def carry_backward(
    keys, P, after, dends, dP_span, dkeys, dP, N, S, G,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Add to dkeys [B H, N, C, K] and dP [B H, N, K, K] what dends and dP_span give. Grid as `carry`."""
    span, bh = place_in_grid(G)
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    # of the transpose of F
    dF = -load_rows(dP_span + (bh * G + span) * K * K, ks, K, K, ks, K).to(tl.float32)
    for n in range(S):
        block = bh * N + span * S + n
        rows, square = block * C * K, block * K * K
        dP_n = load_rows(dP + square, ks, K, K, ks, K).to(tl.float32)
        dP_n -= dot(load_rows(after + square, ks, K, K, ks, K), dF, DT)
        store_rows(dP + square, ks, K, K, ks, K, dP_n)
        dF -= dot(dF, load_transposed(P + square, ks, K, K, ks, K), DT)
        dF = dot(
            load_transposed(dends + rows, i, C, K, ks, K), load_rows(keys + rows, i, C, K, ks, K), DT, dF
        )
        dk_n = load_rows(dkeys + rows, i, C, K, ks, K)
        dk_n = dot(
            load_rows(dends + rows, i, C, K, ks, K),
            load_transposed(after + square, ks, K, K, ks, K),
            DT,
            dk_n,
        )
        store_rows(dkeys + rows, i, C, K, ks, K, dk_n)
