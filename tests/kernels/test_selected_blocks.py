"""Doors of attention to blocks of keys that a query chooses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention, calls
from linbench.kernels.attention.mixture_of_blocks import mixture_of_blocks
from linbench.kernels.attention.native_sparse import compressed_and_selected
from tests.helpers.gradients import assert_replicas_stack, results, saved_numbers

B, T, H, K, V = 2, 21, 4, 8, 5
SHIPPED, ROWS = calls.ROWS, 16  # the reference takes its time for every token
BACKENDS = ["reference", "blocks"]
PER_HEAD = torch.tensor([0.3, 1.0, 2.0, 0.7], dtype=torch.float64)

Error = Callable[[Tensor, Tensor], float]
Heads = tuple[Tensor, Tensor, Tensor]
Door = Callable[..., Tensor]


def both(*given: Tensor, **options: Any) -> Tensor:
    return torch.cat(compressed_and_selected(*given, **options), dim=-1)


def selected(*given: Tensor, **options: Any) -> Tensor:
    return compressed_and_selected(*given, **options)[1]


DOORS: dict[str, tuple[Door, int]] = {"moba": (mixture_of_blocks, 1), "nsa": (both, 3)}
"""Each with the least number of blocks."""


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ROWS", ROWS)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    """Blocks of three tokens: the last of a row of queries ends within one."""
    function, least = DOORS[request.param]
    return partial(function, block=3, blocks=least + 1)


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Heads]:
    def build(*, key_heads: int = H, queries: int = T, keys: int | None = None) -> Heads:
        keys = queries if keys is None else keys
        shapes = (B, queries, H, K), (B, keys, key_heads, K), (B, keys, key_heads, V)
        return tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)

    return build


def assert_parity(one: Door, other: Door, given: tuple[Tensor, ...]) -> None:
    for found, expected in zip(results(one, given), results(other, given), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * (1 + expected.abs().max().item()))


@pytest.mark.parametrize("key_heads", [1, 2, H])
@pytest.mark.parametrize("length", [1, 2, 3, ROWS, ROWS + 1, 63, 65, 100])
def test_outputs_and_gradients_equal_the_reference(
    door: Door, make: Callable[..., Heads], length: int, key_heads: int
) -> None:
    given = make(queries=length, key_heads=key_heads)
    assert_parity(*(partial(door, backend=name) for name in BACKENDS), given)


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize(("block", "more"), [(1, 0), (1, 5), (4, 0), (7, 2), (16, 1), (99, 0)])
def test_blocks_of_every_size_equal_the_reference(
    name: str, make: Callable[..., Heads], block: int, more: int
) -> None:
    function, least = DOORS[name]
    door = partial(function, block=block, blocks=least + more)
    assert_parity(*(partial(door, backend=name) for name in BACKENDS), make(queries=40, key_heads=2))


@pytest.mark.parametrize("length", [63, 65, SHIPPED + 22])
def test_rows_as_they_are_shipped_give_the_same(
    door: Door,
    make: Callable[..., Heads],
    monkeypatch: pytest.MonkeyPatch,
    relative_error: Error,
    length: int,
) -> None:
    given = make(queries=length)
    small = results(door, given)
    monkeypatch.setattr(calls, "ROWS", SHIPPED)
    for found, expected in zip(results(door, given), small, strict=True):
        assert relative_error(found, expected) < 1e-9


@pytest.mark.parametrize("scale", [0.7, PER_HEAD], ids=["one scale", "scale per head"])
def test_scales_learn_and_equal_the_reference(
    door: Door, make: Callable[..., Heads], scale: float | Tensor
) -> None:
    given = (*make(key_heads=2), torch.as_tensor(scale, dtype=torch.float64).expand(H).clone())
    assert_parity(*(lambda q, k, v, s, b=b: door(q, k, v, scale=s, backend=b) for b in BACKENDS), given)
    q, k, v, factor = given
    assert torch.equal(door(q, k, v, scale=scale), door(*given[:3], scale=factor))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scale_does_not_change_the_blocks_of_moba(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    q, k, v = make()
    options = {"block": 3, "blocks": 2, "backend": backend}
    # which with a scale of zero are read evenly, and with -1 by the scores of k, chosen by -k
    even = [mixture_of_blocks(q, x, v, **options, scale=0.0) for x in (k, -k)]
    turned = mixture_of_blocks(q, -k, v, **options, scale=-1.0)
    assert relative_error(even[0], even[1]) > 1e-2
    assert relative_error(turned, mixture_of_blocks(q, k, v, **options, scale=1.0)) > 1e-2


Cached = tuple[Heads, Tensor, Tensor]


@pytest.fixture
def cached(make: Callable[..., Heads]) -> Cached:
    """Three queries over caches with EMPTY places that hold no number, one of them in another order."""
    q, k, v = make(queries=3, keys=12, key_heads=2)
    there = torch.tensor(
        [[0, EMPTY, 1, 2, EMPTY, 3, 4, 5, 6, 7, 8, EMPTY], [9, 2, EMPTY, 0, 8, 1, 4, 3, 5, 7, 6, 10]]
    )
    here = torch.stack([torch.arange(6, 9), torch.arange(8, 11)])
    empty = (there == EMPTY)[:, :, None, None]
    return (q, *(x.masked_fill(empty, float("nan")) for x in (k, v))), here, there


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_places_are_never_read(door: Door, cached: Cached, relative_error: Error, backend: str) -> None:
    heads, here, there = cached
    o, *grads = results(partial(door, query_positions=here, key_positions=there, backend=backend), heads)
    for b, row in enumerate(there):
        order = row.argsort()[(row == EMPTY).sum() :]
        q, k, v = heads[0][b], heads[1][b, order], heads[2][b, order]
        before = q.new_zeros(len(order) - len(q), H, K)
        expected = door(*(x[None] for x in (torch.cat([before, q]), k, v)), backend="reference")[0, -3:]
        assert relative_error(o[b], expected) < 1e-9
    assert all(grad.isfinite().all() for grad in grads)
    empty = there == EMPTY
    assert not any(grad[empty].any() for grad in grads[1:])
    assert grads[2][~empty].any()
    zeroed = tuple(x.nan_to_num() for x in heads)
    again = door(*zeroed, query_positions=here, key_positions=there, empty_is_zero=True, backend=backend)
    assert torch.equal(again, o)


def test_gradients_through_a_cache_equal_the_reference(door: Door, cached: Cached) -> None:
    heads, here, there = cached
    options = {"query_positions": here, "key_positions": there, "scale": PER_HEAD}
    assert_parity(*(partial(door, backend=name, **options) for name in BACKENDS), heads)


def test_many_queries_over_a_cache_are_read_in_rows(
    door: Door, make: Callable[..., Heads], relative_error: Error
) -> None:
    """A cache with more places than keys, from whose middle on 2 ROWS + 3 queries read."""
    q, k, v = make(queries=50)
    late = 2 * ROWS + 3
    places = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:50]
    there = torch.full((B, 64), EMPTY)
    there[:, places] = torch.arange(50)
    keys, values = (torch.full((B, 64, *x.shape[2:]), float("nan"), dtype=x.dtype) for x in (k, v))
    keys[:, places], values[:, places] = k, v
    here = torch.arange(50 - late, 50).expand(B, -1)
    o = door(q[:, -late:], keys, values, query_positions=here, key_positions=there)
    assert relative_error(o, door(q, k, v)[:, -late:]) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_future_is_not_seen(door: Door, make: Callable[..., Heads], backend: str) -> None:
    heads = make(key_heads=2)
    whole = door(*heads, backend=backend)
    for t in (1, 2, 3, 10, T - 1):
        changed = [x.clone() for x in heads]
        for x in changed:
            x[:, t:] = 7.0
        o = door(*changed, backend=backend)
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_keeps_the_dtype_of_v_and_no_autocast_rounds_it(
    door: Door, make: Callable[..., Heads], relative_error: Error, dtype: torch.dtype
) -> None:
    heads = tuple(x.to(dtype) for x in make())
    o = door(*heads)
    assert o.dtype == dtype
    expected = door(*(x.double() for x in heads), backend="reference")
    assert relative_error(o, expected) < (1e-5 if dtype == torch.float32 else 2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(door(*heads), o)


def test_no_unwritten_memory_is_read(
    door: Door, make: Callable[..., Heads], cached: Cached, request: pytest.FixtureRequest
) -> None:
    heads, (kept, here, there) = make(queries=ROWS + 1), cached
    through = partial(door, *kept, query_positions=here, key_positions=there)
    clean = door(*heads), through()
    request.getfixturevalue("poisoned_memory")
    assert torch.equal(door(*heads), clean[0])
    assert torch.equal(through(), clean[1])


def test_replicas_stack(door: Door, make: Callable[..., Heads], cached: Cached) -> None:
    assert_replicas_stack(door, [make(queries=ROWS + 5, key_heads=2) for _ in range(3)], 1e-12)
    _, here, there = cached
    through = partial(door, query_positions=here, key_positions=there)
    assert_replicas_stack(through, [make(queries=3, keys=12, key_heads=2) for _ in range(3)], 1e-12)


def test_replicas_have_scales_of_their_own(door: Door, make: Callable[..., Heads]) -> None:
    def scaled(q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> Tensor:
        return door(q, k, v, scale=scale)

    assert_replicas_stack(scaled, [(*make(), (1.0 + r) * PER_HEAD) for r in range(3)], 1e-12)


def test_no_matrix_of_all_queries_and_keys_is_kept(door: Door) -> None:
    length = 16 * ROWS
    heads = [torch.randn(1, length, 1, K, requires_grad=True) for _ in range(3)]
    assert saved_numbers(lambda: door(*heads)) < length**2 / 4
    assert saved_numbers(lambda: door(*(x[:, :ROWS] for x in heads))) > ROWS**2


def test_numerical_gradients(door: Door, make: Callable[..., Heads]) -> None:
    given = tuple(x[:1, :, :2].clone().requires_grad_() for x in make(queries=16))
    assert torch.autograd.gradcheck(partial(door, backend="blocks"), given)


@pytest.mark.parametrize("shape", [(0, 4, 2, K), (2, 0, 2, K)])
def test_nothing_gives_nothing(door: Door, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    y = door(x, x, x)
    assert y.shape[:3] == x.shape[:3]
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_that_are_no_numbers_give_no_numbers(
    door: Door, make: Callable[..., Heads], backend: str
) -> None:
    """On a GPU an index made of NaN would end the process."""
    q, k, v = make()
    q[1, 3:] = torch.nan
    o = door(q, k, v, backend=backend)
    assert o[1, 3:].isnan().all()
    assert o[1, :3].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_is_refused(door: Door, make: Callable[..., Heads], backend: str) -> None:
    q, k, v = make()
    positions = torch.arange(T).expand(B, T)
    for name in ("query_positions", "key_positions"):
        with pytest.raises(ValueError, match="query_positions and key_positions"):
            door(q, k, v, backend=backend, **{name: positions})
    with pytest.raises(ValueError, match="Hk dividing H"):
        door(q, k[:, :-1], v, backend=backend)
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        door(q, k, v, backend="dense")
    with pytest.raises(ValueError, match="at least one"):
        door(q[:, :, :0], k[:, :, :0], v[:, :, :0])


@pytest.mark.parametrize("name", DOORS)
def test_too_few_blocks_are_refused(name: str, make: Callable[..., Heads]) -> None:
    function, least = DOORS[name]
    for block, blocks in ((0, least), (3, least - 1)):
        with pytest.raises(ValueError, match=f"blocks at least {least}"):
            function(*make(), block=block, blocks=blocks)
    assert function(*make(), block=1, blocks=least).isfinite().all()


@pytest.mark.parametrize("function", [mixture_of_blocks, selected])
@pytest.mark.parametrize("key_heads", [1, 2, H])
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_blocks_are_softmax_attention(
    function: Door, make: Callable[..., Heads], key_heads: int, backend: str
) -> None:
    given = make(key_heads=key_heads)
    whole = partial(attention, backend="reference")
    for block, blocks in ((3, T // 3), (4, T), (T, 3), (T + 1, 3)):
        assert_parity(partial(function, block=block, blocks=blocks, backend=backend), whole, given)
    fewer = function(*given, block=3, blocks=T // 3 - 1, backend=backend)
    assert not torch.allclose(fewer[:, -1], whole(*given)[:, -1])
    assert torch.allclose(fewer[:, :-3], whole(*given)[:, :-3], rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_block_is_a_sequence_of_its_own(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    given = make(key_heads=2)
    apart = torch.cat(
        [attention(*(x[:, i : i + 3] for x in given), backend="reference") for i in range(0, T, 3)], dim=1
    )
    o = mixture_of_blocks(*given, block=3, blocks=1, backend=backend)
    assert relative_error(o, apart) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_means_are_attention_to_fewer_keys(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    q, k, v = make(key_heads=2)
    compressed, _ = compressed_and_selected(q, k, v, block=3, blocks=3, backend=backend)
    assert not compressed[:, :2].any()
    mean_k, mean_v = (x.unflatten(1, (-1, 3)).mean(dim=2) for x in (k, v))
    ends = torch.arange(T // 3).expand(B, -1)
    for late in range(3):  # a query at the end of a block sees it, and the next two see no more
        mine = q[:, 2 + late :: 3]
        expected = attention(
            mine,
            mean_k,
            mean_v,
            query_positions=ends[:, : mine.shape[1]],
            key_positions=ends,
            backend="reference",
        )
        assert relative_error(compressed[:, 2 + late :: 3], expected) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_grouped_keys_are_repeated_keys_where_queries_agree(
    make: Callable[..., Heads], relative_error: Error, backend: str
) -> None:
    q, k, v = make(key_heads=2)
    repeated = [x.repeat_interleave(2, dim=2) for x in (k, v)]
    options = {"block": 3, "backend": backend}
    alone = mixture_of_blocks(q, k, v, blocks=2, **options)
    assert relative_error(mixture_of_blocks(q, *repeated, blocks=2, **options), alone) < 1e-12
    alike = q[:, :, ::2].repeat_interleave(2, dim=2)
    for queries, same in ((alike, True), (q, False)):  # heads that share keys choose together
        shared, own = (both(queries, *kv, blocks=4, **options) for kv in ((k, v), repeated))
        assert (relative_error(shared, own) < 1e-12) == same


@pytest.mark.parametrize("backend", BACKENDS)
def test_choices_worked_by_hand(backend: str) -> None:
    """Values name their token. Means of blocks of two match the last query with 1, 3, 2, 0 and 5."""
    match = torch.tensor([1.0, 3.0, 2.0, 0.0, 5.0, 0.0], dtype=torch.float64).repeat_interleave(2)
    # one key of each block is far from its mean
    k = (match + 40 * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(6))[None, :, None, None]
    q, v = torch.ones_like(k), torch.eye(12, dtype=torch.float64)[None, :, None]

    def read(o: Tensor) -> list[int]:
        return sorted({int(i) // 2 for i in o[0, -1, 0].nonzero()})

    options = {"block": 2, "scale": 1e-3, "backend": backend}
    for blocks, expected in ((1, [5]), (2, [4, 5]), (3, [1, 4, 5]), (4, [1, 2, 4, 5])):
        assert read(mixture_of_blocks(q, k, v, blocks=blocks, **options)) == expected
    for blocks, expected in ((3, [0, 4, 5]), (4, [0, 1, 4, 5]), (5, [0, 1, 2, 4, 5])):
        assert read(selected(q, k, v, blocks=blocks, **options)) == expected
