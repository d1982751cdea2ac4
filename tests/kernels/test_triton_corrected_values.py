"""DeltaFormer's corrected values in Triton: what the step-by-step reference says."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.attention.corrections import corrected_values
from linbench.kernels.operators import INTERPRETED, runs_triton
from linbench.verify.kernel_errors import poisoned
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

triton_values = partial(corrected_values, backend="triton")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for every number; a GPU has the blocks that it has."""
    if INTERPRETED:
        from linbench.kernels.attention.triton import corrected_blocks

        monkeypatch.setattr(corrected_blocks, "BLOCK", 16)
        monkeypatch.setattr(corrected_blocks, "TOGETHER", 32)


@pytest.fixture
def make(generator: torch.Generator) -> Make:
    """q, k, v and beta, the last in float32."""

    def build(
        length: int,
        heads: int = 1,
        dim: int = 16,
        *,
        batch: int = 1,
        value_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Inputs:
        def draw(*last: int) -> Tensor:
            return torch.randn(batch, length, heads, *last, generator=generator, dtype=torch.float64)

        q, k, v = (draw(width).to(DEVICE, dtype) for width in (dim, dim, value_dim or dim))
        return q, k, v, torch.sigmoid(draw()).float().to(DEVICE)

    return build


def held_to_the_reference(given: Inputs, form: str = "reference", **options: Any) -> None:
    """Hold outputs and gradients to float64, where memory that nobody has written holds NaN."""
    with poisoned():
        found = results(triton_values, given, **options)
    exact = results(corrected_values, [x.double() for x in given], backend=form, **options)
    outputs, gradients = LIMITS[given[0].dtype]
    assert_near(found[:1], exact[:1], outputs)
    assert_near(found[1:], exact[1:], gradients)


# less than a block, one and a token, and parts of two blocks, of which the last is not full
@pytest.mark.parametrize("length", [3, 17, 63, 65, 100])
def test_outputs_and_gradients(make: Make, length: int) -> None:
    held_to_the_reference(make(length))


@pytest.mark.skipif(INTERPRETED, reason="the interpreter's blocks are smaller")
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("length", [64, 257, 1100])
def test_parts_as_a_gpu_has_them(make: Make, length: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make(length, dtype=dtype), "blocks")


def test_the_only_value_stays(make: Make) -> None:
    q, k, v, beta = (x.requires_grad_() for x in make(1, 2, batch=2))
    u = triton_values(q, k, v, beta)
    assert torch.equal(u, v)
    u.sum().backward()
    assert torch.equal(v.grad, torch.ones_like(v))
    assert not any(x.grad.any() for x in (q, k, beta))


@pytest.mark.parametrize(("dim", "value_dim"), [(8, 20), (32, 64), (100, 128), (128, 16)])
@pytest.mark.parametrize("dtype", LIMITS)
def test_widths(make: Make, dim: int, value_dim: int, dtype: torch.dtype) -> None:
    held_to_the_reference(make(37, 1, dim, value_dim=value_dim, dtype=dtype))


def test_sequences_and_heads_stay_apart(make: Make) -> None:
    held_to_the_reference(make(18, 3, 16, batch=2))


def test_keys_that_ask_by_themselves(make: Make) -> None:
    _, k, v, beta = make(40)

    def keyed(k: Tensor, v: Tensor, beta: Tensor, backend: str) -> Tensor:
        return corrected_values(k, k, v, beta, backend=backend)

    found = results(keyed, (k, v, beta), backend="triton")
    exact = results(keyed, [x.double() for x in (k, v, beta)], backend="reference")
    assert_near(found, exact, LIMITS[torch.float32][1])


def test_grouped_keys_and_a_scale_per_head(make: Make) -> None:
    q, k, v, beta = make(18, 4)
    scale = torch.tensor([0.3, 1.0, 2.0, 0.1], device=DEVICE)
    held_to_the_reference((q, k[:, :, :2], v[:, :, :2], beta), scale=scale)


def test_parts_of_one_map_are_read_where_they_lie(make: Make) -> None:
    q, k, v, beta = make(20, 2)
    joined = torch.cat([x.flatten(2) for x in (q, k, v)], dim=-1)
    parts = [x.unflatten(-1, (2, -1)) for x in joined.chunk(3, dim=-1)]
    assert not parts[0].is_contiguous()
    found, expected = (results(triton_values, (*x, beta)) for x in (parts, (q, k, v)))
    assert all(map(torch.equal, found, expected))


def test_large_scores_leave_no_holes(make: Make) -> None:
    q, k, v, beta = make(40)
    held_to_the_reference((30 * q, k, v, beta))


def test_replicas_stack_and_results_are_the_same_every_time(make: Make) -> None:
    each = [make(34) for _ in range(2)]

    assert_replicas_stack(triton_values, each, 1e-5)
    for given in each:
        assert all(map(torch.equal, learned(triton_values, given), learned(triton_values, given)))


def test_the_future_is_not_seen(make: Make) -> None:
    given = make(40)
    whole = triton_values(*given)
    for t in (1, 16, 39):
        u = triton_values(*(torch.cat([x[:, :t], 3 * x[:, t:] - 1], dim=1) for x in given))
        assert torch.equal(u[:, :t], whole[:, :t])
        assert not torch.equal(u[:, t:], whole[:, t:])


def test_it_compiles_whole(make: Make) -> None:
    given = make(20)
    compiled = torch.compile(triton_values, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, results(compiled, given), results(triton_values, given)))


@pytest.mark.skipif(INTERPRETED, reason="an operator is checked where it is quick")
@pytest.mark.gpu
def test_it_is_captured(make: Make, replayed: Callable[..., Any]) -> None:
    given, others = make(600, 2), make(600, 2)
    captured = replayed(lambda: results(triton_values, given), given, others)
    assert all(map(torch.equal, captured, results(triton_values, others)))


def test_every_pair_of_blocks_meets_once() -> None:
    from linbench.kernels.attention.triton.corrected_blocks import steps

    for blocks in range(1, 40):
        for together in (1, 2, 4):
            seen = [[0] * blocks for _ in range(blocks)]
            for done, count, later in steps(blocks, together):
                solved = range(done, min(done + together, blocks))
                for m in solved:
                    for n in range(done, m):
                        seen[m][n] += 1
                after = done + together
                for m in range(after, after + later):
                    for n in range(after - count, after):
                        seen[m][n] += 1
            assert seen == [[int(n < m) for n in range(blocks)] for m in range(blocks)]


def test_what_it_has_no_kernel_for_is_refused(make: Make) -> None:
    q, k, v, beta = make(4)
    places = torch.arange(4, device=DEVICE)[None]
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        triton_values(q, k, v, beta, key_positions=places)
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        triton_values(q[:, 1:], k, v, beta[:, 1:])
    with pytest.raises(ValueError, match="one of auto, blocks, reference"):
        triton_values(*make(4, 1, 160))
    with pytest.raises(ValueError, match="not in float64"):
        triton_values(*(x.double() for x in (q, k, v, beta)))
