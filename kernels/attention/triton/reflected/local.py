"""Blocks of reflections by themselves on a GPU; `reflected_blocks` has the equations.

With L = stril(W W^T), X = stril(W K^T), R = tril(Q W^T), M = (I + D L)^-1, T = M D, Y = T X and U = T W,

    own = tril(Q K^T) - R Y    queries = Q - R U    keys = K - Y^T W    P = W^T U

What is needed transposed as a left factor is stored and loaded again (`tiles` says why).
"""

import triton
import triton.language as tl

from linbench.kernels.attention.triton.gated import place_of_block
from linbench.kernels.matrix_state.triton.scores import unit_triangular_inverse
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    load_rows,
    load_square,
    load_square_transposed,
    load_transposed,
    store_rows,
    store_square,
    wide_dot,
)


@triton.jit(do_not_specialize=["T"])
def prepare(
    q, k, w, beta, own, queries, keys, P, M, Y, U, T, scale,
    SQ: tl.constexpr, SK: tl.constexpr, SW: tl.constexpr, H: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, LEVELS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Work out every block by itself. Grid (T / C of every B H).

    q, k, w [B, T, H, K], with tokens SQ, SK and SW apart; beta [B, T, H]. Made: own, M and Y [B H, N, C, C],
    queries, keys and U [B H, N, C, K], P [B H, N, K, K]. `own` and `queries` are times scale.
    """
    first, sequence, head, bh = place_of_block(T, H, C, False)
    block = bh * tl.cdiv(T, C) + first // C
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    here, end = sequence + first, T - first
    q_at, k_at, w_at = q + here * SQ + head * K, k + here * SK + head * K, w + here * SW + head * K
    w_m = load_rows(w_at, i, end, SW, ks, K).to(DT)
    across_w = load_transposed(w_at, i, end, SW, ks, K).to(DT)
    across_k = load_transposed(k_at, i, end, SK, ks, K).to(DT)
    beta_m = tl.load(beta + (here + i) * H + head, mask=i < end, other=0.0).to(tl.float32)
    earlier = i[:, None] > i[None, :]
    lower = tl.where(earlier, dot(w_m, across_w, DT), 0.0)
    inverse = unit_triangular_inverse(beta_m[:, None] * lower, i, LEVELS, False, DT)
    store_square(M + block * C * C, C, inverse)
    solve = inverse * beta_m[None, :]
    crossed = tl.where(earlier, dot(w_m, across_k, DT), 0.0)
    solved = wide_dot(solve, crossed, DT).to(DT)
    store_square(Y + block * C * C, C, solved)
    weights = dot(solve, w_m, DT).to(DT)
    store_rows(U + block * C * K, i, C, K, ks, K, weights)
    store_rows(P + block * K * K, ks, K, K, ks, K, dot(across_w, weights, DT))
    q_m = load_rows(q_at, i, end, SQ, ks, K).to(DT)
    seen = i[:, None] >= i[None, :]
    read = tl.where(seen, dot(q_m, across_w, DT), 0.0).to(DT)
    scores = tl.where(seen, dot(q_m, across_k, DT), 0.0) - dot(read, solved, DT)
    store_square(own + block * C * C, C, scores * scale)
    left = q_m.to(tl.float32) - dot(read, weights, DT)
    store_rows(queries + block * C * K, i, C, K, ks, K, left * scale)
    tl.debug_barrier()  # other threads stored what is loaded
    right = load_rows(k_at, i, end, SK, ks, K).to(tl.float32)
    right -= dot(load_square_transposed(Y + block * C * C, C), w_m, DT)
    store_rows(keys + block * C * K, i, C, K, ks, K, right)


@triton.jit(do_not_specialize=["T"])
def prepare_backward(
    q, k, w, beta, M, Y, U, down, dqueries, dkeys, dP, squares, dq, dk, dw, dbeta, T, scale,
    SQ: tl.constexpr, SK: tl.constexpr, SW: tl.constexpr, H: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute dq, dk, dw [B, T, H, K] and dbeta [B, T, H] from the gradients of what `prepare` makes.

    down [B H, N, C, C] is the gradient of `own`, zero above the diagonal. squares [B H, N, 3, C, C] is
    written over. Grid as `prepare`.
    """
    first, sequence, head, bh = place_of_block(T, H, C, False)
    block = bh * tl.cdiv(T, C) + first // C
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    here, end = sequence + first, T - first
    q_at, k_at, w_at = q + here * SQ + head * K, k + here * SK + head * K, w + here * SW + head * K
    rows, square = block * C * K, block * C * C
    dR_at, dX_at, dL_at = squares + 3 * square, squares + 3 * square + C * C, squares + 3 * square + 2 * C * C
    earlier, seen = i[:, None] > i[None, :], i[:, None] >= i[None, :]
    q_m, w_m = load_rows(q_at, i, end, SQ, ks, K).to(DT), load_rows(w_at, i, end, SW, ks, K).to(DT)
    across_w = load_transposed(w_at, i, end, SW, ks, K).to(DT)
    beta_m = tl.load(beta + (here + i) * H + head, mask=i < end, other=0.0).to(tl.float32)
    ds = (load_square(down + square, C) * scale).to(DT)
    dleft = load_rows(dqueries + rows, i, C, K, ks, K) * scale

    # R
    dR = dot(ds, load_square_transposed(Y + square, C), DT)
    dR = dot(dleft, load_transposed(U + rows, i, C, K, ks, K), DT, dR)
    dR = tl.where(seen, -dR, 0.0).to(DT)
    store_square(dR_at, C, dR)
    dq_m = dot(dR, w_m, DT, dleft)
    dq_m = dot(ds, load_rows(k_at, i, end, SK, ks, K), DT, dq_m)
    store_rows(dq + (here * H + head) * K, i, end, H * K, ks, K, dq_m)

    # Y and U
    across_R = tl.where(i[:, None] <= i[None, :], dot(w_m, load_transposed(q_at, i, end, SQ, ks, K), DT), 0.0)
    across_R = across_R.to(DT)
    dY = dot(across_R, ds, DT)
    dY = dot(w_m, load_transposed(dkeys + rows, i, C, K, ks, K), DT, dY)
    dU = dot(w_m, load_rows(dP + block * K * K, ks, K, K, ks, K), DT) - dot(across_R, dleft, DT)

    # T, and by it M and beta
    crossed = tl.where(i[:, None] < i[None, :], dot(load_rows(k_at, i, end, SK, ks, K), across_w, DT), 0.0)
    dT = dot(dU, across_w, DT) - dot(dY, crossed, DT)
    inverse, across_M = load_square(M + square, C), load_square_transposed(M + square, C)
    dA = wide_dot(wide_dot(across_M, dT * beta_m[None, :], DT), across_M, DT)
    dA = tl.where(earlier, -dA, 0.0)
    dbeta_m = tl.sum(dT * inverse, axis=0) + tl.sum(dA * dot(w_m, across_w, DT), axis=1)
    tl.store(dbeta + (here + i) * H + head, dbeta_m, mask=i < end)
    dL = (beta_m[:, None] * dA).to(DT)
    store_square(dL_at, C, dL)
    across_T = across_M * beta_m[:, None]
    dX = tl.where(earlier, -wide_dot(across_T, dY, DT), 0.0).to(DT)
    store_square(dX_at, C, dX)

    # w and k
    dw_m = dot(across_T, dU, DT)
    across_dP = load_transposed(dP + block * K * K, ks, K, K, ks, K)
    dw_m = dot(load_rows(U + rows, i, C, K, ks, K), across_dP, DT, dw_m)
    dw_m -= dot(load_square(Y + square, C), load_rows(dkeys + rows, i, C, K, ks, K), DT)
    dw_m = dot(dX, load_rows(k_at, i, end, SK, ks, K), DT, dw_m)
    dw_m = dot(dL, w_m, DT, dw_m)
    dk_m = load_rows(dkeys + rows, i, C, K, ks, K).to(tl.float32)
    across_ds = (load_square_transposed(down + square, C) * scale).to(DT)
    dk_m = dot(across_ds, q_m, DT, dk_m)
    tl.debug_barrier()  # other threads stored what is loaded
    dk_m = dot(load_square_transposed(dX_at, C), w_m, DT, dk_m)
    store_rows(dk + (here * H + head) * K, i, end, H * K, ks, K, dk_m)
    dw_m = dot(load_square_transposed(dR_at, C), q_m, DT, dw_m)
    dw_m = dot(load_square_transposed(dL_at, C), w_m, DT, dw_m)
    store_rows(dw + (here * H + head) * K, i, end, H * K, ks, K, dw_m)
