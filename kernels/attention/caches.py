"""One more token of a cache, written in place, and read if one launch can do both."""

from torch import Tensor

from linbench.kernels.attention.positions import WIDEST
from linbench.kernels.operators import is_traced, may_require_grad, runs_triton


def appends_at_once(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether `append_one` takes k and v [B, T, H, K or V] for a cache [B, H, S, K or V]."""
    laid = keys.is_contiguous() and values.is_contiguous()
    return (
        k.shape[1] == 1 and laid and k.numel() > 0 and all(map(runs_triton, (keys, k, v))) and not is_traced()
    )


def append_one(
    keys: Tensor, values: Tensor, there: Tensor, k: Tensor, v: Tensor, at: Tensor
) -> tuple[Tensor, Tensor]:
    """Write one more token of every sequence into a cache in place, in one launch.

    Its place is its position, or if there are fewer places, that of the token which is S older.

    Args:
        keys, values: [B, H, S, K] and [B, H, S, V], contiguous, for which `appends_at_once` holds.
        there: positions of the places [B, S], integers.
        k, v: [B, 1, H, K] and [B, 1, H, V].
        at: positions of the tokens [B, 1].

    Returns: how many tokens each sequence has now [B], and whether no place was written over [1].
    """
    from linbench.kernels.attention.triton.appending import append  # not installed everywhere, slow to import

    return append(keys, values, there, k, v, at)


def reads_next(keys: Tensor, values: Tensor, x: Tensor) -> bool:
    """Tell whether `read_next` takes caches [B, H, S, K or V] and a token x [B, 1, ...] of every sequence."""
    return (
        x.shape[1] == 1
        and keys.numel() > 0
        and max(keys.shape[3], values.shape[3]) <= WIDEST
        and keys.is_contiguous()
        and values.is_contiguous()
        and all(map(runs_triton, (keys, values, x)))
        and not is_traced()
        and not may_require_grad((x,))
    )


def read_next(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    there: Tensor,
    seen: Tensor,
    *,
    turned: int = 0,
    base: float = 10_000.0,
    slopes: Tensor | None = None,
    gates: tuple[Tensor, Tensor] | None = None,
    scale: float | Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Attend from one more token to itself and to a cache, and write it into the cache in place, on a GPU.

    Position p stands at place p mod S. With a window of S keys or fewer places than tokens it takes the place
    of the oldest token. `rotate_at`, `append_one` and `attention` one after the other do the same.

    Args:
        q, k, v: [B, 1, H, K], [B, 1, Hk, K] and [B, 1, Hk, V], for which `reads_next` holds.
        keys, values: [B, Hk, S, K] and [B, Hk, S, V], contiguous, without a NaN in used places.
        there: positions of the places [B, S], integers.
        seen: number of tokens so far [B].
        turned: how many of the first dimensions of q and k are rotated by the position.
        base: of their frequencies.
        slopes: of ALiBi [H].
        gates: logarithms of the token's forget gates [B, 1, H] and of what is left of the keys [B, S, H],
            both float32.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.

    Returns: o [B, 1, H, V], how many tokens each sequence has now [B], whether no place was written over [1],
    and with gates the logarithm of what is left of the keys after the token [B, S, H].
    """
    from linbench.kernels.attention.triton import next_token  # not installed everywhere, slow to import

    return next_token.read_next(q, k, v, keys, values, there, seen, turned, base, slopes, gates, scale)
