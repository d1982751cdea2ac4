"""One more token over a cache: places in any order, some empty, by the kernel that reads each once, and what
the step-by-step reference says."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.caches import append_one, appends_at_once
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import error

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 8e-3}

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended"),
]


class Cached(NamedTuple):
    """A query [B, 1, H, K] at `here` [B, 1], and keys and values of places that stand `there` [B, S]."""

    q: Tensor
    k: Tensor
    v: Tensor
    here: Tensor
    there: Tensor

    def attend(self, *, backend: str = "triton", **options: Any) -> Tensor:
        """Attend to the cache, with slopes of zero if there are none.

        The kernel then adds to its scores as it does with slopes.
        """
        q, k, v, here, there = self
        options = {"slopes": q.new_zeros(q.shape[2])} | options
        return attention(q, k, v, query_positions=here, key_positions=there, backend=backend, **options)

    def double(self) -> "Cached":
        return Cached(self.q.double(), self.k.double(), self.v.double(), self.here, self.there)


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Cached]:
    def build(
        batch: int,
        places: int,
        heads: int,
        key_dim: int,
        value_dim: int,
        *,
        key_heads: int | None = None,
        empty: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> Cached:
        """Row b has seen b tokens more than are there, and its `empty` places hold what is not a number."""

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

        there = torch.stack([torch.randperm(places, generator=generator) for _ in range(batch)])
        there = torch.where(there < empty, EMPTY, there - empty + torch.arange(batch)[:, None]).to(DEVICE)
        here = torch.arange(batch, device=DEVICE)[:, None] + places - empty - 1
        k, v = (draw(batch, key_heads or heads, places, dim).transpose(1, 2) for dim in (key_dim, value_dim))
        nothing = (there == EMPTY)[:, :, None, None]
        return Cached(
            draw(batch, 1, heads, key_dim),
            k.masked_fill(nothing, float("nan")),
            v.masked_fill(nothing, float("nan")),
            here,
            there,
        )

    return build


def held_to_the_reference(cached: Cached, **options: Any) -> None:
    with torch.no_grad():
        exact = {name: x.double() if isinstance(x, Tensor) else x for name, x in options.items()}
        given, expected = cached.attend(**options), cached.double().attend(backend="reference", **exact)
    assert given.dtype == cached.v.dtype
    assert error(given, expected) <= LIMITS[cached.q.dtype]


def gates(cached: Cached, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return gates: 0 for the query, and for each place of the cache what was forgotten since."""
    heads = cached.q.shape[2]
    left = torch.randn(*cached.there.shape, heads, generator=generator).abs().to(DEVICE)
    return torch.zeros(len(left), 1, heads, dtype=torch.float64, device=DEVICE), left.masked_fill(
        (cached.there == EMPTY)[..., None], float("nan")
    )


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("window", [None, 1, 20, 2**40])
@pytest.mark.parametrize(
    ("shape", "empty"),
    [((2, 1, 1, 8, 5), 0), ((1, 63, 2, 16, 24), 3), ((2, 65, 3, 64, 64), 64), ((3, 1500, 2, 33, 16), 7)],
)
@pytest.mark.usefixtures("poisoned_memory")
def test_places_and_windows(
    make: Callable[..., Cached], shape: tuple[int, ...], empty: int, window: int | None, dtype: torch.dtype
) -> None:
    held_to_the_reference(make(*shape, empty=empty, dtype=dtype), window=window)


@pytest.mark.usefixtures("poisoned_memory")
def test_products_alone_by_name(make: Callable[..., Cached]) -> None:
    held_to_the_reference(make(2, 70, 4, 16, 16, key_heads=2, empty=5), slopes=None)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 100), (128, 64), (200, 256)])
@pytest.mark.usefixtures("poisoned_memory")
def test_wide_heads(make: Callable[..., Cached], key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make(1, 600, 2, key_dim, value_dim, empty=9, dtype=dtype))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("places", [40, 700])
@pytest.mark.usefixtures("poisoned_memory")
def test_gates_slopes_and_scales_of_heads(
    make: Callable[..., Cached], generator: torch.Generator, places: int, dtype: torch.dtype
) -> None:
    cached = make(2, places, 3, 16, 16, empty=5, dtype=dtype)
    slopes = torch.tensor([0.5, 0.1, 0.0], device=DEVICE)
    with torch.no_grad():
        c_q, c_k = gates(cached, generator)
        exact = cached.double()
        for options in (
            {"kept": (c_q, c_k)},
            {"slopes": slopes},
            {"kept": (c_q, c_k), "slopes": slopes, "window": 30},
        ):
            wide = options | ({"slopes": slopes.double()} if "slopes" in options else {})
            assert error(cached.attend(**options), exact.attend(backend="reference", **wide)) <= LIMITS[dtype]
    held_to_the_reference(cached, scale=torch.tensor([0.3, 1.0, 2.0], device=DEVICE))


def test_fewer_heads_of_keys(make: Callable[..., Cached]) -> None:
    held_to_the_reference(make(2, 300, 4, 16, 16, key_heads=2))


def test_keys_of_tokens_side_by_side(make: Callable[..., Cached]) -> None:
    cached = make(2, 70, 2, 16, 16)
    assert torch.equal(
        cached.attend(), cached._replace(k=cached.k.contiguous(), v=cached.v.contiguous()).attend()
    )


