"""Sums of forget gates, which lie between scores and weights."""

import triton
import triton.language as tl


@triton.jit
def load_sums(sums, bh, rows, T, GATED: tl.constexpr):
    """Load the two parts of sums [B H, 2, T] at `rows`; zeros without gates, and after the last token."""
    high, low = tl.zeros_like(rows).to(tl.float32), tl.zeros_like(rows).to(tl.float32)
    if GATED:
        at = sums + bh * 2 * T + rows
        high, low = tl.load(at, mask=rows < T, other=0.0), tl.load(at + T, mask=rows < T, other=0.0)
    return high, low


@triton.jit
def gates_between(high_q, low_q, high_k, low_k):
    """Return [queries, keys]: what the gates between them add to a score, to base 2."""
    return (high_q[:, None] - high_k[None, :]) + (low_q[:, None] - low_k[None, :])


@triton.jit
def gates_between_transposed(high_q, low_q, high_k, low_k):
    """Return the transpose of `gates_between`."""
    return (high_q[None, :] - high_k[:, None]) + (low_q[None, :] - low_k[:, None])
