"""Softmax attention over positions: causal, and if asked with a window, a linear bias or forget gates."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from torch import Tensor

from linbench.kernels.attention.calls import require_both, require_fit, require_kept, split_scale
from linbench.kernels.attention.eager import dense
from linbench.kernels.attention.positions import EMPTY, WIDEST, positions_from_zero
from linbench.kernels.attention.reference import reference
from linbench.kernels.attention.weights import Weigh
from linbench.kernels.dtypes import to_float32
from linbench.kernels.operators import choose_backend, may_require_grad, without_autocast

__all__ = ["EMPTY", "VERSION", "Weigh", "attention", "flops_per_token"]

VERSION = 2
"""Version, raised whenever a change here changes results by more than rounding.

It is part of the identity of every cell that uses this family.
"""

_BACKENDS = {"reference": reference, "dense": dense}

_SHORT = 2**26
"""Most numbers that all heads of a batch of caches read for the kernel of one more token.

On an H200 it is up to twice as fast as torch's with a mask for fewer, and slower for more (bf16, heads of 64
and 128, caches of 256 to 16,384 places).
"""

_UNEVEN = 4
"""Largest ratio of the widths of a head's values and keys for the kernel of tokens in order.

With 16 keys and 100 values in bf16 gradients were wrong on an H200 (Triton 3.6, whose assembler has known
faults where registers spill), while outputs, float32 and all else tried were right.
"""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    window: int | None = None,
    slopes: Tensor | None = None,
    kept: tuple[Tensor, Tensor] | None = None,
    scale: float | Tensor | None = None,
    weigh: Weigh = "softmax",
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return softmax attention, arXiv:1706.03762.

    o_i = sum_j softmax_j(scale q_i . k_j - slope (p_i - p_j) + c_i - c_j) v_j over the keys with p_i - window
    < p_j <= p_i.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
        query_positions, key_positions: [B, T] and [B, S] integers, `EMPTY` for places without a key; None is
            0, 1, 2, ... for both.
        window: how many keys a query sees, itself included; None is all before it.
        slopes: [H], the linear bias of ALiBi (2108.12409).
        kept: c of queries [B, T, H] and of keys [B, S, H], sums of the logarithms of all forget gates up to
            and with their own (FoX 2503.02130). They are best in float64: a difference of large numbers
            counts. A gate that forgets all is at least `decays.SCORE_FLOOR` (`bounded_for_scores`), or the
            sums after it lose the others. Every key of a place that is not `EMPTY` has one.
        weigh: what makes weights of scores: "softmax", or "squared_relu", relu(score)^2 over the number of
            keys that the query sees (2202.10447).
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        backend: "auto" takes "triton" where it is there: on a GPU, for tokens at 0, 1, 2, ... with gates,
            slopes or a window, unless a head's keys or values are more than four times as wide as the other;
            and for one more token (T = 1 with positions) with gates or slopes, or over short caches, by name
            over all, if no gradient is asked for.
            It lays no matrix of all queries and keys in memory.

    Returns: [B, T, H, V] in the dtype of v.

    Raises ValueError: only one kind of positions is given, shapes do not fit together, a window or backend is
    not allowed.
    """
    require_both(query_positions, key_positions)
    require_fit(q, k, v, as_many=key_positions is None)
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, not {window}")
    require_kept(q, k, kept)
    torch_forms: dict[str, Callable[..., Tensor]] = {
        name: partial(form, weigh=weigh) for name, form in _BACKENDS.items()
    }
    backends = (
        {**torch_forms, "triton": _triton}
        if weigh == "softmax"
        and _has_kernel(q, k, v, key_positions, window, slopes, kept, scale, named=backend == "triton")
        else torch_forms
    )
    took = choose_backend(backend, backends, v, otherwise="dense", empty="dense")
    one_more = took == "triton" and key_positions is not None
    groups = q.shape[2] // k.shape[2]
    if groups > 1 and not one_more and took != "dense":  # these two read shared keys where they lie
        k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    dtype = v.dtype
    if took != "triton":
        if slopes is not None or kept is not None:  # distances beyond 256 are not exact in half precision
            q, k, v = map(to_float32, (q, k, v))
        # a weight of zero does not silence a NaN, so what an empty place holds must go
        if key_positions is not None and not empty_is_zero:
            empty = (key_positions == EMPTY)[:, :, None, None]
            k, v = k.masked_fill(empty, 0.0), v.masked_fill(empty, 0.0)
    q, factor = split_scale(q, scale, exact=one_more)
    with nullcontext() if kept is None else without_autocast(q):  # which would round the bias
        o: Tensor = backends[took](q, k, v, query_positions, key_positions, window, slopes, kept, factor)
    return o.to(dtype)


def _has_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_positions: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    kept: tuple[Tensor, Tensor] | None,
    scale: float | Tensor | None,
    *,
    named: bool,
) -> bool:
    """Tell whether Triton has a kernel for a call.

    It has two, for scores that are more than products, which torch's own kernels are faster at: tokens in
    order, and one more token without a gradient. The latter takes all calls if it is `named`.
    """
    if max(k.shape[3], v.shape[3]) > WIDEST:
        return False
    if key_positions is not None:
        biased = slopes is not None or kept is not None
        short = q.shape[0] * q.shape[2] * k.shape[1] * (k.shape[3] + v.shape[3]) <= _SHORT and q.is_cuda
        return (
            (biased or short or named)
            and q.shape[1] == 1
            and not may_require_grad((q, k, v, slopes, scale, *(kept or ())))
        )
    # no tile is narrower than 16
    if max(k.shape[3], v.shape[3]) > _UNEVEN * max(min(k.shape[3], v.shape[3]), 16):
        return False
    return kept[0] is kept[1] if kept is not None else slopes is not None or window is not None


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    kept: tuple[Tensor, Tensor] | None,
    scale: float,
) -> Tensor:
    """Call Triton's kernels, which are not installed everywhere, and slow to import."""
    if query_positions is not None and key_positions is not None:
        from linbench.kernels.attention.triton.decoding import decode

        batch = len(q)
        there, slopes = key_positions.expand(batch, -1), None if slopes is None else slopes.expand(batch, -1)
        one: Tensor = decode(
            q, k, v, query_positions.expand(batch, -1), there, slopes, *(kept or (None, None)), window, scale
        )
        return one
    from linbench.kernels.attention.triton.gated import triton_attention

    c: Tensor | None = None if kept is None else kept[0]
    if slopes is not None:  # a gate that is the same everywhere
        bias = (-slopes.double() * positions_from_zero(q).mT).expand(q.shape[:3])
        c = bias if c is None else c + bias
    return triton_attention(q, k, v, c, window, scale)


def flops_per_token(*, heads: int, key_dim: int, value_dim: int, keys: float) -> float:
    """Return the operations of scores and weighted sum, forward, per token that sees `keys` keys.

    A multiply-add counts as two.
    """
    return heads * 2 * keys * (key_dim + value_dim)
