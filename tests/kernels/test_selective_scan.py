from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.selective_scan import flops_per_token, selective_scan
from tests.helpers.gradients import assert_near, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["chunkwise"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
SHAPES = [
    (1, 1, 1, 1),
    (2, 1, 5, 4),
    (3, 2, 4, 16),
    (2, 63, 3, 2),
    (1, 64, 9, 3),
    (1, 7, 33, 3),
    (2, 65, 1, 16),
    (1, 70, 5, 5),
]
"""B, T, W, N."""

Inputs = tuple[Tensor, ...]
Make = Callable[..., Inputs]

both_ranges = pytest.mark.parametrize("signed", [False, True])
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """u, step, rate, write, read and a state; steps from hardly any to large ones, as many rates as are
    published."""

    def build(
        batch: int,
        length: int,
        width: int,
        states: int,
        *,
        lead: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        def draw(*size: int) -> Tensor:
            return torch.randn(*lead, *size, generator=generator, dtype=torch.float64)

        step = F.softplus(3 * draw(batch, length, width) - 2)
        rate = -(torch.arange(1, states + 1) + 0.3 * draw(width, states)).abs()
        both = (
            draw(batch, length, width),
            step,
            rate,
            draw(batch, length, states),
            draw(batch, length, states),
            draw(batch, width, states),
        )
        return tuple(x.to(DEVICE, dtype) for x in both)

    return build


def exactly(inputs: Inputs, **options: Any) -> list[Tensor]:
    return results(partial(selective_scan, backend="reference"), tuple(x.double() for x in inputs), **options)


@both_ranges
def test_the_reference_is_the_sum_over_all_earlier_tokens(make: Make, signed: bool) -> None:
    u, step, rate, write, read, state = inputs = make(2, 7, 3, 4, dtype=torch.float64)
    a = (step[..., None] * rate).exp()
    a = 2 * a - 1 if signed else a
    driven = (step * u)[..., None] * write[:, :, None]
    h = [
        a[:, : t + 1].prod(dim=1) * state
        + sum(a[:, s + 1 : t + 1].prod(dim=1) * driven[:, s] for s in range(t + 1))
        for t in range(7)
    ]
    y = torch.stack([(h[t] * read[:, t, None]).sum(dim=-1) for t in range(7)], dim=1)
    found, last = selective_scan(*inputs, signed=signed, backend="reference")
    assert_near([found, last], [y, h[-1]], 1e-12)


@both_ranges
@each_backend
@pytest.mark.parametrize("shape", SHAPES)
def test_it_equals_the_reference(make: Make, backend: str, shape: tuple[int, ...], signed: bool) -> None:
    inputs = make(*shape)
    assert_near(
        results(selective_scan, inputs, backend=backend, signed=signed), exactly(inputs, signed=signed), 5e-6
    )


@pytest.mark.gpu
@both_ranges
@pytest.mark.parametrize(
    "shape", [(2, 300, 256, 16), (16, 256, 128, 16), (3, 33, 40, 64), (1, 1000, 16, 100), (1, 4096, 128, 16)]
)
def test_it_equals_the_reference_on_a_gpu(make: Make, shape: tuple[int, ...], signed: bool) -> None:
    inputs = make(*shape)
    assert_near(
        results(selective_scan, inputs, backend="triton", signed=signed), exactly(inputs, signed=signed), 1e-5
    )


@pytest.mark.skipif(INTERPRETED, reason="float64 is not Triton's")
@both_ranges
@pytest.mark.parametrize("length", [1, 2, 16, 100])
def test_in_float64_it_is_exact(make: Make, length: int, signed: bool) -> None:
    inputs = make(2, length, 3, 4, dtype=torch.float64)
    assert_near(
        results(selective_scan, inputs, backend="chunkwise", signed=signed),
        exactly(inputs, signed=signed),
        1e-12,
    )


@each_backend
def test_stopping_and_carrying_on_changes_nothing(make: Make, backend: str) -> None:
    u, step, rate, write, read, state = inputs = make(2, 80, 3, 4)
    whole, last = selective_scan(*inputs, backend=backend)
    for point in (1, 40, 79):
        first, middle = selective_scan(
            u[:, :point], step[:, :point], rate, write[:, :point], read[:, :point], state, backend=backend
        )
        second, end = selective_scan(
            u[:, point:], step[:, point:], rate, write[:, point:], read[:, point:], middle, backend=backend
        )
        assert_near([torch.cat([first, second], dim=1), end], [whole, last], 1e-6)


@each_backend
def test_it_starts_from_zero(make: Make, backend: str) -> None:
    *inputs, state = make(2, 20, 3, 4)
    given, wanted = (
        selective_scan(*inputs, backend=backend),
        selective_scan(*inputs, torch.zeros_like(state), backend=backend),
    )
    assert all(map(torch.equal, given, wanted))


@each_backend
def test_no_output_depends_on_a_later_token(make: Make, backend: str) -> None:
    u, step, rate, write, read, state = inputs = make(2, 40, 3, 4)
    whole, _ = selective_scan(*inputs, backend=backend)
    for t in (1, 8, 15, 16, 17, 39):
        others = [torch.cat([x[:, :t], 2 * x[:, t:] + 1], dim=1) for x in (u, step, write, read)]
        changed, _ = selective_scan(others[0], others[1], rate, others[2], others[3], state, backend=backend)
        assert torch.equal(changed[:, :t], whole[:, :t])
        assert not torch.equal(changed[:, t], whole[:, t])


@each_backend
def test_bfloat16_comes_out_wide(make: Make, backend: str) -> None:
    inputs = make(2, 33, 3, 4, dtype=torch.bfloat16)
    given = results(selective_scan, inputs, backend=backend)
    assert [x.dtype for x in given] == [torch.float32] * 2 + [torch.bfloat16] * 6
    assert_near(given, exactly(inputs), 4e-3)


@both_ranges
@each_backend
def test_replicas_stack(make: Make, backend: str, signed: bool) -> None:
    """Each with rates of its own."""
    inputs = make(2, 20, 3, 4, lead=(3,))
    together = results(torch.vmap(partial(selective_scan, backend=backend, signed=signed)), inputs)
    exact = results(
        torch.vmap(partial(selective_scan, backend="reference", signed=signed)),
        tuple(x.double() for x in inputs),
    )
    assert_near(together, exact, 5e-6)
    each = [
        selective_scan(*(x[i].double() for x in inputs), backend="reference", signed=signed) for i in range(3)
    ]
    assert_near(together[:2], [torch.stack(parts) for parts in zip(*each, strict=True)], 5e-6)


@each_backend
def test_replicas_share_what_is_not_theirs(make: Make, backend: str) -> None:
    u, step, rate, write, read, state = make(2, 20, 3, 4)
    many = torch.stack([u, 2 * u, -u])

    def together(u: Tensor, rate: Tensor) -> Any:
        return torch.vmap(lambda u: selective_scan(u, step, rate, write, read, state, backend=backend))(u)

    def alone(u: Tensor, rate: Tensor) -> Any:
        found = [
            selective_scan(
                each, step.double(), rate, write.double(), read.double(), state.double(), backend="reference"
            )
            for each in u
        ]
        return [torch.stack(parts) for parts in zip(*found, strict=True)]

    assert_near(results(together, (many, rate)), results(alone, (many.double(), rate.double())), 5e-6)


@each_backend
def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest, backend: str) -> None:
    inputs = make(2, 35, 3, 5)
    clean = results(selective_scan, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(selective_scan, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Make) -> None:
    inputs = make(2, 5, 3, 4)
    compiled = torch.compile(selective_scan, fullgraph=True, backend="aot_eager")
    assert all(
        map(
            torch.equal,
            results(compiled, inputs, backend="triton"),
            results(selective_scan, inputs, backend="triton"),
        )
    )


@pytest.mark.gpu
def test_it_is_captured(make: Make, replayed: Callable[..., Any]) -> None:
    inputs, others = make(2, 70, 33, 16), make(2, 70, 33, 16)
    captured = replayed(lambda: selective_scan(*inputs), inputs, others)
    assert all(map(torch.equal, captured, selective_scan(*others)))


def test_shapes_that_do_not_fit_are_refused(make: Make) -> None:
    u, step, rate, write, read, state = make(2, 5, 3, 4)
    for wrong, says in (
        ((u, step[:, :4], rate, write, read), "step must be"),
        ((u, step, rate[:2], write, read), "rate must be"),
        ((u, step, rate, write[..., :3], read), "write must be"),
        ((u, step, rate, write, read[:1]), "read must be"),
        ((u, step, rate, write, read, state[:, :2]), "state must be"),
        ((u[:, :0], step, rate, write, read), "u must be"),
    ):
        with pytest.raises(ValueError, match=says):
            selective_scan(*wrong)


def test_operations_are_counted() -> None:
    assert flops_per_token(3, 4) == 3 * (4 * (1 + 2 + 1 + 2) + 1)
