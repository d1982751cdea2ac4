"""One more token over a cache: written in place, and where one step can do both, read with all others."""

from torch import Tensor

from linbench.kernels.attention.calls import split_scale
from linbench.kernels.attention.eager import unmasked
from linbench.kernels.attention.positions import WIDEST
from linbench.kernels.operators import is_traced, may_require_grad, runs_triton
from linbench.kernels.rotary import rotate_at


def appends_at_once(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether `append_one` takes k and v [B, T, H, K or V] for a cache [B, H, S, K or V]."""
    laid = keys.is_contiguous() and values.is_contiguous()
    return k.shape[1] == 1 and laid and k.numel() > 0 and _launches(keys, k, v) and not is_traced()


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


def reads_next(keys: Tensor, values: Tensor, seen: Tensor, x: Tensor, *, biased: bool) -> bool:
    """Tell whether `read_next` takes a token x [B, 1, ...] of every sequence.

    On a CPU all sequences must be as long, without gates or slopes.

    Args:
        keys, values: caches [B, H, S, K or V].
        seen: number of tokens so far [B].
        biased: whether scores have gates or slopes.
    """
    if x.shape[1] != 1 or not keys.numel() or is_traced() or may_require_grad((x,)):
        return False
    if _launches(keys, values, x):
        narrow = max(keys.shape[3], values.shape[3]) <= WIDEST
        return narrow and keys.is_contiguous() and values.is_contiguous()
    if keys.is_cuda or biased:
        return False
    return len(seen) == 1 or bool((seen == seen[0]).all())


def _launches(*tensors: Tensor) -> bool:
    """Tell whether one launch takes a token, on a GPU or in the interpreter."""
    return all(map(runs_triton, tensors))


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
    """Attend from one more token to itself and to a cache, and write it into the cache in place.

    Position p stands at place p mod S. With a window of S keys or fewer places than tokens it takes the place
    of the oldest token. `rotate_at`, `append_one` and `attention` one after the other do the same.

    Args:
        q, k, v: [B, 1, H, K], [B, 1, Hk, K] and [B, 1, Hk, V], for which `reads_next` holds.
        keys, values: [B, Hk, S, K] and [B, Hk, S, V], without a NaN in used places.
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
    given = q, k, v, keys, values, there, seen, turned, base
    if not _launches(keys, values, q):
        return _read_together(*given, scale)
    from linbench.kernels.attention.triton import next_token  # not installed everywhere, slow to import

    return next_token.read_next(*given, slopes, gates, scale)


def _read_together(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    there: Tensor,
    seen: Tensor,
    turned: int,
    base: float,
    scale: float | Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, None]:
    """Do the work of `read_next` in torch, for sequences of one length and scores without a bias."""
    places, position = keys.shape[2], int(seen[0])
    if turned:
        q, k = rotate_at((q, k), seen[:1, None], turned, base=base)
    place, used = position % places, min(position + 1, places)
    keys[:, :, place], values[:, :, place], there[:, place] = k[:, 0], v[:, 0], position
    q, factor = split_scale(q, scale, exact=False)
    o = unmasked(q, keys[:, :, :used].transpose(1, 2), values[:, :, :used].transpose(1, 2), factor)
    return o.to(values.dtype), seen + 1, seen[:1] < places, None
