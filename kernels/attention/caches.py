"""One more token of a cache, written in place."""

from torch import Tensor

from linbench.kernels.operators import is_traced, runs_triton


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
