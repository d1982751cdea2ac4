from itertools import pairwise

import pytest
import torch
from torch import Tensor

from linbench.kernels.adamw import Layout, Moments, Now, update
from linbench.kernels.adamw.cases import lay_out
from linbench.kernels.operators import INTERPRETED, Backend, runs_triton

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS: list[Backend] = [
    *(["torch"] if not INTERPRETED else []),  # type: ignore[list-item]
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),  # type: ignore[list-item]
]
R, BETAS = 3, (0.9, 0.98)
WIDTHS = (2052, 64, 1, 130, 1029)
"""Numbers of each parameter: of several pieces and of one, with rows at multiples of four and not."""
N = sum(WIDTHS)
SCALES, DECAYING = (1.0, 2.0, 1.0, 2.0, 0.5), (1.0, 0.0, 1.0, 0.0, 1.0)


def reference(weights: Tensor, gradients: list[Tensor], clip: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and moments after a step for each of the gradients, weight by weight as the paper has it."""
    rates, decays = (
        torch.tensor(values, dtype=torch.float64)[:, None] for values in ([1e-2, 3e-3, 1e-1], [0.1, 0.5, 0.0])
    )
    scale, decaying = (
        torch.tensor(values, dtype=torch.float64).repeat_interleave(torch.tensor(WIDTHS))
        for values in (SCALES, DECAYING)
    )
    w, m, v = weights.double().cpu(), torch.zeros(R, N).double(), torch.zeros(R, N).double()
    for t, given in enumerate(gradients, start=1):
        g = given.double().cpu()
        if clip is not None:
            g = g * (clip / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        rate = rates * scale / t
        w = (
            w
            - rate * decaying * decays * w
            - rate * (m / (1 - BETAS[0] ** t)) / ((v / (1 - BETAS[1] ** t)).sqrt() + 1e-8)
        )
    return w, m, v


def stepped(
    weights: Tensor, gradients: list[Tensor], clip: float | None, backend: Backend, replicas: int = R
) -> tuple[Tensor, ...]:
    """Return weights and moments [R, N] after a step for each of the gradients [R, N]."""
    layout = Layout.of(replicas, WIDTHS)
    flat = lay_out(layout, weights)
    moments = Moments(torch.zeros_like(flat), torch.zeros_like(flat))
    rates, decays = (
        torch.tensor(values[:replicas], dtype=torch.float64, device=DEVICE)
        for values in ([1e-2, 3e-3, 1e-1], [0.1, 0.5, 0.0])
    )
    made = update(flat, layout, scales=SCALES, decaying=DECAYING, backend=backend)
    for t, given in enumerate(gradients, start=1):
        numbers = torch.tensor(
            [1 / t, 1 - BETAS[0] ** t, 1 - BETAS[1] ** t], dtype=torch.float64, device=DEVICE
        )
        laid = lay_out(layout, given)
        norms = None if clip is None else made.norms(laid)
        made.step(flat, laid, moments, Now(numbers, rates, decays, norms, clip or 0.0, BETAS))
    for x in (flat, *moments):
        ends = [start + replicas * width for start, width in zip(layout.starts, WIDTHS, strict=False)]
        gaps = [x[end:start] for end, start in zip(ends, layout.starts[1:], strict=True)]
        assert not torch.cat(gaps).any(), "gaps stay zero"
    return tuple(torch.cat(layout.split(x), dim=1) for x in (flat, *moments))


def drawn(generator: torch.Generator, dtype: torch.dtype = torch.float32) -> tuple[Tensor, list[Tensor]]:
    weights, *gradients = (
        torch.randn(R, N, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for _ in range(4)
    )
    return weights, gradients


def test_parameters_lie_one_after_another_as_a_whole() -> None:
    layout = Layout.of(R, WIDTHS)
    assert [part.shape for part in layout.split(torch.zeros(layout.size))] == [(R, width) for width in WIDTHS]
    assert all(start % 64 == 0 for start in layout.starts)
    assert all(
        R * width <= after - start < R * width + 64
        for (start, after), width in zip(pairwise(layout.starts), WIDTHS, strict=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clip", [None, 1.0, 1e6])
def test_steps_are_those_of_the_paper(
    generator: torch.Generator, backend: Backend, clip: float | None
) -> None:
    weights, gradients = drawn(generator)
    for given, expected in zip(
        stepped(weights, gradients, clip, backend), reference(weights, gradients, clip), strict=True
    ):
        assert torch.allclose(given.double().cpu(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_norms_are_those_of_replicas(generator: torch.Generator, backend: Backend) -> None:
    weights, (gradients, *_) = drawn(generator)
    layout = Layout.of(R, WIDTHS)
    made = update(lay_out(layout, weights), layout, scales=SCALES, decaying=DECAYING, backend=backend)
    expected = gradients.double().norm(dim=1)
    assert torch.allclose(made.norms(lay_out(layout, gradients)).double(), expected, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_replica_alone_takes_the_steps_that_it_takes_in_a_stack(
    generator: torch.Generator, backend: Backend
) -> None:
    weights, gradients = drawn(generator)
    together = stepped(weights, gradients, 1.0, backend)
    alone = stepped(weights[:1], [given[:1] for given in gradients], 1.0, backend, replicas=1)
    for given, expected in zip(alone, together, strict=True):
        assert torch.allclose(given, expected[:1], rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(INTERPRETED, reason="Triton rounds to float32")
def test_float64_stays_float64(generator: torch.Generator) -> None:
    weights, gradients = drawn(generator, torch.float64)
    for given, expected in zip(
        stepped(weights, gradients, 1.0, "auto"), reference(weights, gradients, 1.0), strict=True
    ):
        assert torch.allclose(given.cpu(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_replica_breaks_alone(generator: torch.Generator, backend: Backend) -> None:
    weights, gradients = drawn(generator)
    sound = stepped(weights, gradients, 1.0, backend)
    gradients[1][1, 7] = float("nan")
    broken = stepped(weights, gradients, 1.0, backend)
    for given, expected in zip(broken, sound, strict=True):
        assert torch.equal(given[[0, 2]], expected[[0, 2]])
    assert broken[0][1].isnan().all(), "the norm is that of all its gradient"


def test_a_backend_that_does_not_run_is_refused(generator: torch.Generator) -> None:
    weights, gradients = drawn(generator)
    with pytest.raises(ValueError, match="one of auto, torch, triton"):
        stepped(weights, gradients, None, "fast")  # type: ignore[arg-type]


@pytest.mark.skipif(INTERPRETED, reason="torch's form")
def test_replicas_that_a_narrow_dtype_cannot_count_have_their_own_rates() -> None:
    """bfloat16 has no 257."""
    replicas = 258
    layout = Layout.of(replicas, [8])
    weights = torch.ones(layout.size, dtype=torch.bfloat16)
    made = update(weights, layout, scales=[1.0], decaying=[0.0], backend="torch")
    moments = Moments(torch.zeros_like(weights), torch.zeros_like(weights))
    rates = torch.tensor([0.25, 0.5] * (replicas // 2), dtype=torch.float64)
    numbers = torch.tensor([1.0, 1 - BETAS[0], 1 - BETAS[1]], dtype=torch.float64)
    made.step(weights, weights.clone(), moments, Now(numbers, rates, 0 * rates, None, 0.0, BETAS))
    moved = 1 - layout.split(weights)[0][:, 0].double()
    assert torch.allclose(moved, rates, rtol=0.02)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("widths", [(0,), (0, 5)])
def test_parameters_without_numbers_are_passed_over(
    backend: Backend, replicas: int, widths: tuple[int, ...]
) -> None:
    layout = Layout.of(replicas, widths)
    weights = lay_out(layout, torch.ones(replicas, sum(widths), device=DEVICE))
    if not weights.numel() and backend == "triton":
        pytest.skip("of nothing torch's form makes nothing")
    some = [1.0] * len(widths)
    made = update(weights, layout, scales=some, decaying=some, backend=backend)
    gradients = lay_out(layout, torch.full((replicas, sum(widths)), 2.0, device=DEVICE))
    norms = made.norms(gradients)
    assert torch.allclose(norms, torch.full_like(norms, 2 * sum(widths) ** 0.5))
    rates = torch.full((replicas,), 0.1, dtype=torch.float64, device=DEVICE)
    numbers = torch.tensor([1.0, 1 - BETAS[0], 1 - BETAS[1]], dtype=torch.float64, device=DEVICE)
    moments = Moments(torch.zeros_like(weights), torch.zeros_like(weights))
    made.step(weights, gradients, moments, Now(numbers, rates, 0 * rates, norms, 1.0, BETAS))
    assert torch.allclose(layout.split(weights)[-1], torch.tensor(0.9, device=DEVICE), rtol=1e-4)
