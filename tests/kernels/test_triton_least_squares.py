"""Least squares whose systems Triton solves: what the step-by-step reference says."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.least_squares import least_squares
from linbench.kernels.operators import INTERPRETED, prefer_backend, runs_triton
from linbench.verify.kernel_errors import poisoned
from tests.helpers.gradients import assert_near, assert_replicas_stack, results

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended"),
]

all_nan = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
"""The interpreter warns of the largest of numbers that are all NaN."""

Inputs = list[Tensor]
Make = Callable[..., Inputs]


@pytest.fixture(autouse=True)
def all_else_in_torch() -> Iterator[None]:
    """The interpreter takes its time, and kernels of other families have tests of their own."""
    with prefer_backend("chunkwise" if INTERPRETED else "auto"):
        yield


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """q, k, v, log decay, strength, ridge, root and C, the last five in float32.

    The Gram matrix of the state is the product of `root` with itself.
    """

    def build(
        length: int,
        heads: int = 1,
        key_dim: int = 16,
        value_dim: int = 8,
        *,
        batch: int = 1,
        key_heads: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        def draw(*size: int) -> Tensor:
            return torch.randn(batch, *size, generator=generator, dtype=torch.float64)

        tokens = [
            draw(length, key_heads or heads, key_dim),
            F.normalize(draw(length, key_heads or heads, key_dim), dim=-1),
            draw(length, heads, value_dim),
        ]
        rest = [
            F.logsigmoid(3 + draw(length, heads)),
            draw(length, heads).sigmoid(),
            0.5 + draw(length, heads, key_dim).sigmoid(),
            0.3 * draw(heads, key_dim, key_dim),
            draw(heads, key_dim, value_dim),
        ]
        return [x.to(DEVICE, dtype) for x in tokens] + [x.to(DEVICE, torch.float32) for x in rest]

    return build


def call(*given: Tensor, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, log_decay, strength, ridge, root, cross = given
    o, state = least_squares(
        q,
        k,
        v,
        log_decay=log_decay,
        strength=strength,
        ridge=ridge,
        state=(root @ root.mT, cross),
        **options,
    )
    return o, *state


in_triton = partial(call, backend="triton")
exactly = partial(call, backend="reference", method="exact")


def held_to_float64(given: Inputs, exact: Callable[..., Any] = exactly, **options: Any) -> None:
    """Hold outputs, state and gradients to float64, where memory that nobody has written holds NaN."""
    with poisoned():
        found = results(partial(in_triton, **options), given)
    expected = results(exact, [x.double() for x in given])
    outputs, gradients = LIMITS[given[0].dtype]
    assert_near(found[:3], expected[:3], outputs)
    assert_near(found[3:], expected[3:], gradients)


# one token, and one less and one more than a chunk of bfloat16 keys has, which is two of float32 keys
@pytest.mark.parametrize("length", [1, 63, 65, 100])
@pytest.mark.parametrize("dtype", LIMITS)
def test_outputs_state_and_gradients(make: Make, length: int, dtype: torch.dtype) -> None:
    held_to_float64(make(length, dtype=dtype))


@pytest.mark.parametrize(("key_dim", "value_dim"), [(5, 1), (16, 100), (28, 28), (64, 64), (100, 8)])
@pytest.mark.parametrize("dtype", LIMITS)
def test_widths(make: Make, key_dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_float64(make(37, 1, key_dim, value_dim, dtype=dtype))


def test_chebyshev(make: Make) -> None:
    held_to_float64(make(70, key_dim=28), method="chebyshev", steps=60)


@pytest.mark.parametrize("method", ["cg", "chebyshev"])
@pytest.mark.parametrize("steps", [1, 3])
def test_few_steps_are_those_of_the_torch_form(make: Make, method: str, steps: int) -> None:
    """Far from converged, with its gradient."""
    options: dict[str, Any] = {"method": method, "steps": steps}
    held_to_float64(make(70), partial(call, backend="chunkwise", **options), **options)


def test_with_kernels_of_other_families(make: Make) -> None:
    with prefer_backend("auto"):
        held_to_float64(make(37))


def test_sequences_and_heads_stay_apart(make: Make) -> None:
    held_to_float64(make(20, 4, batch=2, key_heads=2))


def test_without_a_decay_or_a_state_and_with_one_ridge(make: Make) -> None:
    def plain(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, ...]:
        o, state = least_squares(q, k, v, ridge=0.7, **options)
        return o, *state

    given = make(37, 2)[:3]
    expected = results(partial(plain, backend="reference"), [x.double() for x in given])
    assert_near(results(partial(plain, backend="triton"), given), expected, 5e-5)


def test_stopping_and_carrying_on_changes_nothing(make: Make) -> None:
    given = make(100)
    whole, *last = in_triton(*given)
    state = given[6] @ given[6].mT, given[7]
    for point in (1, 31, 64):
        parts, memory = [], state
        for tokens in zip(*(x.split([point, 100 - point], dim=1) for x in given[:6]), strict=True):
            named = dict(zip(("log_decay", "strength", "ridge"), tokens[3:], strict=True))
            o, memory = least_squares(*tokens[:3], **named, state=memory, backend="triton")
            parts.append(o)
        assert_near([torch.cat(parts, dim=1), *memory], [whole, *last], 1e-5)


@pytest.mark.parametrize("decay", [-200.0, -torch.inf])
def test_a_reset_hides_nothing_that_follows(make: Make, decay: float) -> None:
    given = make(70)
    given[3][:, [20, 21, 66]] = decay
    held_to_float64(given, partial(call, backend="chunkwise", method="exact"))


@pytest.mark.parametrize("decay", [-5.0, -10.0])
@pytest.mark.parametrize("dtype", LIMITS)
def test_gradients_of_strong_decays_are_no_rounding(make: Make, decay: float, dtype: torch.dtype) -> None:
    """They are small beside what is read and written, of which nothing may be left in them."""
    given = make(200, dtype=dtype)
    given[3][:] = decay
    held_to_float64(given)


@all_nan
@pytest.mark.parametrize("place", [0, 5, 6], ids=["q", "ridge", "root"])
@pytest.mark.parametrize("method", ["cg", "chebyshev"])
def test_nan_makes_nan(make: Make, place: int, method: str) -> None:
    given = make(20)
    given[place][:] = torch.nan
    o, *_, dq, dk, dv = results(partial(in_triton, method=method), given)[:6]
    assert all(bool(x.isnan().all()) for x in (o, dk, dv))
    assert bool(dq.isnan().all()) == (place > 0)


@all_nan
def test_nan_gradients_make_nan(make: Make) -> None:
    given = [x.requires_grad_() for x in make(20)]
    o, *_ = in_triton(*given)
    gradients = torch.autograd.grad(o, given[:3], torch.full_like(o, torch.nan))
    assert all(bool(x.isnan().all()) for x in gradients)


def test_float32_values_beside_16_bit_keys_keep_their_digits(make: Make) -> None:
    given = make(40)
    given[1] = given[1].bfloat16()
    o, *_ = in_triton(*given)
    assert_near([o], exactly(*(x.double() for x in given))[:1], 1e-5)


def test_a_ridge_below_the_least_has_no_gradient(make: Make) -> None:
    given = make(40)
    given[5] = torch.tensor([0.0, 1.0]).repeat(8).to(DEVICE)
    found = results(partial(in_triton, steps=100), given)
    assert_near(found, results(partial(call, backend="chunkwise", method="exact"), given), 1e-4)
    assert not found[8][::2].any()


def test_how_inputs_lie_in_memory_does_not_matter(make: Make) -> None:
    given = make(40, 2)
    apart = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in given]
    assert all(map(torch.equal, results(in_triton, apart), results(in_triton, given)))


@pytest.mark.parametrize("dtype", LIMITS)
def test_a_singular_gram_matrix_breaks_nothing(make: Make, dtype: torch.dtype) -> None:
    q, k, v, log_decay, strength, ridge, root, cross = make(70, dtype=dtype)
    for keys in (0 * k, k[:, :1].expand_as(k), 1e3 * k[:, :2].repeat(1, 35, 1, 1)):
        given = q, keys, v, log_decay, strength, 0 * ridge, 0 * root, 0 * cross
        assert all(x.isfinite().all() for x in results(in_triton, given))


@pytest.mark.parametrize("method", ["cg", "chebyshev"])
def test_small_queries_are_not_taken_for_zero(make: Make, method: str) -> None:
    """Squares of 1e-25 are zero in float32."""
    given = make(40)
    o, *_ = in_triton(1e-25 * given[0], *given[1:], method=method)
    assert_near([1e25 * o], in_triton(*given, method=method)[:1], 1e-5)


@pytest.mark.parametrize("method", ["cg", "chebyshev"])
def test_replicas_stack_and_results_are_the_same_every_time(make: Make, method: str) -> None:
    def output(*given: Tensor) -> Tensor:
        return in_triton(*given, method=method, steps=3)[0]

    each = [make(34) for _ in range(2)]
    assert_replicas_stack(output, each, 1e-5)
    assert all(map(torch.equal, results(output, each[0]), results(output, each[0])))

    def loss(*given: Tensor) -> Tensor:
        return output(*given).square().sum()

    argnums = (*range(8),)
    stacked = torch.vmap(torch.func.grad(loss, argnums))(*map(torch.stack, zip(*each, strict=True)))
    alone = [torch.func.grad(loss, argnums)(*given) for given in each]
    assert_near([*stacked], [torch.stack(parts) for parts in zip(*alone, strict=True)], 1e-5)


def test_the_future_is_not_seen(make: Make) -> None:
    given = make(80)
    whole, *_ = in_triton(*given)
    for t in (1, 40, 79):
        changed = [torch.cat([x[:, :t], 0.5 * x[:, t:]], dim=1) for x in given[:6]]
        o, *_ = in_triton(*changed, *given[6:])
        assert torch.equal(o[:, :t], whole[:, :t])
        assert not torch.equal(o[:, t:], whole[:, t:])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_it_compiles_whole(make: Make) -> None:
    given = make(20)
    compiled = torch.compile(partial(in_triton, steps=3), fullgraph=True, backend="aot_eager")
    assert_near(results(compiled, given), results(partial(in_triton, steps=3), given), 1e-6)


@pytest.mark.skipif(INTERPRETED, reason="there is no GPU")
@pytest.mark.gpu
def test_it_is_captured(make: Make, replayed: Callable[..., Any]) -> None:
    given, others = make(600, 2), make(600, 2)
    captured = replayed(lambda: results(in_triton, given), given, others)
    assert all(map(torch.equal, captured, results(in_triton, others)))


@pytest.mark.parametrize("options", [{"method": "exact"}, {"gradient": "unrolled"}], ids=str)
def test_what_it_has_no_kernel_for_is_refused(make: Make, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of auto, reference, chunkwise"):
        in_triton(*make(4), **options)


def test_wide_keys_and_float64_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="one of auto, reference, chunkwise"):
        in_triton(*make(4, 1, 160))
    with pytest.raises(ValueError, match="not in float64"):
        in_triton(*(x.double() for x in make(4)))