def test_what_comes_later_is_not_seen(make: Callable[..., Cached]) -> None:
    cached = make(2, 600, 2, 16, 16)
    early = cached._replace(here=cached.here - 100)
    held_to_the_reference(early)
    later = (cached.there > early.here)[:, :, None, None]
    assert later.any()
    assert torch.equal(
        early.attend(),
        early._replace(
            k=cached.k.masked_fill(later, float("nan")), v=cached.v.masked_fill(later, float("nan"))
        ).attend(),
    )


def test_replicas_stack(make: Callable[..., Cached]) -> None:
    replicas = [make(2, 20, 2, 16, 16, empty=4) for _ in range(3)]
    with torch.no_grad():
        together = torch.vmap(lambda *x: Cached(*x).attend(window=9))(
            *map(torch.stack, zip(*replicas, strict=True))
        )
    assert torch.equal(together, torch.stack([each.attend(window=9) for each in replicas]))


@pytest.mark.parametrize("places", [20, 600])
def test_who_sees_no_key_finds_nothing(make: Callable[..., Cached], places: int) -> None:
    cached = make(2, places, 2, 16, 16)
    blind = cached._replace(here=torch.tensor([[EMPTY], [places]], device=DEVICE))
    o = blind.attend()
    assert not o[0].any()
    assert error(o, blind.attend(backend="dense")) < 1e-5
    assert cached._replace(**{name: getattr(cached, name)[:0] for name in Cached._fields}).attend().shape == (
        0,
        1,
        2,
        16,
    )


def test_tokens_may_lie_far_apart(make: Callable[..., Cached]) -> None:
    cached = make(1, 130, 1, 16, 16)
    apart = 2**24 + 8
    k = (
        torch.empty(129 * apart + 16, dtype=torch.bfloat16, device=DEVICE)
        .as_strided((1, 130, 1, 16), (1, apart, 16, 1))
        .copy_(cached.k)
    )
    held_to_the_reference(cached._replace(k=k))


def test_it_compiles_whole(make: Callable[..., Cached]) -> None:
    cached = make(2, 20, 3, 16, 16)
    compiled = torch.compile(lambda *x: Cached(*x).attend(window=9), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*cached), cached.attend(window=9))


@pytest.mark.skipif(INTERPRETED, reason="an operator is checked where it is quick")
@pytest.mark.gpu
@pytest.mark.parametrize("places", [70, 3000])
def test_it_is_captured(make: Callable[..., Cached], replayed: Callable[..., Any], places: int) -> None:
    cached, other = make(2, places, 3, 16, 16), make(2, places, 3, 16, 16)
    captured = replayed(lambda: (cached.attend(),), cached, other)
    assert torch.equal(captured[0], other.attend())


def test_it_is_there_for_one_token_of_biased_scores_without_gradient(make: Callable[..., Cached]) -> None:
    cached = make(2, 20, 2, 16, 16)
    leaf = cached._replace(q=cached.q.clone().requires_grad_())
    with pytest.raises(ValueError, match="one of auto, reference, dense"):
        leaf.attend()
    assert leaf.attend(backend="auto").requires_grad
    assert cached.attend(backend="auto", scale=torch.ones(2, device=DEVICE, requires_grad=True)).requires_grad
    stacked = torch.stack([leaf.q.detach()] * 2).requires_grad_()
    assert torch.vmap(lambda q: leaf._replace(q=q).attend(backend="auto"))(stacked).requires_grad
    with torch.no_grad():
        assert error(leaf.attend(), leaf.attend(backend="dense")) < 1e-5
    products = {"slopes": None}
    by_itself = "triton" if DEVICE == "cuda" else "dense"  # of short caches on a GPU
    assert torch.equal(
        cached.attend(backend="auto", **products), cached.attend(backend=by_itself, **products)
    )
    two = cached._replace(q=cached.q.expand(-1, 2, -1, -1), here=cached.here.expand(-1, 2))
    with pytest.raises(ValueError, match="one of auto, reference, dense"):
        two.attend()


@pytest.mark.parametrize(("at", "all_fit"), [((2, 7, 0), True), ((2, 9, 0), False)])
def test_one_token_is_written_at_its_place(
    generator: torch.Generator, at: tuple[int, ...], all_fit: bool
) -> None:
    keys, values, there = torch.zeros(3, 2, 8, 20), torch.zeros(3, 2, 8, 5), torch.full((3, 8), EMPTY)
    keys, values, there = (x.to(DEVICE) for x in (keys, values, there))
    k, v = (torch.randn(3, 1, 2, dim, generator=generator).to(DEVICE)[..., ::2] for dim in (40, 10))
    expected = [x.clone() for x in (keys, values, there)]
    for row, position in enumerate(at):
        for cache, x in zip(expected, (k, v), strict=False):
            cache[row, :, position % 8] = x[row, 0]
        expected[2][row, position % 8] = position

    assert appends_at_once(keys, values, k, v)
    seen, fits = append_one(keys, values, there, k, v, torch.tensor(at, device=DEVICE)[:, None])

    assert seen.tolist() == [position + 1 for position in at]
    assert fits.tolist() == [all_fit]
    assert all(map(torch.equal, (keys, values, there), expected))
    assert not appends_at_once(keys.mT.contiguous().mT, values, k, v)
    assert not appends_at_once(keys, values, k.double(), v)
