import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
BOUNDS = [None, math.exp(-0.5)]

Make = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """offset, base."""

    def build(
        *shape: int, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        def draw(*size: int) -> Tensor:
            return torch.randn(*lead, *size, generator=generator, dtype=torch.float64).to(DEVICE)

        return 2 * draw(*shape).flatten(-2).to(dtype), draw(*shape[-2:]).float() - 1

    return build


def reference(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    logit = offset.unflatten(-1, base.shape) + base
    return -logit.exp() if bound is None else -bound / (1 + torch.exp(-logit))


def exact(inputs: tuple[Tensor, ...], bound: float | None) -> list[Tensor]:
    return results(reference, tuple(x.double() for x in inputs), bound=bound)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (63, 1, 7), (3, 65, 2, 16), (2100, 2, 3), (2, 3, 1000)])
def test_it_equals_the_reference(
    make: Make, backend: str, bound: float | None, shape: tuple[int, ...]
) -> None:
    inputs = make(*shape)
    assert_near(results(channel_decay, inputs, bound=bound, backend=backend), exact(inputs, bound), 2e-6)


@pytest.mark.parametrize("bound", BOUNDS)
def test_float64_stays_float64(make: Make, bound: float | None) -> None:
    offset, base = (x.double() for x in make(9, 2, 8))
    assert_near(results(channel_decay, (offset, base), bound=bound), exact((offset, base), bound), 1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_bfloat16_comes_out_wide(make: Make, backend: str, bound: float | None) -> None:
    inputs = make(65, 3, 8, dtype=torch.bfloat16)
    given = results(channel_decay, inputs, bound=bound, backend=backend)
    assert [x.dtype for x in given] == [torch.float32, torch.bfloat16, torch.float32]
    assert_near(given, exact(inputs, bound), 4e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ends_are_reached_and_slopes_are_exact_near_them(backend: str) -> None:
    offset = torch.tensor([-math.inf, -60.0, 15.0, 60.0], device=DEVICE).requires_grad_()
    y = channel_decay(offset, torch.zeros(1, 4, device=DEVICE), bound=0.5, backend=backend)
    assert torch.allclose(y.double(), -0.5 * torch.sigmoid(offset.double()), rtol=1e-5, atol=0)
    (slope,) = torch.autograd.grad(y.sum(), offset)
    assert slope.isfinite().all()
    free = channel_decay(offset.detach()[:2], torch.zeros(1, 2, device=DEVICE), backend=backend)
    assert torch.allclose(free.double(), -offset[:2].detach().double().exp(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_replicas_stack(make: Make, backend: str, bound: float | None) -> None:
    inputs = make(40, 3, 5, lead=(3,))
    together = results(
        lambda *given: torch.vmap(lambda *one: channel_decay(*one, bound=bound, backend=backend))(*given),
        inputs,
    )
    alone = results(
        lambda *given: torch.stack(
            [channel_decay(*(x[i] for x in given), bound=bound, backend=backend) for i in range(3)]
        ),
        inputs,
    )
    assert_near(together, alone, 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_no_unwritten_memory_is_read(
    make: Make, request: pytest.FixtureRequest, backend: str, bound: float | None
) -> None:
    inputs = make(100, 3, 5)
    clean = results(channel_decay, inputs, bound=bound, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(channel_decay, inputs, bound=bound, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize("bound", BOUNDS)
def test_several_tiles_to_a_program(make: Make, monkeypatch: pytest.MonkeyPatch, bound: float | None) -> None:
    from linbench.kernels.channel_decay import triton

    rule = triton.backward_launch
    monkeypatch.setattr(
        triton, "backward_launch", lambda *args, **options: rule(*args, **options)._replace(rows=2, tiles=4)
    )
    inputs = make(21, 3, 5)
    assert_near(results(channel_decay, inputs, bound=bound, backend="triton"), exact(inputs, bound), 2e-6)


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
@pytest.mark.parametrize("bound", BOUNDS)
def test_the_operator_compiles_whole(make: Make, bound: float | None) -> None:
    inputs = make(5, 3, 5)
    compiled = torch.compile(channel_decay, fullgraph=True, backend="aot_eager")
    given, expected = (
        results(function, inputs, bound=bound, backend="triton") for function in (compiled, channel_decay)
    )
    assert all(map(torch.equal, given, expected))
    offset, base = inputs
    torch.library.opcheck(
        torch.ops.linbench.channel_decay,
        (offset.requires_grad_(), base.reshape(1, -1).requires_grad_(), bound),
    )


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Make, replayed: Callable[..., list[Tensor]]) -> None:
    leaves, others = [x.requires_grad_() for x in make(65, 2, 48)], make(65, 2, 48)

    def step() -> tuple[Tensor, ...]:
        y = channel_decay(*leaves, backend="triton") + channel_decay(*leaves, bound=0.5, backend="triton")
        return y, *torch.autograd.grad(y.square().sum(), leaves)

    captured = replayed(step, leaves, others)
    assert all(map(torch.equal, captured, step()))


def test_what_does_not_fit_is_refused(make: Make) -> None:
    offset, base = make(5, 3, 8)
    for wrong in ((offset[:, 1:], base), (offset, base.flatten())):
        with pytest.raises(ValueError, match=r"offset \[\.\.\., H K\]"):
            channel_decay(*wrong)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        channel_decay(offset, base, backend="fast")  # type: ignore[arg-type]
