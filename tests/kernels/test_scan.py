from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.scan import scan
from tests.helpers.gradients import assert_near, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["chunkwise"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]

Inputs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """a, b and a state; a from -1 to 1, among them exact zeros and ones."""

    def build(
        batch: int,
        length: int,
        channels: int,
        *,
        lead: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        def draw(function: Callable[..., Tensor], *size: int) -> Tensor:
            return function(*lead, *size, generator=generator, dtype=torch.float64)

        a = (4 * draw(torch.rand, batch, length, channels) - 2).clamp(-1, 1)
        a = torch.where(draw(torch.rand, batch, length, channels) < 0.02, torch.zeros_like(a), a)
        both = a, draw(torch.randn, batch, length, channels), draw(torch.randn, batch, channels)
        return tuple(x.to(DEVICE, dtype) for x in both)

    return build


def by_hand(a: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the scan as a sum over all pairs of steps."""
    total = torch.stack(
        [
            a[:, : t + 1].prod(dim=1) * state
            + sum(a[:, s + 1 : t + 1].prod(dim=1) * b[:, s] for s in range(t + 1))
            for t in range(b.shape[1])
        ],
        dim=1,
    )
    return total, total[:, -1]


def test_the_reference_is_the_sum(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 7, 3, dtype=torch.float64)
    assert_near(results(partial(scan, backend="reference"), inputs), results(by_hand, inputs), 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 1, 5), (3, 2, 4), (2, 63, 3), (1, 64, 33), (2, 65, 1), (1, 130, 34), (1, 300, 2)]
)
def test_it_equals_the_reference(
    make: Callable[..., Inputs], backend: str, shape: tuple[int, int, int]
) -> None:
    inputs = make(*shape)
    exact = results(partial(scan, backend="reference"), tuple(x.double() for x in inputs))
    assert_near(results(scan, inputs, backend=backend), exact, 2e-6)


@pytest.mark.skipif(INTERPRETED, reason="float64 is not Triton's")
@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 100, 257])
def test_in_float64_it_is_exact(make: Callable[..., Inputs], length: int) -> None:
    inputs = make(2, length, 3, dtype=torch.float64)
    assert_near(
        results(scan, inputs, backend="chunkwise"), results(partial(scan, backend="reference"), inputs), 1e-12
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_broadcast_and_a_sequence_starts_from_zero(make: Callable[..., Inputs], backend: str) -> None:
    a, b, state = make(2, 20, 3)
    for gate in (a[:1, :1], a[0, :, :1], a[:, :, :1], a[0, 0]):

        def alone(gate: Tensor, b: Tensor, state: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
            return scan(gate, b, **options)

        given = results(
            lambda *x, **options: tuple(y + 0 * x[2].sum() for y in alone(*x, **options)),
            (gate, b, state),
            backend=backend,
        )
        full = tuple(x.double() for x in (gate, b, state))
        exact = results(
            lambda gate, b, state: tuple(
                y + 0 * state.sum() for y in scan(gate.expand(b.shape), b, 0 * state, backend="reference")
            ),
            full,
        )
        assert_near(given[:4], exact[:4], 2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stopping_and_carrying_on_changes_nothing(make: Callable[..., Inputs], backend: str) -> None:
    a, b, state = make(2, 80, 3)
    whole, last = scan(a, b, state, backend=backend)
    assert torch.equal(last, whole[:, -1])
    for point in (1, 40, 79):
        first, middle = scan(a[:, :point], b[:, :point], state, backend=backend)
        second, _ = scan(a[:, point:], b[:, point:], middle, backend=backend)
        assert_near([torch.cat([first, second], dim=1)], [whole.double()], 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_step_depends_on_a_later_one(make: Callable[..., Inputs], backend: str) -> None:
    a, b, state = make(2, 80, 3)
    whole, _ = scan(a, b, state, backend=backend)
    for t in (1, 8, 63, 64, 79):
        changed, _ = scan(
            torch.cat([a[:, :t], -a[:, t:]], 1),
            torch.cat([b[:, :t], 3 * b[:, t:] + 1], 1),
            state,
            backend=backend,
        )
        assert torch.equal(changed[:, :t], whole[:, :t])
        assert not torch.equal(changed[:, t], whole[:, t])


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_comes_out_wide(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(2, 65, 3, dtype=torch.bfloat16)
    given = results(scan, inputs, backend=backend)
    assert [x.dtype for x in given] == [torch.float32] * 2 + [torch.bfloat16] * 3
    assert_near(given, results(partial(scan, backend="reference"), tuple(x.double() for x in inputs)), 4e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_stack(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(2, 20, 3, lead=(3,))
    together = results(torch.vmap(partial(scan, backend=backend)), inputs)
    each = [
        results(partial(scan, backend="reference"), tuple(x[i].double() for x in inputs))[:2]
        for i in range(3)
    ]
    assert_near(together[:2], [torch.stack(parts) for parts in zip(*each, strict=True)], 1e-6)
    exact = results(torch.vmap(partial(scan, backend="reference")), tuple(x.double() for x in inputs))
    assert_near(together, exact, 2e-6)
    a, b, state = inputs
    shared = results(
        lambda a, b, state: torch.vmap(partial(scan, backend=backend), in_dims=(None, 0, 0))(a, b, state),
        (a[0], b, state),
    )
    alone = results(
        lambda a, b, state: scan(a.repeat(3, 1, 1), b.flatten(0, 1), state.flatten(0, 1), backend=backend),
        (a[0], b, state),
    )
    assert_near(shared, [x.double().view(y.shape) for x, y in zip(alone, shared, strict=True)], 2e-6)


@pytest.mark.skipif(INTERPRETED, reason="an operator is not differentiated under a transform")
def test_replicas_of_a_gradient_stack(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 20, 3, lead=(3,))

    def loss(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
        return scan(a, b, state, backend="chunkwise")[0].square().sum()

    together = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*inputs)
    alone = [torch.func.grad(loss, argnums=(0, 1, 2))(*(x[i] for x in inputs)) for i in range(3)]
    assert_near([*together], [torch.stack(parts).double() for parts in zip(*alone, strict=True)], 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(
    make: Callable[..., Inputs], request: pytest.FixtureRequest, backend: str
) -> None:
    inputs = make(2, 70, 3)
    clean = results(scan, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(scan, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 5, 3)
    compiled = torch.compile(scan, fullgraph=True, backend="aot_eager")
    assert all(
        map(torch.equal, results(compiled, inputs, backend="triton"), results(scan, inputs, backend="triton"))
    )


@pytest.mark.gpu
def test_it_is_captured(make: Callable[..., Inputs], replayed: Callable[..., Any]) -> None:
    inputs, others = make(2, 70, 3), make(2, 70, 3)
    captured = replayed(lambda: scan(*inputs), inputs, others)
    assert all(map(torch.equal, captured, scan(*others)))


def test_shapes_that_do_not_fit_are_refused(make: Callable[..., Inputs]) -> None:
    a, b, state = make(2, 5, 3)
    for wrong, says in (
        ((a[:, :2], b), "a must"),
        ((a, b, state[:1]), "state must"),
        ((a, b[0]), "b must"),
        ((a, b[:, :0]), "b must"),
    ):
        with pytest.raises(ValueError, match=says):
            scan(*wrong)
    with pytest.raises(ValueError, match="one of auto, reference, chunkwise, triton"):
        scan(a, b, backend="fast")  # type: ignore[arg-type]
