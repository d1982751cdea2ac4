from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.operators import runs_triton
from tests.kernels.comparing import assert_near, results

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here")

Inputs = list[Tensor]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Inputs]:
    """o, q, k, v and u, as replicas where `lead` says so."""

    def build(batch: int, length: int, heads: int, keys: int, values: int, *, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Inputs:
        sizes = [(batch, length, heads, values), *[(batch, length, heads, keys)] * 2, (batch, length, heads, values), (heads, keys)]
        return [torch.randn(*lead, *size, generator=generator).to(DEVICE, dtype) for size in sizes]

    return build


def own(o: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor) -> Tensor:
    from linbench.kernels.matrix_state.triton.bonus import with_own_write

    return with_own_write(o, q, k, v, u, 0.7)


def reference(o: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor) -> Tensor:
    return o + 0.7 * (q * u * k).sum(dim=-1, keepdim=True) * v


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (2, 63, 2, 16, 40), (3, 65, 3, 48, 16), (1, 100, 2, 200, 33), (40, 70, 5, 16, 16)])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 1.5e-2)])
def test_it_equals_the_reference(make: Callable[..., Inputs], shape: tuple[int, ...], dtype: torch.dtype, limit: float) -> None:
    inputs = make(*shape, dtype=dtype)
    given = results(own, inputs)
    assert {x.dtype for x in given} == {dtype}
    assert_near(given, results(reference, [x.double() for x in inputs]), limit)


def test_replicas_stack(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 33, 2, 16, 24, lead=(3,))
    together = results(lambda *given: torch.vmap(own)(*given), inputs)
    alone = results(lambda *given: torch.stack([own(*(x[i] for x in given)) for i in range(3)]), inputs)
    assert_near(together, alone, 1e-6)


def test_no_unwritten_memory_is_read(make: Callable[..., Inputs], request: pytest.FixtureRequest) -> None:
    inputs = make(3, 37, 3, 20, 12)
    clean = results(own, inputs)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(own, inputs), clean))


def test_the_operator_compiles_whole(make: Callable[..., Inputs]) -> None:
    inputs = make(2, 5, 2, 16, 16)
    compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, results(compiled, inputs), results(own, inputs)))


@pytest.mark.parametrize("shape", [(16,), (2, 1), (2, 16)])
def test_the_door_takes_it_for_whatever_broadcasts(make: Callable[..., Inputs], shape: tuple[int, ...]) -> None:
    _, q, k, v, u = make(2, 7, 2, 16, 16)
    u = u[0] if len(shape) == 1 else u[:, : shape[1]]
    given, expected = (matrix_state(q, k, v, read="before", bonus=u, backend=backend)[0] for backend in ("triton", "chunkwise"))  # type: ignore[arg-type]
    assert torch.allclose(given, expected, atol=1e-4)
