"""One more token in one launch: what turning it, writing it into the cache and reading the cache give."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.caches import read_next, reads_next
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.rotary import rotate_at
from linbench.models.attention import Attention
from linbench.models.fox import FoX
from linbench.models.gated_attention import GatedAttention
from tests.helpers.gradients import error
from tests.helpers.models import build_mixer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 8e-3}

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended", "poisoned_memory"),
]


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


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Next]:
    def build(
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

    return build


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

    assert reads_next(given.keys, given.values, given.q)
    o, after, fits, left_after = read_next(*given, turned=turned, base=500.0, gates=gates, **options)

    assert o.dtype == dtype
    assert error(o, expected) <= LIMITS[dtype]
    assert torch.equal(after, token.seen + 1)
    assert fits.tolist() == [bool((token.seen < places).all())]
    assert torch.equal(given.there, exact.there)
    limit = max(LIMITS[dtype], 1e-4)  # float32 has an angle of a thousand to 1e-4
    for found, wanted in ((given.keys, exact.keys), (given.values, exact.values)):
        torch.testing.assert_close(found.double(), wanted, rtol=limit, atol=limit, equal_nan=True)
    if gates is not None:
        assert left_after is not None
        used = exact.there != EMPTY
        torch.testing.assert_close(left_after.double()[used], left[used], rtol=1e-6, atol=1e-6)
        assert not left_after[~used].any()


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("turned", [0, 8])
@pytest.mark.parametrize(
    ("seen", "places", "shape"),
    [
        ((0,), 1, (1, 8, 5)),
        ((0, 3, 62), 63, (2, 16, 24)),
        ((64, 0), 65, (3, 64, 64)),
        ((5, 130, 1499), 1500, (2, 33, 16)),
        ((1000,), 1500, (1, 128, 64)),
    ],
)
def test_places_so_far(
    make: Callable[..., Next],
    seen: tuple[int, ...],
    places: int,
    shape: tuple[int, ...],
    turned: int,
    dtype: torch.dtype,
) -> None:
    held_to_the_reference(make(seen, places, *shape, dtype=dtype), turned=turned)


@pytest.mark.parametrize("places", [1, 20, 300])
def test_the_oldest_give_way(make: Callable[..., Next], places: int) -> None:
    """The place of the oldest token is written over once all places are used, and nobody sees it again."""
    token = make((places - 1, places, places + 1, 3 * places + 7), places, 2, 16, 16)
    held_to_the_reference(token, turned=16, slopes=torch.tensor([0.5, 0.01], device=DEVICE))


@pytest.mark.parametrize(("key_heads", "turned"), [(1, 6), (2, 16)])
def test_fewer_heads_of_keys(make: Callable[..., Next], key_heads: int, turned: int) -> None:
    held_to_the_reference(make((7, 299), 300, 4, 16, 16, key_heads=key_heads), turned=turned)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 100), (200, 256)])
def test_wide_heads(make: Callable[..., Next], key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make((600,), 601, 2, key_dim, value_dim, dtype=dtype), turned=key_dim)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("places", [40, 700])
def test_gates_slopes_and_scales_of_heads(
    make: Callable[..., Next], generator: torch.Generator, places: int, dtype: torch.dtype
) -> None:
    token = make((places - 1, 5, 2 * places), places, 3, 16, 16, dtype=dtype)
    gate = -torch.rand(3, 1, 3, generator=generator).to(DEVICE)
    left = -torch.rand(3, places, 3, generator=generator).mul(5).to(DEVICE)
    left = left.masked_fill((token.there == EMPTY)[..., None], float("nan"))
    slopes = torch.tensor([0.5, 0.1, 0.0], device=DEVICE)
    held_to_the_reference(token, gates=(gate, left))
    held_to_the_reference(token, gates=(gate, left), slopes=slopes, turned=10)
    held_to_the_reference(token, scale=torch.tensor([0.3, 1.0, 2.0], device=DEVICE))


def test_it_is_there_for_one_token_without_gradient(make: Callable[..., Next]) -> None:
    token = make((3, 4), 20, 2, 16, 16)
    assert reads_next(token.keys, token.values, token.q)
    assert not reads_next(token.keys, token.values, token.q.clone().requires_grad_())
    assert not reads_next(token.keys, token.values, token.q.expand(-1, 2, -1, -1))
    assert not reads_next(token.keys.mT.contiguous().mT, token.values, token.q)
    assert not reads_next(token.keys, token.values, token.q.double())
    assert not reads_next(*(x.new_empty(1, 1, 4, 300) for x in token[:2]), token.q)
    assert not torch.vmap(lambda q: q.new_tensor(reads_next(token.keys, token.values, q)))(
        token.q[None]
    ).any()


@pytest.mark.skipif(INTERPRETED, reason="a capture needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("places", [70, 3000])
def test_it_is_captured(make: Callable[..., Next], replayed: Callable[..., Any], places: int) -> None:
    token, other = (make((places - 1, 5), places, 3, 16, 16) for _ in range(2))
    expected = read_next(*other.copy(), turned=16)[0]
    captured = replayed(lambda: (read_next(*token, turned=16)[0],), token, other)
    assert torch.equal(captured[0], expected)


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (Attention, {}),
        (Attention, {"window": 5, "positions": "alibi"}),
        (Attention, {"kv_heads": 1, "rope_fraction": 0.5, "qk_norm": "l2", "conv": 4}),
        (GatedAttention, {}),
        (FoX, {}),
        (FoX, {"window": 5, "positions": "rope"}),
    ],
)
def test_layers_decode_as_they_see_whole_sequences(
    cls: type[Attention], settings: dict[str, Any], generator: torch.Generator
) -> None:
    mixer = build_mixer(cls, heads=2, silent=False, **settings).to(DEVICE, torch.float32)
    assert mixer.is_plain
    x = torch.randn(3, 12, mixer.layer.d_model, generator=generator).to(DEVICE)
    with torch.no_grad():
        expected, whole = mixer(x).y, mixer.prefill(x, capacity=12).state
        state, outputs = mixer.prefill(x[:, :3], capacity=12).state, []
        for t in range(3, 12):
            assert reads_next(state.keys, state.values, x[:, t : t + 1])
            y, _, _ = mixer.decode(x[:, t : t + 1], state)
            # of the same state once more, as a benchmark asks
            again, state, _ = mixer.decode(x[:, t : t + 1], state)
            assert torch.equal(y, again)
            outputs.append(y)
    assert error(torch.cat(outputs, dim=1), expected[:, 3:]) < 1e-5
    for found, wanted in zip(state, whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
