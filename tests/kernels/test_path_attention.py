"""The door of attention whose positions are products of reflections."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention, reflected_blocks
from linbench.kernels.attention.reflected_blocks import carried
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.matrix_state import Delta, matrix_state
from tests.helpers.gradients import assert_near, results, saved_numbers

B, T, H, K, V = 2, 9, 4, 8, 5
SHIPPED, CHUNK = reflected_blocks.CHUNK, 16  # the reference takes its time for every token
BACKENDS = ["reference", "blocks"]
PER_HEAD = torch.tensor([0.3, 1.0, 2.0, 0.0], dtype=torch.float64)

Error = Callable[[Tensor, Tensor], float]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Make = Callable[..., Inputs]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflected_blocks, "CHUNK", CHUNK)


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    def build(length: int = T, *, key_heads: int = H) -> Inputs:
        q, k, v, w = (
            torch.randn(B, length, *shape, dtype=torch.float64, generator=generator)
            for shape in ((H, K), (key_heads, K), (key_heads, V), (key_heads, K))
        )
        beta = 2 * torch.rand(B, length, key_heads, dtype=torch.float64, generator=generator)
        return q, k, v, F.normalize(w, dim=-1), beta

    return build


def gated(*given: Tensor, **options: Any) -> Tensor:
    """PaTH-FoX of logarithms of forget gates."""
    *inputs, log_forget = given
    sums = log_forget.cumsum(dim=1)
    return path_attention(*inputs, kept=(sums, sums), **options)


def gates(length: int, generator: torch.Generator) -> Tensor:
    return -torch.rand(B, length, H, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("length", [2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 6])
def test_outputs_and_gradients_equal_the_reference(
    make: Make, generator: torch.Generator, length: int
) -> None:
    given = (*make(length), gates(length, generator))
    assert_near(*(results(gated, given, backend=name) for name in reversed(BACKENDS)), limit=1e-9)


@pytest.mark.parametrize("length", [SHIPPED - 1, SHIPPED + 1, 2 * SHIPPED + 22])
def test_blocks_as_they_are_shipped_give_the_same(
    make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    given = (*make(length), gates(length, generator))
    small = results(gated, given)
    monkeypatch.setattr(reflected_blocks, "CHUNK", SHIPPED)
    assert_near(results(gated, given), small, limit=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_token_reads_itself(make: Make, relative_error: Error, backend: str) -> None:
    q, k, v, w, beta = make(1)
    assert relative_error(path_attention(q, k, v, w, beta, backend=backend), v) < 1e-12


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("scale", [0.7, PER_HEAD], ids=["one scale", "scale per head"])
def test_scales_and_grouped_keys(make: Make, key_heads: int, scale: float | Tensor) -> None:
    given = make(CHUNK + 3, key_heads=key_heads)
    expected = results(path_attention, given, scale=scale, backend="reference")
    assert_near(results(path_attention, given, scale=scale), expected, 1e-9)

    def ungrouped(q: Tensor, *others: Tensor) -> Tensor:
        q = q * (scale[:, None] if isinstance(scale, Tensor) else scale)
        return path_attention(q, *(x.repeat_interleave(H // key_heads, dim=2) for x in others), scale=1.0)

    assert_near(results(ungrouped, given), expected, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("split", [1, 5, CHUNK + 4])
def test_keys_carried_in_a_cache_are_read_as_those_of_the_whole(
    make: Make, generator: torch.Generator, relative_error: Error, backend: str, split: int
) -> None:
    """Empty places of the cache hold no number, and their gates neither."""
    length = split + CHUNK + 2
    q, k, v, w, beta = make(length, key_heads=2)
    sums = gates(length, generator).cumsum(dim=1)
    expected = path_attention(q, k, v, w, beta, kept=(sums, sums))[:, split:]
    at_end, _ = carried(k[:, :split], w[:, :split], beta[:, :split])
    hole = torch.full((B, 3, 2, K), float("nan"), dtype=torch.float64)
    keys = torch.cat([at_end, hole, k[:, split:]], dim=1).requires_grad_()
    values = torch.cat([v[:, :split], hole[..., :V], v[:, split:]], dim=1).requires_grad_()
    positions = torch.cat([torch.arange(split), torch.full((3,), EMPTY), torch.arange(split, length)])
    at_keys = torch.cat([sums[:, :split], hole.flatten(2)[..., :H], sums[:, split:]], dim=1)
    o = path_attention(
        q[:, split:],
        keys,
        values,
        w[:, split:],
        beta[:, split:],
        key_positions=positions.expand(B, -1),
        kept=(sums[:, split:], at_keys),
        backend=backend,
    )
    assert relative_error(o, expected) < 1e-9
    o.square().sum().backward()
    for leaf in (keys, values):
        assert leaf.grad.isfinite().all()
        assert not leaf.grad[:, split : split + 3].any()


@pytest.mark.parametrize("length", [1, CHUNK, 2 * CHUNK + 5])
def test_carried_keys_are_reflected_by_every_later_token(
    make: Make, generator: torch.Generator, length: int
) -> None:
    _, k, _, w, beta = make(length)
    before = torch.randn(B, H, 3, K, dtype=torch.float64, generator=generator)
    by_hand = stepped = before
    for t in range(length):
        along = w[:, t, :, :, None]
        step = torch.eye(K, dtype=torch.float64) - beta[:, t, :, None, None] * along @ along.mT
        by_hand = torch.cat([by_hand @ step.mT, k[:, t, :, None]], dim=2)
        own, stepped = carried(*(x[:, t : t + 1] for x in (k, w, beta)), stepped)
        stepped = torch.cat([stepped, own.transpose(1, 2)], dim=2)
    at_end, cached = carried(k, w, beta, before)
    together = torch.cat([cached, at_end.transpose(1, 2)], dim=2)
    for found in (stepped, together):
        torch.testing.assert_close(found, by_hand, rtol=0, atol=1e-12)
    alone, none = carried(k, w, beta)
    assert none is None
    assert torch.equal(alone, at_end)


@pytest.mark.parametrize("length", [1, 5])
def test_carried_keys_are_in_float32_and_no_autocast_rounds_them(
    make: Make, generator: torch.Generator, length: int
) -> None:
    _, k, _, w, beta = (x.float() for x in make(length))
    before = torch.randn(B, H, 3, K, generator=generator)
    expected = carried(k.bfloat16(), w, beta, before)
    assert all(part.dtype == torch.float32 for part in expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, carried(k.bfloat16(), w, beta, before), expected))


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_strength_it_is_softmax_attention_without_positions(
    make: Make, generator: torch.Generator, relative_error: Error, backend: str
) -> None:
    q, k, v, w, beta = make(CHUNK + 3, key_heads=2)
    sums = gates(CHUNK + 3, generator).cumsum(dim=1)
    for kept in (None, (sums, sums)):
        expected = attention(q, k, v, kept=kept)
        found = path_attention(q, k, v, w, 0 * beta, kept=kept, backend=backend)
        assert relative_error(found, expected) < 1e-12
        assert relative_error(path_attention(q, k, v, w, beta, kept=kept, backend=backend), expected) > 1e-2


def test_gates_that_keep_all_change_nothing_and_late_ones_are_exact(
    make: Make, relative_error: Error
) -> None:
    given = make(CHUNK + 3)
    same = torch.zeros(B, CHUNK + 3, H, dtype=torch.float64)
    plain = path_attention(*given)
    assert relative_error(path_attention(*given, kept=(same, same)), plain) < 1e-12
    falling = same - 0.1 * torch.arange(CHUNK + 3, dtype=torch.float64)[:, None]
    expected = path_attention(*given, kept=(falling, falling))
    late = falling - 1e6  # in float32 these would be the same number, or a sixteenth apart
    found = path_attention(*(x.float() for x in given), kept=(late, late))
    assert relative_error(found, expected) < 1e-5


def test_reflections_of_two_are_two_delta_rules(make: Make, relative_error: Error) -> None:
    """Products of reflections with beta = 2 have inverses: queries and keys are carried back to the start."""
    q, k, v, w, beta = make(2 * CHUNK + 5)
    twice = torch.full_like(beta, 2.0)
    erased = [
        x - matrix_state(x, w, w, update=Delta(twice), scale=1.0, backend="reference")[0] for x in (q, k)
    ]
    assert relative_error(path_attention(q, k, v, w, twice), attention(*erased, v)) < 1e-9


def test_its_scores_without_softmax_are_a_delta_rule(make: Make, relative_error: Error) -> None:
    """Scores with w = k of length one, summed over values beta v, are what DeltaNet reads.

    A score is what is left of the query: its logarithm is known from how two keys alone share the weight.
    """
    q, _, v, w, beta = make(30)
    expected, _ = matrix_state(q, w, v, update=Delta(beta), scale=1.0, backend="reference")
    found = torch.zeros_like(expected)
    for j in range(30):
        # one value, for key j alone; the same key without its score would be read as a half
        score = _score_of(j, q, w, beta)
        found += score[..., None] * (beta[:, j, :, None] * v[:, j])[:, None]
    assert relative_error(found, expected) < 1e-6


def _score_of(j: int, q: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """Scores [B, T, H] of key j = w_j for every query, zero where it is not seen.

    Of two keys that may be read, the other is zero, whose score is zero.
    """
    length = q.shape[1]
    nothing = torch.zeros(B, 1, H, K, dtype=torch.float64)
    # a cache of one zero, then keys of which only one is there
    keys = torch.cat([nothing, w], dim=1)
    places = torch.full((length + 1,), EMPTY)
    places[0], places[j + 1] = 0, j + 1
    values = torch.zeros(B, length + 1, H, 1, dtype=torch.float64)
    values[:, j + 1] = 1.0
    share = path_attention(
        q, keys, values, w, beta, key_positions=places.expand(B, -1), scale=1.0, backend="blocks"
    )[..., 0]
    return torch.where(share > 0, share.logit(), 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_future_is_not_seen(make: Make, backend: str) -> None:
    given = make(CHUNK + 5, key_heads=2)
    whole = path_attention(*given, backend=backend)
    for t in (1, 4, CHUNK, CHUNK + 4):
        changed = [x.clone() for x in given]
        for x in changed:
            x[:, t:] = 0.7
        o = path_attention(*changed, backend=backend)
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.slow
def test_near_parallel_directions_keep_their_digits(
    make: Make, relative_error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflected_blocks, "CHUNK", SHIPPED)
    q, k, v, w, beta = (x[:1] for x in make(4 * SHIPPED))
    w, beta = F.normalize(w[:, :1] + 1e-3 * w, dim=-1), torch.full_like(beta, 1.99)
    expected = path_attention(q, k, v, w, beta, backend="reference")
    assert relative_error(path_attention(*(x.float() for x in (q, k, v, w, beta))), expected) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_keeps_the_dtype_of_v_and_no_autocast_rounds_it(
    make: Make, relative_error: Error, dtype: torch.dtype
) -> None:
    *heads, w, beta = make(CHUNK + 5)
    given = (*(x.to(dtype) for x in heads), w.float(), beta.float())
    o = path_attention(*given)
    assert o.dtype == dtype
    expected = path_attention(*(x.double() for x in given), backend="reference")
    assert relative_error(o, expected) < (1e-5 if dtype == torch.float32 else 2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(path_attention(*given), o)


def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest) -> None:
    given = make(CHUNK + 5)
    clean = path_attention(*given)
    request.getfixturevalue("poisoned_memory")
    assert torch.equal(path_attention(*given), clean)


def test_replicas_stack(make: Make, generator: torch.Generator) -> None:
    each = [(*make(CHUNK + 3), gates(CHUNK + 3, generator)) for _ in range(3)]

    def learned(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in given]
        o = function(*leaves)
        return [o.detach(), *torch.autograd.grad((o * o.detach().cos()).sum(), leaves)]

    together = learned(torch.vmap(gated), [torch.stack(x) for x in zip(*each, strict=True)])
    for r, given in enumerate(each):
        for found, expected in zip(together, learned(gated, list(given)), strict=True):
            torch.testing.assert_close(found[r], expected, rtol=1e-12, atol=1e-12)


def test_no_matrix_of_all_queries_and_keys_is_kept() -> None:
    length = 32 * CHUNK
    q, k, v, w = (torch.randn(1, length, 1, K, requires_grad=True) for _ in range(4))
    beta = torch.rand(1, length, 1)
    assert saved_numbers(lambda: path_attention(q, k, v, w, beta)) < length**2 / 2


def test_numerical_gradients(make: Make) -> None:
    given = tuple(x[:1, :4, :2].clone().requires_grad_() for x in make())
    assert torch.autograd.gradcheck(partial(path_attention, backend="blocks"), given)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_nothing_gives_nothing(backend: str) -> None:
    x, beta = torch.ones(0, 4, 2, K, requires_grad=True), torch.ones(0, 4, 2)
    y = path_attention(x, x, x, x, beta, backend=backend)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_is_refused(make: Make, backend: str) -> None:
    q, k, v, w, beta = make(key_heads=2)
    for wrong in ((q, k[:, :-1], v), (q, k[..., :4], v), (q, k[:1], v), (q[:, :, :3], k, v)):
        with pytest.raises(ValueError, match="Hk dividing H"):
            path_attention(*wrong, w, beta, backend=backend)
    for wrong_w, wrong_beta in ((w[:, :-1], beta), (w[..., :4], beta), (w, beta[:, :, :1]), (q, beta)):
        with pytest.raises(ValueError, match="w is"):
            path_attention(q, k, v, wrong_w, wrong_beta, backend=backend)
    with pytest.raises(ValueError, match="a place for each query"):
        path_attention(q, k[:, 1:], v[:, 1:], w, beta, backend=backend)
    with pytest.raises(ValueError, match="a place for each query"):
        path_attention(q, k, v, w, beta, key_positions=torch.arange(T), backend=backend)
    with pytest.raises(ValueError, match="kept is"):
        path_attention(q, k, v, w, beta, kept=(beta, beta), backend=backend)
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        path_attention(q, k, v, w, beta, backend="dense")
    with pytest.raises(ValueError, match="w is"):
        carried(k, w[:, 1:], beta)
