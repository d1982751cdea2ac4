from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]

Inputs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """step, A_log, bias; steps from far below to far above zero."""

    def build(
        *shape: int, spread: float = 8.0, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float32
    ) -> Inputs:
        def draw(*size: int) -> Tensor:
            return torch.randn(*lead, *size, generator=generator, dtype=torch.float64).to(DEVICE)

        return (spread * draw(*shape)).to(dtype), draw(shape[-1]).float(), draw(shape[-1]).float() - 3

    return build


def reference(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    return -torch.exp(A_log) * torch.log1p(torch.exp(step + bias))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(1, 1), (63, 1), (3, 65, 2), (5, 7), (2100, 2), (17, 300), (2, 5000)])
@pytest.mark.parametrize("spread", [0.1, 8.0])
def test_it_equals_the_reference(
    make: Callable[..., Inputs], backend: str, shape: tuple[int, ...], spread: float
) -> None:
    inputs = make(*shape, spread=spread)
    exact = results(reference, tuple(x.double() for x in inputs))
    assert_near(results(decay_gate, inputs, backend=backend), exact, 2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_hardly_forgets_is_exact_too(backend: str) -> None:
    step = torch.linspace(-60, -8, 101, device=DEVICE)[:, None]
    y = decay_gate(step, torch.zeros(1, device=DEVICE), torch.zeros(1, device=DEVICE), backend=backend)
    assert torch.allclose(y.double(), -torch.log1p(step.double().exp()), rtol=1e-5, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_comes_out_wide(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(65, 3, dtype=torch.bfloat16)
    given = results(decay_gate, inputs, backend=backend)
    assert [x.dtype for x in given] == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    assert_near(given, results(reference, tuple(x.double() for x in inputs)), 4e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_stack(make: Callable[..., Inputs], backend: str) -> None:
    inputs = make(40, 3, lead=(3,))
    together = results(
        lambda *given: torch.vmap(lambda *one: decay_gate(*one, backend=backend))(*given), inputs
    )
    alone = results(
        lambda *given: torch.stack([decay_gate(*(x[i] for x in given), backend=backend) for i in range(3)]),
        inputs,
    )
    assert_near(together, alone, 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(
    make: Callable[..., Inputs], request: pytest.FixtureRequest, backend: str
) -> None:
    inputs = make(100, 3)
    clean = results(decay_gate, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(decay_gate, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Callable[..., Inputs]) -> None:
    inputs = make(5, 3)
    compiled = torch.compile(decay_gate, fullgraph=True, backend="aot_eager")
    assert all(
        map(
            torch.equal,
            results(compiled, inputs, backend="triton"),
            results(decay_gate, inputs, backend="triton"),
        )
    )


def test_shapes_that_do_not_fit_are_refused(make: Callable[..., Inputs]) -> None:
    step, A_log, bias = make(5, 3)
    with pytest.raises(ValueError, match="A_log"):
        decay_gate(step, A_log[1:], bias)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        decay_gate(step, A_log, bias, backend="fast")  # type: ignore[arg-type]
