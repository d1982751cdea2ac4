from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.kernels.rotary import angles, rotate, rotate_at
from tests.helpers import gradients
from tests.helpers.gradients import assert_near

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]

Inputs = tuple[Tensor, Tensor, Tensor]
Make = Callable[..., Inputs]


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """x [B, T, H, D] between other channels, cos and sin of any angles [B or 1, T, D/2]."""

    def build(
        batch: int,
        length: int,
        heads: int,
        dim: int,
        *,
        own: bool = False,
        lead: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        wide = torch.randn(*lead, batch, length, 3 * heads * dim, generator=generator).to(DEVICE, dtype)
        angle = 9 * torch.randn(batch if own else 1, length, dim // 2, generator=generator).to(DEVICE)
        return wide[..., heads * dim : 2 * heads * dim].unflatten(-1, (heads, dim)), angle.cos(), angle.sin()

    return build


def reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.complex(*x.chunk(2, dim=-1)) * torch.complex(cos, sin).unsqueeze(-2)
    return torch.cat([turned.real, turned.imag], dim=-1)


def results(function: Callable[..., Tensor], inputs: Inputs, **options: str) -> list[Tensor]:
    """The result, and the gradient of x: angles have none."""
    x, *angle = inputs
    return gradients.results(lambda leaf: function(leaf, *angle, **options), [x])


def exact(inputs: Inputs) -> list[Tensor]:
    x, cos, sin = (each.double() for each in inputs)
    return results(reference, (x, cos, sin))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 2), (2, 63, 2, 6), (3, 65, 1, 64), (2, 100, 3, 36), (1, 7, 5, 1000)]
)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_it_equals_the_reference(
    make: Make, backend: str, shape: tuple[int, ...], own: bool, dtype: torch.dtype, limit: float
) -> None:
    inputs = make(*shape, own=own, dtype=dtype)
    given = results(rotate, inputs, backend=backend)
    assert {x.dtype for x in given} == {dtype}
    assert_near(given, exact(inputs), limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("own", [False, True])
def test_replicas_stack(make: Make, backend: str, own: bool) -> None:
    inputs = make(2, 5, 2, 6, own=own, lead=(3,))
    together = results(
        lambda x, *angle, **_: torch.vmap(lambda one: rotate(one, *angle, backend=backend))(x), inputs
    )  # type: ignore[arg-type]
    alone = results(
        lambda x, *angle, **_: torch.stack([rotate(one, *angle, backend=backend) for one in x]), inputs
    )  # type: ignore[arg-type]
    assert all(map(torch.equal, together, alone))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("own", [False, True])
def test_replicas_with_angles_of_their_own_stack(make: Make, backend: str, own: bool) -> None:
    every = [make(2, 5, 2, 6, own=own) for _ in range(3)]
    x, cos, sin = (torch.stack(each) for each in zip(*every, strict=True))
    together = torch.vmap(lambda *one: rotate(*one, backend=backend))(x, cos, sin)  # type: ignore[arg-type]
    one_x = torch.vmap(lambda *angle: rotate(x[0], *angle, backend=backend))(cos, sin)  # type: ignore[arg-type]
    assert torch.equal(together, torch.stack([rotate(*one, backend=backend) for one in every]))  # type: ignore[arg-type]
    assert torch.equal(one_x, torch.stack([rotate(x[0], c, s, backend=backend) for _, c, s in every]))  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_unwritten_memory_is_read(make: Make, request: pytest.FixtureRequest, backend: str) -> None:
    inputs = make(3, 33, 3, 6)
    clean = results(rotate, inputs, backend=backend)
    request.getfixturevalue("poisoned_memory")
    assert all(map(torch.equal, results(rotate, inputs, backend=backend), clean))


@pytest.mark.skipif("triton" not in BACKENDS, reason="no Triton here")
def test_the_operator_compiles_whole(make: Make) -> None:
    inputs = make(2, 5, 2, 6)
    compiled = torch.compile(rotate, fullgraph=True, backend="aot_eager")
    assert all(
        map(
            torch.equal,
            results(compiled, inputs, backend="triton"),
            results(rotate, inputs, backend="triton"),
        )
    )


def test_learned_angles_have_a_gradient(make: Make) -> None:
    x, cos, sin = make(1, 4, 1, 6)
    rotate(x, cos.requires_grad_(), sin).sum().backward()
    assert cos.grad is not None


def test_shapes_that_do_not_fit_are_refused(make: Make) -> None:
    x, cos, sin = make(3, 4, 2, 6)
    for given in (
        (x[..., :5], cos, sin),
        (x, cos[:, :3], sin[:, :3]),
        (x, cos.expand(2, -1, -1), sin.expand(2, -1, -1)),
    ):
        with pytest.raises(ValueError, match="cos and sin"):
            rotate(*given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("dim", "turned"), [(16, 16), (20, 10), (12, 12), (64, 2), (6, 4)])
def test_one_token_is_turned_by_the_angles_of_its_position(
    make: Make, dim: int, turned: int, backend: str
) -> None:
    x, _, _ = make(3, 1, 4, dim)
    positions = torch.tensor([[5], [900], [0]], device=DEVICE)
    for at in (positions, positions[1:2]):
        cos, sin = angles(at, turned, torch.float64)
        expected = torch.cat(
            [reference(x[..., :turned].double(), cos, sin), x[..., turned:].double()], dim=-1
        )
        assert_near(
            rotate_at((x, x[..., :1, :]), at, turned, backend=backend), [expected, expected[..., :1, :]], 1e-4
        )


def test_what_cannot_be_turned_is_refused(make: Make) -> None:
    x, _, _ = make(2, 1, 1, 6)
    here = torch.zeros(2, 1, dtype=torch.int64, device=DEVICE)
    for at, dims in ((here, 3), (here, 8), (here, 0), (here[:, :0], 4)):
        with pytest.raises(ValueError, match="positions"):
            rotate_at((x,), at, dims)
