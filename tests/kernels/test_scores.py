"""Doors of attention whose scores are more than products of a query and a key."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention, calls
from linbench.kernels.attention.contextual import contextual_attention
from linbench.kernels.attention.stick_breaking import stick_breaking
from tests.helpers.gradients import results, saved_numbers

B, T, H, K, V = 2, 9, 4, 8, 5
SHIPPED, ROWS = calls.ROWS, 16  # the reference takes its time for every token
BACKENDS = ["reference", "blocks"]
PER_HEAD = torch.tensor([0.3, 1.0, 2.0, 0.0], dtype=torch.float64)
TABLE = torch.randn(4, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

Error = Callable[[Tensor, Tensor], float]
Heads = tuple[Tensor, Tensor, Tensor]

DOORS: dict[str, Callable[..., Tensor]] = {
    "stick_breaking": stick_breaking,
    "contextual": lambda q, k, v, **options: contextual_attention(q, k, v, TABLE.to(q.dtype), **options),
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ROWS", ROWS)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    return DOORS[request.param]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Heads]:
    def build(*, key_heads: int = H, queries: int = T, keys: int = T) -> Heads:
        shapes = (B, queries, H, K), (B, keys, key_heads, K), (B, keys, key_heads, V)
        return tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)

    return build


def assert_parity(
    one: Callable[..., Tensor],
    other: Callable[..., Tensor],
    given: tuple[Tensor, ...],
    tolerance: float = 1e-9,
) -> None:
    for found, expected in zip(results(one, given), results(other, given), strict=True):
        torch.testing.assert_close(
            found, expected, rtol=0, atol=tolerance * (1 + expected.abs().max().item())
        )


@pytest.mark.parametrize("length", [1, 2, ROWS, ROWS + 1, 2 * ROWS + 6])
def test_outputs_and_gradients_equal_the_reference(
    door: Callable[..., Tensor], make: Callable[..., Heads], length: int
) -> None:
    given = make(queries=length, keys=length)
    assert_parity(partial(door, backend="blocks"), partial(door, backend="reference"), given)


@pytest.mark.parametrize("length", [63, 65, SHIPPED + 22])
def test_rows_as_they_are_shipped_give_the_same(
    door: Callable[..., Tensor],
    make: Callable[..., Heads],
    monkeypatch: pytest.MonkeyPatch,
    relative_error: Error,
    length: int,
) -> None:
    given = make(queries=length, keys=length)
    small = results(door, given)
    monkeypatch.setattr(calls, "ROWS", SHIPPED)
    for found, expected in zip(results(door, given), small, strict=True):
        assert relative_error(found, expected) < 1e-9


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("scale", [0.7, PER_HEAD], ids=["one scale", "scale per head"])
def test_scales_and_grouped_keys(
    door: Callable[..., Tensor], make: Callable[..., Heads], key_heads: int, scale: float | Tensor
) -> None:
    q, k, v = make(key_heads=key_heads)
    assert_parity(*(partial(door, backend=name, scale=scale) for name in BACKENDS), (q, k, v))

    def ungrouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(H // key_heads, dim=2) for x in (k, v))
        return door(q * (scale[:, None] if isinstance(scale, Tensor) else scale), k, v, scale=1.0)

    assert_parity(partial(door, scale=scale), ungrouped, (q, k, v))


def test_the_scale_learns(door: Callable[..., Tensor], make: Callable[..., Heads]) -> None:
    given = (*make(), PER_HEAD)
    assert_parity(*(lambda q, k, v, s, b=b: door(q, k, v, scale=s, backend=b) for b in BACKENDS), given)


@pytest.fixture
def cached(make: Callable[..., Heads]) -> tuple[Heads, Tensor, Tensor, Heads]:
    """Three queries over a cache in order with EMPTY places that hold no number, its rows at different
    positions; and the same keys without the empty places."""
    q, k, v = make(queries=3, keys=8, key_heads=2)
    there = torch.tensor([[0, EMPTY, 1, 2, EMPTY, 3, 4, 5], [EMPTY, 6, 7, 8, 9, 10, EMPTY, 11]])
    here = torch.stack([torch.arange(3, 6), torch.arange(9, 12)])
    full = [row != EMPTY for row in there]
    inner = tuple(torch.stack([row[f] for row, f in zip(x, full, strict=True)]) for x in (k, v))
    empty = (there == EMPTY)[:, :, None, None]
    poisoned = tuple(x.masked_fill(empty, float("nan")) for x in (k, v))
    return (q, *poisoned), here, there, (q, *inner)


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_places_are_never_read(
    door: Callable[..., Tensor],
    cached: tuple[Heads, Tensor, Tensor, Heads],
    relative_error: Error,
    backend: str,
) -> None:
    heads, here, there, (q, k, v) = cached
    o, *grads = results(partial(door, query_positions=here, key_positions=there, backend=backend), heads)
    # the last three of the six keys stand where the queries do
    expected = door(torch.cat([torch.zeros_like(q), q], dim=1), k, v, backend="reference")[:, 3:]
    assert relative_error(o, expected) < 1e-9
    assert all(grad.isfinite().all() for grad in grads)
    empty = there == EMPTY
    assert not any(grad[empty].any() for grad in grads[1:])
    assert grads[2][~empty].any()
    zeroed = tuple(x.nan_to_num() for x in heads)
    again = door(*zeroed, query_positions=here, key_positions=there, empty_is_zero=True, backend=backend)
    assert torch.equal(again, o)


def test_gradients_through_a_cache_equal_the_reference(
    door: Callable[..., Tensor], cached: tuple[Heads, Tensor, Tensor, Heads]
) -> None:
    heads, here, there, _ = cached
    options = {"query_positions": here, "key_positions": there, "scale": PER_HEAD}
    assert_parity(*(partial(door, backend=name, **options) for name in BACKENDS), heads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_future_is_not_seen(
    door: Callable[..., Tensor], make: Callable[..., Heads], backend: str
) -> None:
    heads = make(key_heads=2)
    whole = door(*heads, backend=backend)
    for t in (1, 4, T - 1):
        changed = [x.clone() for x in heads]
        for x in changed:
            x[:, t:] = 7.0
        o = door(*changed, backend=backend)
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_keeps_the_dtype_of_v_and_no_autocast_rounds_it(
    door: Callable[..., Tensor], make: Callable[..., Heads], relative_error: Error, dtype: torch.dtype
) -> None:
    heads = tuple(x.to(dtype) for x in make())
    o = door(*heads)
    assert o.dtype == dtype
    expected = door(*(x.double() for x in heads), backend="reference")
    assert relative_error(o, expected) < (1e-5 if dtype == torch.float32 else 2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(door(*heads), o)


def test_no_unwritten_memory_is_read(
    door: Callable[..., Tensor], make: Callable[..., Heads], request: pytest.FixtureRequest
) -> None:
    heads = make(queries=ROWS + 1, keys=ROWS + 1)
    clean = door(*heads)
    request.getfixturevalue("poisoned_memory")
    assert torch.equal(door(*heads), clean)


def assert_stacks(door: Callable[..., Tensor], each: list[tuple[Tensor, ...]]) -> None:
    """Replicas of a call under torch.vmap give what each of them gives alone."""

    def learned(function: Callable[..., Tensor], given: Iterable[Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in given]
        o = function(*leaves)
        return [o.detach(), *torch.autograd.grad((o * o.detach().cos()).sum(), leaves)]

    together = learned(torch.vmap(door), (torch.stack(x) for x in zip(*each, strict=True)))
    for r, given in enumerate(each):
        for found, expected in zip(together, learned(door, given), strict=True):
            torch.testing.assert_close(found[r], expected, rtol=1e-12, atol=1e-12)


def test_replicas_stack(door: Callable[..., Tensor], make: Callable[..., Heads]) -> None:
    assert_stacks(door, [make(queries=ROWS + 5, keys=ROWS + 5) for _ in range(3)])


def test_replicas_have_tables_of_their_own(make: Callable[..., Heads]) -> None:
    assert_stacks(contextual_attention, [(*make(), 2.0 * r * TABLE) for r in range(3)])


def test_no_matrix_of_all_queries_and_keys_is_kept(door: Callable[..., Tensor]) -> None:
    length = 8 * ROWS
    heads = [torch.randn(1, length, 1, K, requires_grad=True) for _ in range(3)]
    kept = saved_numbers(lambda: door(*heads))
    assert kept < length**2 / 4
    assert saved_numbers(lambda: door(*(x[:, :ROWS] for x in heads))) > ROWS**2


def test_numerical_gradients(door: Callable[..., Tensor], make: Callable[..., Heads]) -> None:
    given = tuple(x[:1, :4, :2].clone().requires_grad_() for x in make())
    assert torch.autograd.gradcheck(partial(door, backend="blocks"), given)


def test_nothing_gives_nothing(door: Callable[..., Tensor]) -> None:
    x = torch.ones(0, 4, 2, K, requires_grad=True)
    y = door(x, x, x)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_is_refused(
    door: Callable[..., Tensor], make: Callable[..., Heads], backend: str
) -> None:
    q, k, v = make()
    positions = torch.arange(T).expand(B, T)
    for name in ("query_positions", "key_positions"):
        with pytest.raises(ValueError, match="query_positions and key_positions"):
            door(q, k, v, backend=backend, **{name: positions})
    for wrong in (
        (q, k[:, :-1], v),
        (q, k[:, :, :2], v),
        (q[:, :-1], k, v),
        (q, k[..., :4], v),
        (q, k[:1], v),
    ):
        with pytest.raises(ValueError, match="Hk dividing H"):
            door(*wrong, backend=backend)
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        door(q, k, v, backend="dense")
    with pytest.raises(ValueError, match="at least one"):
        door(q[:, :, :0], k[:, :, :0], v[:, :, :0])


@pytest.mark.parametrize("table", [TABLE[:, :-1], TABLE[:0], TABLE[None]], ids=["narrow", "empty", "deep"])
def test_a_table_that_does_not_fit_is_refused(make: Callable[..., Heads], table: Tensor) -> None:
    with pytest.raises(ValueError, match="table is"):
        contextual_attention(*make(), table)


def scores(value: float, values: Tensor, **options: Any) -> Tensor:
    """Return what is read where every score is `value`."""
    ones = torch.ones(*values.shape[:3], 1, dtype=values.dtype)
    return stick_breaking(value * ones, ones, values, scale=1.0, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sticks_worked_by_hand(backend: str) -> None:
    v = torch.eye(5, dtype=torch.float64)[None, :, None]
    # all is left, all is taken by the nearest key, and each takes a share of what is left
    assert not scores(-1e6, v, backend=backend).any()
    assert torch.equal(scores(1e6, v, backend=backend)[0, 1:, 0], v[0, :-1, 0])
    share = torch.tensor(0.3, dtype=torch.float64)
    o = scores(share.logit().item(), v, backend=backend)[0, :, 0]
    for t in range(5):
        expected = [0.3 * 0.7 ** (t - 1 - s) if s < t else 0.0 for s in range(5)]
        assert o[t].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_of_zeros_is_softmax_attention(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    heads = make()
    expected = attention(*heads, backend="reference")
    o = contextual_attention(*heads, torch.zeros_like(TABLE), backend=backend)
    assert relative_error(o, expected) < 1e-12
    assert relative_error(contextual_attention(*heads, TABLE, backend=backend), expected) > 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_that_are_no_numbers_give_no_numbers(
    door: Callable[..., Tensor], make: Callable[..., Heads], backend: str
) -> None:
    """On a GPU an index made of NaN would end the process."""
    q, k, v = make()
    q[1, 3:] = torch.nan
    o = door(q, k, v, backend=backend)
    assert o[1, 3:].isnan().all()
    assert o[1, :3].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_contextual_positions_worked_by_hand(backend: str) -> None:
    """Scores of zero count halves: three tokens stand at 1.5, 1 and 0.5 for the last of them."""
    v = torch.eye(3, dtype=torch.float64)[None, :, None]
    q = torch.tensor([0.0, 1.0], dtype=torch.float64).expand(1, 3, 1, 2)
    k = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 3, 1, 2)
    e = torch.tensor([0.0, 2.0, 6.0], dtype=torch.float64)
    table = torch.stack([torch.zeros(3, dtype=torch.float64), e], dim=1)
    o = contextual_attention(q, k, v, table, scale=1.0, backend=backend)[0, 2, 0]
    expected = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64).softmax(dim=0)
    torch.testing.assert_close(o, expected, rtol=1e-12, atol=0)
    at_most_one = contextual_attention(q, k, v, table[:2], scale=1.0, backend=backend)[0, 2, 0]
    expected = torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64).softmax(dim=0)
    torch.testing.assert_close(at_most_one, expected, rtol=1e-12, atol=0)
