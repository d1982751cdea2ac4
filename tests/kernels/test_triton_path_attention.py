"""PaTH attention in Triton: what the step-by-step reference says."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.attention.triton import reflected
from linbench.kernels.operators import INTERPRETED, runs_triton
from tests.helpers.gradients import assert_near, assert_replicas_stack, learned, results

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (8e-3, 1.5e-2)}

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not runs_triton(torch.empty(0, device=DEVICE)), reason="no Triton here"),
    pytest.mark.usefixtures("mended"),
]

Inputs = tuple[Tensor, ...]
Make = Callable[..., Inputs]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for every number; a GPU has the blocks that it has."""
    if INTERPRETED:
        monkeypatch.setattr(reflected, "BLOCK", 16)
        monkeypatch.setattr(reflected, "SPAN", 2)


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """q, k, v, w, beta and logarithms of gates; all but the first three in float32."""

    def build(
        length: int, heads: int, dim: int, *, value_dim: int | None = None, dtype: torch.dtype = torch.float32
    ) -> Inputs:
        def draw(*last: int) -> Tensor:
            return torch.randn(1, length, heads, *last, generator=generator, dtype=torch.float64).to(DEVICE)

        q, k, v = (draw(width).to(dtype) for width in (dim, dim, value_dim or dim))
        w, beta, gates = F.normalize(draw(dim), dim=-1), 2 * draw().sigmoid(), F.logsigmoid(2 * draw())
        return q, k, v, w.float(), beta.float(), gates.float()

    return build


def gated(*given: Tensor, backend: str = "triton") -> Tensor:
    """PaTH-FoX, or PaTH without gates."""
    if len(given) == 5:
        return path_attention(*given, backend=backend)
    sums = given[5].double().cumsum(dim=1)
    return path_attention(*given[:5], kept=(sums, sums), backend=backend)


def held_to_the_reference(given: Inputs) -> None:
    found = results(gated, given)
    exact = results(gated, [x.double() for x in given], backend="reference")
    outputs, gradients = LIMITS[given[0].dtype]
    assert_near(found[:1], exact[:1], outputs)
    assert_near(found[1:], exact[1:], gradients)


# one block, one and a half, and three and four spans of blocks, of which the last is not full
@pytest.mark.parametrize("blocks", [1.0, 1.5, 4.75, 7.0])
def test_outputs_and_gradients(make: Make, blocks: float) -> None:
    held_to_the_reference(make(int(blocks * reflected.BLOCK), 2, 16))


@pytest.mark.parametrize(("dim", "value_dim"), [(16, 16), (8, 20), (64, 32), (100, 128)])
def test_widths_and_no_gates(make: Make, dim: int, value_dim: int) -> None:
    dtype = torch.float32 if value_dim <= 64 else torch.bfloat16  # of wide heads
    held_to_the_reference(make(3 * reflected.BLOCK - 5, 1, dim, value_dim=value_dim, dtype=dtype)[:5])


def test_16_bits(make: Make) -> None:
    held_to_the_reference(make(5 * reflected.BLOCK, 1, 32, dtype=torch.bfloat16))


def test_few_tokens(make: Make) -> None:
    for length in (2, 3):
        held_to_the_reference(make(length, 2, 16))


def test_grouped_keys(make: Make) -> None:
    q, k, v, w, beta, _ = make(2 * reflected.BLOCK, 4, 16)
    held_to_the_reference((q, *(x[:, :, :2] for x in (k, v, w, beta))))


def test_replicas_stack_and_results_are_the_same_every_time(make: Make) -> None:
    each = [make(3 * reflected.BLOCK - 1, 2, 16) for _ in range(2)]

    assert_replicas_stack(gated, each, 1e-5)
    for given in each:
        assert all(map(torch.equal, learned(gated, given), learned(gated, given)))


def test_what_it_has_no_kernel_for_is_refused(make: Make) -> None:
    q, k, v, w, beta, gates = make(4, 1, 16)
    sums = gates.cumsum(dim=1)
    for options in (
        {"key_positions": torch.arange(4, device=DEVICE)[None]},
        {"kept": (sums, sums.clone())},
    ):
        with pytest.raises(ValueError, match="one of auto, blocks, reference"):
            path_attention(q, k, v, w, beta, backend="triton", **options)
    for wide in (make(4, 1, 160, dtype=torch.bfloat16), make(4, 1, 80)):
        with pytest.raises(ValueError, match="one of auto, blocks, reference"):
            path_attention(*wide[:5], backend="triton")
    with pytest.raises(ValueError, match="not in float64"):
        path_attention(*(x.double() for x in (q, k, v, w, beta)), backend="triton")
