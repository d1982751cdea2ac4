from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.erasure import erasure
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, results

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
LIMITS = {torch.float32: 2e-6, torch.bfloat16: 1.5e-2}

Inputs = tuple[Tensor, ...]
Make = Callable[..., Inputs]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """k, offset, base, k_k, k_a."""

    def build(*shape: int, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Inputs:
        def draw(*size: int) -> Tensor:
            return torch.randn(*lead, *size, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

        own = shape[-2:]
        return draw(*shape), 2 * draw(*shape).flatten(-2), draw(*own), draw(*own), 1 + draw(*own)

    return build


def reference(k: Tensor, offset: Tensor, base: Tensor, k_k: Tensor, k_a: Tensor) -> tuple[Tensor, ...]:
    rate = 1 / (1 + torch.exp(-base - offset.unflatten(-1, base.shape)))
    c = k * k_k
    c = c / c.square().sum(dim=-1, keepdim=True).sqrt()
    return k * (rate * k_a + 1 - k_a), -c, rate * c


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 5), (63, 1, 7), (3, 65, 2, 16), (5, 3, 5), (2100, 2, 3), (3, 1, 3000)]
)
def test_it_equals_the_reference(
    make: Make, backend: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    inputs = make(*shape, dtype=dtype)
    given = results(erasure, inputs, backend=backend)
    assert all(x.dtype == dtype for x in given)
    assert_near(given, results(reference, tuple(x.double() for x in inputs)), LIMITS[dtype])


def test_float64_stays_float64(make: Make) -> None:
    inputs = make(9, 2, 8, dtype=torch.float64)
    assert_near(results(erasure, inputs), results(reference, inputs), 1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_results_come_in_the_dtype_that_is_asked_for(make: Make, backend: str) -> None:
    inputs = make(40, 2, 24)
    given = results(erasure, inputs, dtype=torch.bfloat16, backend=backend)
    assert [x.dtype for x in given] == [torch.bfloat16] * 3 + [torch.float32] * 5
    assert_near(given, results(reference, tuple(x.double() for x in inputs)), LIMITS[torch.bfloat16])


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_key_erases_nothing(make: Make, backend: str) -> None:
    k, *others = make(5, 2, 8)
    k[:3] = 0.0
    written, erased, rated, *gradients = results(erasure, (k, *others), backend=backend)
    assert not any(y[:3].any() for y in (written, erased, rated))
    assert all(x.isfinite().all() for x in gradients)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("offset", "rate"), [(-80.0, 0.0), (80.0, 1.0)])
def test_rates_reach_their_ends(make: Make, backend: str, offset: float, rate: float) -> None:
    k, there, base, k_k, k_a = make(5, 2, 8)
    written, erased, rated, *gradients = results(
        erasure, (k, torch.full_like(there, offset), base, k_k, k_a), backend=backend
    )
    assert torch.allclose(rated, -rate * erased, rtol=0, atol=1e-30)
    assert torch.allclose(written, k * (1 + (rate - 1) * k_a))
    assert gradients[1].abs().max() < 1e-30


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_taken(make: Make, backend: str) -> None:
    inputs = make(4, 6, 3, 8)
    views = (
        *(x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs[:2]),
        *(x.mT.contiguous().mT for x in inputs[2:]),
    )
    assert not any(view.is_contiguous() for view in views)
    assert_near(results(erasure, views, backend=backend), results(erasure, inputs, backend=backend), 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_stack(make: Make, backend: str) -> None:
    inputs = make(40, 2, 7, lead=(3,))
    together = results(lambda *given: torch.vmap(lambda *one: erasure(*one, backend=backend))(*given), inputs)
    each = [
        results(lambda *given: erasure(*given, backend=backend), tuple(x[i] for x in inputs))[:3]
        for i in range(3)
    ]
    assert_near(together[:3], [torch.stack(parts).double() for parts in zip(*each, strict=True)], 1e-6)
    wanted = results(lambda *given: torch.vmap(reference)(*given), tuple(x.double() for x in inputs))
    assert_near(together, wanted, LIMITS[torch.float32])


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest, backend: str) -> None:
    inputs = make(100, 3, 7)
    clean = results(erasure, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(erasure, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_several_tiles_to_a_program(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from linbench.kernels.erasure import triton

    rule = triton.backward_launch
    monkeypatch.setattr(
        triton, "backward_launch", lambda *args, **options: rule(*args, **options)._replace(rows=2, tiles=4)
    )
    inputs = make(21, 3, 8)
    assert_near(
        results(erasure, inputs, backend="triton"),
        results(reference, tuple(x.double() for x in inputs)),
        LIMITS[torch.float32],
    )


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Make) -> None:
    inputs = make(5, 3, 8)
    compiled = torch.compile(erasure, fullgraph=True, backend="aot_eager")
    assert all(
        map(
            torch.equal,
            results(compiled, inputs, backend="triton"),
            results(erasure, inputs, backend="triton"),
        )
    )
    k, offset, *own = inputs
    leaves = [x.requires_grad_() for x in (k, offset.view(k.shape), *(x[None] for x in own))]
    torch.library.opcheck(torch.ops.linbench.erasure, (*leaves, torch.float32))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # captured and compared on two streams
def test_a_cuda_graph_replays_it(make: Make, replayed: Callable[..., list[Tensor]]) -> None:
    leaves, others = [x.requires_grad_() for x in make(65, 2, 48)], make(65, 2, 48)

    def step() -> tuple[Tensor, ...]:
        made = erasure(*leaves, backend="triton")
        return *made, *torch.autograd.grad(torch.cat(made).square().sum(), leaves)

    captured = replayed(step, leaves, others)
    assert all(map(torch.equal, captured, step()))


def test_what_does_not_fit_is_refused(make: Make) -> None:
    k, offset, base, k_k, k_a = make(5, 3, 8)
    for wrong in (
        (k[1:], offset, base, k_k, k_a),
        (k, offset.view(k.shape), base, k_k, k_a),
        (k, offset, base, k_k[1:], k_a),
    ):
        with pytest.raises(ValueError, match=r"offset \[\.\.\., H K\]"):
            erasure(*wrong)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        erasure(k, offset, base, k_k, k_a, backend="fast")  # type: ignore[arg-type]
