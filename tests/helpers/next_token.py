"""One more token over a cache, and what turning, writing and reading it step by step give."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.caches import read_next, reads_next
from linbench.kernels.rotary import rotate_at
from tests.helpers.gradients import error

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 8e-3}


class Next(NamedTuple):
    """A token of each sequence, q [B, 1, H, K], k and v, and a cache [B, Hk, S, K or V] of `seen` others."""

    q: Tensor
    k: Tensor
    v: Tensor
    keys: Tensor
    values: Tensor
    there: Tensor
    seen: Tensor

    def copy(self, dtype: torch.dtype | None = None) -> "Next":
        """Return a copy, its floats in another dtype."""
        return Next(
            *(x.to(dtype or x.dtype, copy=True) if x.is_floating_point() else x.clone() for x in self)
        )


def next_token(
    generator: torch.Generator,
    seen: tuple[int, ...],
    places: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    *,
    key_heads: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Next:
    """Row b has seen seen[b] tokens; unused places hold what is not a number."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

    batch, shared = len(seen), key_heads or heads
    there = torch.full((batch, places), EMPTY)
    for row, count in enumerate(seen):
        for position in range(count):
            there[row, position % places] = position
    there = there.to(DEVICE)
    empty = (there == EMPTY)[:, None, :, None]
    # the heads of q, k and v lie side by side, as a linear map makes them
    q, k, v = draw(batch, 1, heads * key_dim + shared * (key_dim + value_dim)).split(
        [heads * key_dim, shared * key_dim, shared * value_dim], dim=-1
    )
    return Next(
        q.unflatten(-1, (heads, key_dim)),
        k.unflatten(-1, (shared, key_dim)),
        v.unflatten(-1, (shared, value_dim)),
        draw(batch, shared, places, key_dim).masked_fill(empty, float("nan")),
        draw(batch, shared, places, value_dim).masked_fill(empty, float("nan")),
        there,
        torch.tensor(seen, device=DEVICE),
    )


def held_to_the_reference(
    token: Next, *, turned: int = 0, gates: tuple[Tensor, Tensor] | None = None, **options: Any
) -> None:
    """Hold the launch to a rotation, a copy into the cache and the step-by-step reference in float64."""
    dtype, places = token.q.dtype, token.keys.shape[2]
    exact, given = token.copy(torch.float64), token.copy()
    here, place = token.seen[:, None], token.seen % places
    rows = torch.arange(len(place), device=DEVICE)
    q, k = exact.q, exact.k
    if turned:  # a turned token is rounded before it is kept
        q, k = (x.to(dtype).double() for x in rotate_at((q, k), here, turned, base=500.0))
    for cache, x in ((exact.keys, k), (exact.values, exact.v), (exact.there[:, None], here[:, :, None])):
        cache[rows, :, place] = x[:, 0]
    kept = None
    if gates is not None:
        left = gates[1].double() + gates[0].double()
        left[rows, place] = 0.0
        kept = torch.zeros_like(gates[0], dtype=torch.float64), -left.nan_to_num()
    wide = {name: x.double() if isinstance(x, Tensor) else x for name, x in options.items()}
    expected = attention(
        q, exact.keys.transpose(1, 2), exact.values.transpose(1, 2), query_positions=here,
        key_positions=exact.there, kept=kept, backend="reference", **wide,
    )  # fmt: skip

    biased = gates is not None or "slopes" in options
    assert reads_next(given.keys, given.values, given.seen, given.q, biased=biased)
    o, after, fits, left_after = read_next(*given, turned=turned, base=500.0, gates=gates, **options)

    assert o.dtype == dtype
    assert error(o, expected) <= LIMITS[dtype]
    assert torch.equal(after, token.seen + 1)
    assert fits.tolist() == [bool((token.seen < places).all())]
    assert torch.equal(given.there, exact.there)
    # float32 has an angle of a thousand to 1e-4
    limit = LIMITS[dtype] if dtype == torch.float64 else max(LIMITS[dtype], 1e-4)
    for found, wanted in ((given.keys, exact.keys), (given.values, exact.values)):
        torch.testing.assert_close(found.double(), wanted, rtol=limit, atol=limit, equal_nan=True)
    if gates is not None:
        assert left_after is not None
        used = exact.there != EMPTY
        torch.testing.assert_close(left_after.double()[used], left[used], rtol=1e-6, atol=1e-6)
        assert not left_after[~used].any()
