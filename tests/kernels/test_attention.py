from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention, flops_per_token

B, T, H, K, V = 2, 9, 4, 8, 5
BACKENDS = ["reference", "dense"]
FAST = ["dense"]
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0], dtype=torch.float64)
PER_HEAD = torch.tensor([0.3, 1.0, 2.0, 0.0], dtype=torch.float64)

Error = Callable[[Tensor, Tensor], float]
Heads = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Heads]:
    def build(*, key_heads: int = H, queries: int = T, keys: int = T) -> Heads:
        shapes = (B, queries, H, K), (B, keys, key_heads, K), (B, keys, key_heads, V)
        return tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)

    return build


def gradients(heads: Heads, backend: str, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """Output, and the gradients of a loss that weighs every number of it, of the scale too where it is a
    tensor."""
    leaves = [x.clone().requires_grad_() for x in heads]
    if isinstance(options.get("scale"), Tensor):
        options["scale"] = options["scale"].clone().requires_grad_()
        leaves.append(options["scale"])
    o = attention(*leaves[:3], backend=backend, **options)
    weights = torch.randn(o.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (o * weights).sum().backward()
    return o.detach(), [x.grad for x in leaves]


def assert_parity(heads: Heads, backend: str, relative_error: Error, **options: Any) -> None:
    expected_o, expected = gradients(heads, "reference", **options)
    o, grads = gradients(heads, backend, **options)
    assert relative_error(o, expected_o) < 1e-9
    for grad, wanted in zip(grads, expected, strict=True):
        if wanted.any():
            assert relative_error(grad, wanted) < 1e-9
        else:
            assert grad.abs().max() < 1e-12


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize("slopes", [None, SLOPES], ids=["no slopes", "slopes"])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("scale", [None, 0.7, PER_HEAD], ids=["default scale", "one scale", "scale per head"])
def test_outputs_and_gradients_equal_the_reference(
    make: Callable[..., Heads],
    relative_error: Error,
    backend: str,
    window: int | None,
    slopes: Tensor | None,
    key_heads: int,
    scale: float | Tensor | None,
) -> None:
    assert_parity(
        make(key_heads=key_heads), backend, relative_error, window=window, slopes=slopes, scale=scale
    )


@pytest.mark.parametrize("length", [1, 2, 70])
@pytest.mark.parametrize("window", [None, 3])
def test_other_lengths(
    make: Callable[..., Heads], relative_error: Error, length: int, window: int | None
) -> None:
    assert_parity(
        make(queries=length, keys=length, key_heads=2), "dense", relative_error, window=window, slopes=SLOPES
    )


@pytest.fixture
def cached(make: Callable[..., Heads], generator: torch.Generator) -> tuple[Heads, Tensor, Tensor, Heads]:
    """Three queries over a cache in any order with EMPTY places, its rows at different positions; and the
    same keys without the empty places, in order."""
    q, k, v = make(queries=3, keys=8, key_heads=2)
    there = torch.stack(
        [torch.tensor([5, EMPTY, 0, 3, EMPTY, 1, 4, 2]), torch.tensor([EMPTY, 8, 6, 10, 9, 7, 11, EMPTY])]
    )
    here = torch.stack([torch.arange(3, 6), torch.arange(9, 12)])
    order = torch.stack([row.argsort()[2:] for row in there])[:, :, None, None]
    inner = tuple(x.gather(1, order.expand(-1, -1, 2, x.shape[-1])) for x in (k, v))
    empty = (there == EMPTY)[:, :, None, None]
    poisoned = tuple(x.masked_fill(empty, float("nan")) for x in (k, v))
    return (q, *poisoned), here, there, (q, *inner)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize("slopes", [None, SLOPES], ids=["no slopes", "slopes"])
def test_empty_places_are_never_read_and_order_does_not_matter(
    cached: tuple[Heads, Tensor, Tensor, Heads],
    relative_error: Error,
    backend: str,
    window: int | None,
    slopes: Tensor | None,
) -> None:
    heads, here, there, (q, k, v) = cached
    options = {"window": window, "slopes": slopes}
    o, grads = gradients(heads, backend, query_positions=here, key_positions=there, **options)
    # the last three of the six keys stand where the queries do
    expected = attention(torch.cat([torch.zeros_like(q), q], dim=1), k, v, backend="reference", **options)[
        :, 3:
    ]
    assert relative_error(o, expected) < 1e-9
    assert all(grad.isfinite().all() for grad in grads)
    empty = there == EMPTY
    assert not any(grad[empty].any() for grad in grads[1:])
    assert grads[2][~empty].any()


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("scale", [None, 0.7, PER_HEAD], ids=["default scale", "one scale", "scale per head"])
def test_gradients_through_a_cache_equal_the_reference(
    cached: tuple[Heads, Tensor, Tensor, Heads],
    relative_error: Error,
    backend: str,
    scale: float | Tensor | None,
) -> None:
    heads, here, there, _ = cached
    assert_parity(
        heads,
        backend,
        relative_error,
        query_positions=here,
        key_positions=there,
        window=4,
        slopes=SLOPES,
        scale=scale,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 1, 3, 9, 100])
def test_a_window_counts_the_keys_within_reach(backend: str, window: int | None) -> None:
    """Equal scores share the weight evenly, and one-hot values show with whom."""
    zeros = torch.zeros(1, T, 1, K, dtype=torch.float64)
    o = attention(
        zeros, zeros, torch.eye(T, dtype=torch.float64)[None, :, None], window=window, backend=backend
    )[0, :, 0]
    expected = torch.zeros(T, T, dtype=torch.float64)
    for t in range(T):
        first = max(0, t + 1 - (window or T))
        expected[t, first : t + 1] = 1 / (t + 1 - first)
    torch.testing.assert_close(o, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_slopes_are_subtracted_per_token_of_distance(backend: str) -> None:
    zeros = torch.zeros(1, 3, 2, K, dtype=torch.float64)
    values = torch.eye(3, dtype=torch.float64)[None, :, None].expand(1, 3, 2, 3)
    o = attention(
        zeros, zeros, values, slopes=torch.tensor([2.0, 1.0], dtype=torch.float64).log(), backend=backend
    )
    torch.testing.assert_close(o[0, 2, 0], torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64) / 7)
    torch.testing.assert_close(o[0, 2, 1], torch.full((3,), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_tokens_worked_by_hand(backend: str) -> None:
    q = torch.tensor([1.0, 2.0], dtype=torch.float64)[None, :, None, None]
    k = torch.tensor([0.0, 0.5], dtype=torch.float64).log1p()[None, :, None, None]
    v = torch.tensor([4.0, 17.0], dtype=torch.float64)[None, :, None, None]
    o = attention(q, k, v, backend=backend)
    # the second query weighs its keys 1 and exp(2 ln 1.5) = 2.25
    assert o.flatten().tolist() == pytest.approx([4.0, (4 + 2.25 * 17) / 3.25], rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("slopes", [None, SLOPES], ids=["no slopes", "slopes"])
def test_the_future_is_not_seen(
    make: Callable[..., Heads], backend: str, window: int | None, slopes: Tensor | None
) -> None:
    heads = make(key_heads=2)
    whole = attention(*heads, window=window, slopes=slopes, backend=backend)
    for t in (1, 4, T - 1):
        changed = [x.clone() for x in heads]
        for x in changed:
            x[:, t:] = 7.0
        o = attention(*changed, window=window, slopes=slopes, backend=backend)
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(
    make: Callable[..., Heads], relative_error: Error, request: pytest.FixtureRequest, backend: str
) -> None:
    heads = make(key_heads=2)
    clean = attention(*heads, window=3, slopes=SLOPES, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert relative_error(attention(*heads, window=3, slopes=SLOPES, backend=backend), clean) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-5)])
def test_output_keeps_the_dtype_of_v(
    make: Callable[..., Heads], relative_error: Error, backend: str, dtype: torch.dtype, tolerance: float
) -> None:
    heads = tuple(x.to(dtype) for x in make())
    o = attention(*heads, backend=backend)
    assert o.dtype == dtype
    assert relative_error(o, attention(*(x.double() for x in heads), backend="reference")) < tolerance


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_tokens_and_a_gate_worked_by_hand(backend: str) -> None:
    zeros = torch.zeros(1, 2, 1, 1, dtype=torch.float64)
    v = torch.tensor([4.0, 16.0], dtype=torch.float64)[None, :, None, None]
    kept = torch.tensor([0.7, 0.25], dtype=torch.float64).log().cumsum(dim=0)[None, :, None]
    # the second token's gate leaves a quarter of the first key; the first token's own does not count
    o = attention(zeros, zeros, v, kept=(kept, kept), backend=backend)
    assert o.flatten().tolist() == pytest.approx([4.0, (0.25 * 4 + 16) / 1.25], rel=1e-12)


@pytest.mark.parametrize("key_heads", [1, 4])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("slopes", [None, SLOPES], ids=["no slopes", "slopes"])
def test_gates_and_their_gradients_equal_the_reference(
    make: Callable[..., Heads],
    relative_error: Error,
    generator: torch.Generator,
    key_heads: int,
    window: int | None,
    slopes: Tensor | None,
) -> None:
    heads, gates = make(key_heads=key_heads), torch.randn(B, T, H, dtype=torch.float64, generator=generator)

    def results(backend: str) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in (*heads, gates)]
        kept = torch.nn.functional.logsigmoid(leaves[3]).cumsum(dim=1)
        o = attention(*leaves[:3], kept=(kept, kept), window=window, slopes=slopes, backend=backend)
        return [o.detach(), *torch.autograd.grad((o * o.detach().cos()).sum(), leaves)]

    for given, expected in zip(results("dense"), results("reference"), strict=True):
        assert relative_error(given, expected) < 1e-9


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_that_keep_all_change_nothing_and_late_ones_are_exact(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    heads = make()
    same = torch.zeros(B, T, H, dtype=torch.float64)
    assert (
        relative_error(
            attention(*heads, kept=(same, same), backend=backend), attention(*heads, backend=backend)
        )
        < 1e-12
    )
    falling = -0.1 * torch.arange(T, dtype=torch.float64)[None, :, None].expand(B, T, H)
    expected = attention(*heads, kept=(falling, falling), backend=backend)
    narrow = tuple(x.float() for x in heads)
    late = falling - 1e6  # in float32 these would be the same number, or a sixteenth apart
    assert relative_error(attention(*narrow, kept=(late, late), backend=backend), expected) < 1e-5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert relative_error(attention(*narrow, kept=(late, late), backend=backend), expected) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_of_empty_places_are_never_read(
    cached: tuple[Heads, Tensor, Tensor, Heads], relative_error: Error, backend: str
) -> None:
    heads, here, there, _ = cached
    kept = -there[..., None].expand(-1, -1, H).double() * SLOPES
    poisoned = kept.masked_fill((there == EMPTY)[..., None], float("nan"))
    queries = -here[..., None].expand(-1, -1, H).double() * SLOPES
    o = attention(
        *heads, query_positions=here, key_positions=there, kept=(queries, poisoned), backend=backend
    )
    assert (
        relative_error(
            o, attention(*heads, query_positions=here, key_positions=there, slopes=SLOPES, backend=backend)
        )
        < 1e-9
    )


@pytest.mark.parametrize("wrong", [(T - 1, H), (T, 1)])
def test_gates_that_do_not_fit_are_refused(make: Callable[..., Heads], wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="kept is"):
        attention(*make(), kept=(torch.zeros(B, *wrong), torch.zeros(B, T, H)))


def test_replicas_with_gates_stack(
    make: Callable[..., Heads], relative_error: Error, generator: torch.Generator
) -> None:
    each = [make() for _ in range(3)]
    gates = -torch.rand(3, B, T, H, dtype=torch.float64, generator=generator)

    def one(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> Tensor:
        kept = log_forget.cumsum(dim=1)
        return attention(q, k, v, kept=(kept, kept))

    def results(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in given]
        o = function(*leaves)
        return [o.detach(), *torch.autograd.grad((o * o.detach().cos()).sum(), leaves)]

    together = results(torch.vmap(one), [*(torch.stack(x) for x in zip(*each, strict=True)), gates])
    for r, alone in enumerate(each):
        for given, expected in zip(together, results(one, [*alone, gates[r]]), strict=True):
            assert relative_error(given[r], expected) < 1e-12


def test_numerical_gradients_of_the_dense_form(make: Callable[..., Heads]) -> None:
    q, k, v = (x[:1, :4, :2].clone().requires_grad_() for x in make())
    scale = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *x: attention(*x[:3], window=3, slopes=SLOPES[:2], scale=x[3], backend="dense"),
        (q, k, v, scale),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_and_positions_that_do_not_fit_are_refused(make: Callable[..., Heads], backend: str) -> None:
    q, k, v = make()
    positions = torch.arange(T).expand(B, T)
    with pytest.raises(ValueError, match="query_positions and key_positions"):
        attention(q, k, v, query_positions=positions, backend=backend)
    with pytest.raises(ValueError, match="query_positions and key_positions"):
        attention(q, k, v, key_positions=positions, backend=backend)
    for wrong in (
        (q, k[:, :-1], v),
        (q, k[:, :, :2], v),
        (q[:, :-1], k, v),
        (q, k[:, :, :3], v[:, :, :3]),
        (q, k[..., :4], v),
        (q, k[:1], v[:1]),
    ):
        with pytest.raises(ValueError, match="Hk dividing H"):
            attention(*wrong, backend=backend)


def test_flops_per_token() -> None:
    assert flops_per_token(heads=3, key_dim=8, value_dim=5, keys=10) == 3 * 2 * 10 * 13


def test_a_window_or_backend_that_is_not_allowed_is_refused() -> None:
    q = torch.zeros(1, 4, 1, 8)
    with pytest.raises(ValueError, match="window must be at least 1"):
        attention(q, q, q, window=0)
    with pytest.raises(ValueError, match="one of auto, reference, dense"):
        attention(q, q, q, backend="fast")


def test_slopes_are_exact_at_long_distance_in_half_precision() -> None:
    q = torch.randn(1, 600, 1, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    slopes = torch.tensor([0.01])
    expected = attention(q.double(), q.double(), q.double(), slopes=slopes.double())
    for backend in ("dense", "reference"):
        given = attention(q, q, q, slopes=slopes, backend=backend)
        assert given.dtype == torch.bfloat16
        assert (given.double() - expected).abs().max() < 8e-3 * expected.abs().max()


@pytest.mark.parametrize(("window", "slopes"), [(None, None), (3, None), (None, SLOPES)])
def test_replicas_stack(
    make: Callable[..., Heads], relative_error: Error, window: int | None, slopes: Tensor | None
) -> None:
    each = [make() for _ in range(3)]

    def results(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in given]
        o = function(*leaves)
        return [o.detach(), *torch.autograd.grad((o * o.detach().cos()).sum(), leaves)]

    def one(*heads: Tensor) -> Tensor:
        return attention(*heads, window=window, slopes=slopes)

    together = results(torch.vmap(one), [torch.stack(x) for x in zip(*each, strict=True)])
    for r, alone in enumerate(each):
        for given, expected in zip(together, results(one, list(alone)), strict=True):
            assert relative_error(given[r], expected) < 1e-12
