"""The door of DeltaFormer's values, which are corrected by what attention reads at their keys."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.calls import ROWS
from linbench.kernels.attention.corrections import corrected_values
from tests.helpers.gradients import assert_near, assert_replicas_stack, results, saved_numbers

B, T, H, K, V = 2, 9, 4, 8, 5
BACKENDS = ["reference", "blocks"]
PER_HEAD = torch.tensor([0.3, 1.0, 2.0, 0.0], dtype=torch.float64)

Error = Callable[[Tensor, Tensor], float]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Make = Callable[..., Inputs]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    def build(length: int = T, *, key_heads: int = H) -> Inputs:
        q, k, v = (
            torch.randn(B, length, *shape, dtype=torch.float64, generator=generator)
            for shape in ((H, K), (key_heads, K), (key_heads, V))
        )
        return q, k, v, torch.rand(B, length, H, dtype=torch.float64, generator=generator)

    return build


def weights(q: Tensor, k: Tensor) -> Tensor:
    """Softmax over strictly earlier keys [B, H, T, T]; the first row is zero."""
    scores = torch.einsum("bthk,bshk->bhts", q, k) * K**-0.5
    seen = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril(-1)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen, 0.0)


@pytest.mark.parametrize("length", [3, 63, 65, ROWS, ROWS + 1, 2 * ROWS + 3])
def test_outputs_and_gradients_equal_the_reference(make: Make, length: int) -> None:
    given = make(length)
    assert_near(
        *(results(partial(corrected_values, backend=name), given) for name in reversed(BACKENDS)), limit=1e-9
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_value_stays(make: Make, backend: str) -> None:
    q, k, v, beta = make(1)
    assert torch.equal(corrected_values(q, k, v, beta, backend=backend), v)


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("scale", [0.7, PER_HEAD], ids=["one scale", "scale per head"])
def test_scales_and_grouped_keys(make: Make, key_heads: int, scale: float | Tensor) -> None:
    given = make(ROWS + 3, key_heads=key_heads)
    expected = results(corrected_values, given, scale=scale, backend="reference")
    assert_near(results(corrected_values, given, scale=scale), expected, 1e-9)

    def ungrouped(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
        q = q * (scale[:, None] if isinstance(scale, Tensor) else scale)
        k, v = (x.repeat_interleave(H // key_heads, dim=2) for x in (k, v))
        return corrected_values(q, k, v, beta, scale=1.0)

    assert_near(results(ungrouped, given), expected, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("split", [1, 5, ROWS + 4])
def test_values_of_a_cache_are_not_corrected_again(
    make: Make, relative_error: Error, backend: str, split: int
) -> None:
    """Empty places of the cache hold no number."""
    length = split + 7
    q, k, v, beta = make(length)
    expected = corrected_values(q, k, v, beta)
    hole = torch.full((B, 3, H, K), float("nan"), dtype=torch.float64)
    keys = torch.cat([k[:, :split], hole, k[:, split:]], dim=1).requires_grad_()
    values = torch.cat([expected[:, :split], hole[..., :V], v[:, split:]], dim=1).requires_grad_()
    places = torch.cat([torch.arange(split), torch.full((3,), EMPTY), torch.arange(split, length)])
    u = corrected_values(
        q[:, split:], keys, values, beta[:, split:], key_positions=places.expand(B, -1), backend=backend
    )
    assert relative_error(u, expected[:, split:]) < 1e-9
    u.square().sum().backward()
    for leaf in (keys, values):
        assert leaf.grad.isfinite().all()
        assert not leaf.grad[:, split : split + 3].any()
        assert leaf.grad[:, :split].any()


@pytest.mark.parametrize("empty", [0, 3])
def test_gradients_through_a_cache_equal_the_reference(make: Make, empty: int) -> None:
    q, k, v, beta = make(12)
    places = torch.arange(12).masked_fill(torch.arange(12) < empty, EMPTY).expand(B, -1)

    def later(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, backend: str) -> Tensor:
        return corrected_values(q[:, 4:], k, v, beta[:, 4:], key_positions=places, backend=backend)

    assert_near(
        *(results(partial(later, backend=name), (q, k, v, beta)) for name in reversed(BACKENDS)), limit=1e-9
    )


def test_the_first_of_a_cache_without_keys_stays(make: Make) -> None:
    q, k, v, beta = make(6)
    places = torch.arange(6).masked_fill(torch.arange(6) < 4, EMPTY).expand(B, -1)
    for backend in BACKENDS:
        u = corrected_values(q[:, 4:], k, v, beta[:, 4:], key_positions=places, backend=backend)
        torch.testing.assert_close(u[:, 0], v[:, 4], rtol=0, atol=0)
        expected = v[:, 5] - beta[:, 5, :, None] * v[:, 4]  # the only key before it has all the weight
        torch.testing.assert_close(u[:, 1], expected, rtol=1e-12, atol=1e-12)


def test_it_is_the_inverse_of_a_matrix_and_a_series(make: Make, relative_error: Error) -> None:
    """The matrix is nilpotent, so its Neumann series ends: with every term a value is corrected once more."""
    q, k, v, beta = make(40)
    u = corrected_values(q, k, v, beta).transpose(1, 2)
    step = beta.mT[..., None] * weights(q, k)
    solved = torch.linalg.solve(torch.eye(40, dtype=torch.float64) + step, v.transpose(1, 2))
    assert relative_error(u, solved) < 1e-10
    term = series = v.transpose(1, 2)
    errors = []
    for _ in range(39):
        term = -step @ term
        series = series + term
        errors.append(relative_error(series, u))
    assert errors[-1] < 1e-10
    assert errors[0] > 1e-2


def test_what_is_read_of_them_is_the_products_of_three_matrices(make: Make, relative_error: Error) -> None:
    """O = A (I + diag(beta) B)^-1 V, with A the softmax that has the diagonal."""
    q, k, v, beta = make(40)
    read = attention(q, k, corrected_values(k, k, v, beta))
    scores = torch.einsum("bthk,bshk->bhts", q, k) * K**-0.5
    A = scores.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
    system = torch.eye(40, dtype=torch.float64) + beta.mT[..., None] * weights(k, k)
    expected = A @ torch.linalg.inv(system) @ v.transpose(1, 2)
    assert relative_error(read.transpose(1, 2), expected) < 1e-10


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_strength_values_stay(make: Make, backend: str) -> None:
    q, k, v, beta = make()
    assert torch.equal(corrected_values(q, k, v, 0 * beta, backend=backend), v)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_written_twice_is_overwritten(backend: str) -> None:
    """Attention recalls keys that are far apart exactly, and a full correction erases what was there."""
    k = 100 * torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1]][None, :, None]
    v = torch.tensor([3.0, 5.0, 7.0, 11.0, 13.0], dtype=torch.float64)[None, :, None, None]
    u = corrected_values(k, k, v, torch.ones(1, 5, 1, dtype=torch.float64), backend=backend)
    # a first write takes off the mean of what is there, which no other key matches
    assert u.flatten()[[0, 1, 3, 4]].tolist() == pytest.approx([3.0, 2.0, 8.0, 11.0], rel=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_future_is_not_seen(make: Make, backend: str) -> None:
    given = make(ROWS + 5, key_heads=2)
    whole = corrected_values(*given, backend=backend)
    for t in (1, 4, ROWS, ROWS + 4):
        changed = [x.clone() for x in given]
        for x in changed:
            x[:, t:] = 0.7
        u = corrected_values(*changed, backend=backend)
        assert torch.equal(u[:, :t], whole[:, :t])
        assert not torch.equal(u[:, t:], whole[:, t:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_keeps_the_dtype_of_v_and_no_autocast_rounds_it(
    make: Make, relative_error: Error, dtype: torch.dtype
) -> None:
    given = [x.to(dtype) for x in make(ROWS + 5)]
    u = corrected_values(*given)
    assert u.dtype == dtype
    expected = corrected_values(*(x.double() for x in given), backend="reference")
    assert relative_error(u, expected) < (1e-5 if dtype == torch.float32 else 2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(corrected_values(*given), u)


def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest) -> None:
    given = make(ROWS + 5)
    clean = results(corrected_values, given)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(corrected_values, given), clean))


def test_replicas_stack(make: Make) -> None:
    each = [make(ROWS + 3) for _ in range(3)]
    assert_replicas_stack(corrected_values, each, 1e-12)


def test_no_matrix_of_all_queries_and_keys_is_kept() -> None:
    length = 8 * ROWS
    q, k, v = (torch.randn(1, length, 1, K, requires_grad=True) for _ in range(3))
    assert saved_numbers(lambda: corrected_values(q, k, v, torch.rand(1, length, 1))) < length**2 / 8


def test_numerical_gradients(make: Make) -> None:
    given = tuple(x[:1, :4, :2].clone().requires_grad_() for x in make())
    assert torch.autograd.gradcheck(partial(corrected_values, backend="blocks"), given)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_nothing_gives_nothing(backend: str) -> None:
    x, beta = torch.ones(0, 4, 2, K, requires_grad=True), torch.ones(0, 4, 2)
    u = corrected_values(x, x, x, beta, backend=backend)
    assert u.shape == x.shape
    u.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_is_refused(make: Make, backend: str) -> None:
    q, k, v, beta = make(key_heads=2)
    for wrong in ((q, k[:, :-1], v), (q, k[..., :4], v), (q, k[:1], v), (q[:, :, :3], k, v)):
        with pytest.raises(ValueError, match="Hk dividing H"):
            corrected_values(*wrong, beta, backend=backend)
    for wrong_beta in (beta[:, 1:], beta[:, :, :2], beta[0]):
        with pytest.raises(ValueError, match="beta is"):
            corrected_values(q, k, v, wrong_beta, backend=backend)
    for fewer, many_k, many_v in ((q, k[:, 1:], v[:, 1:]), (q[:, 1:], k, v)):
        with pytest.raises(ValueError, match="a place for each token"):
            corrected_values(fewer, many_k, many_v, beta, backend=backend)
    with pytest.raises(ValueError, match="key_positions is"):
        corrected_values(q, k, v, beta, key_positions=torch.arange(T), backend=backend)
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        corrected_values(q, k, v, beta, backend="dense")
