import pytest
import torch
from torch import Tensor

from linbench.kernels.adamw import Moments, adamw
from linbench.kernels.operators import INTERPRETED, runs_triton

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    *(["torch"] if not INTERPRETED else []),
    *(["triton"] if runs_triton(torch.empty(0, device=DEVICE)) else []),
]
R, N, BETAS = 3, 2500, (0.9, 0.98)


def reference(weights: Tensor, gradients: list[Tensor], clip: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and moments after a step for each of the gradients, weight by weight as the paper has it."""
    rates, decays = (
        torch.tensor(values, dtype=torch.float64)[:, None] for values in ([1e-2, 3e-3, 1e-1], [0.1, 0.5, 0.0])
    )
    scale, decaying = factors(torch.float64)
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


def factors(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a factor of each weight for its learning rate, and one for its decay."""
    return 1 + (torch.arange(N) % 2).to(dtype), (torch.arange(N) % 3 == 0).to(dtype)


def stepped(
    weights: Tensor, gradients: list[Tensor], clip: float | None, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    weights = weights.clone()
    moments = Moments(torch.zeros_like(weights), torch.zeros_like(weights))
    rates, decays = (
        torch.tensor(values, dtype=torch.float64, device=DEVICE)
        for values in ([1e-2, 3e-3, 1e-1], [0.1, 0.5, 0.0])
    )
    scale, decaying = (x.to(DEVICE) for x in factors(weights.dtype))
    for t, given in enumerate(gradients, start=1):
        now = torch.tensor([1 / t, 1 - BETAS[0] ** t, 1 - BETAS[1] ** t], dtype=torch.float64, device=DEVICE)
        norms = None if clip is None else given.norm(dim=1)
        adamw(
            weights,
            given.clone(),
            moments,
            now,
            rates=rates,
            decays=decays,
            scale=scale,
            decaying=decaying,
            norms=norms,
            clip=clip or 0.0,
            betas=BETAS,
            backend=backend,
        )
    return weights, *moments


def drawn(generator: torch.Generator, dtype: torch.dtype = torch.float32) -> tuple[Tensor, list[Tensor]]:
    weights, *gradients = (
        torch.randn(R, N, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for _ in range(4)
    )
    return weights, gradients


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clip", [None, 1.0, 1e6])
def test_steps_are_those_of_the_paper(generator: torch.Generator, backend: str, clip: float | None) -> None:
    weights, gradients = drawn(generator)
    for given, expected in zip(
        stepped(weights, gradients, clip, backend), reference(weights, gradients, clip), strict=True
    ):
        assert torch.allclose(given.double().cpu(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(INTERPRETED, reason="Triton rounds to float32")
def test_float64_stays_float64(generator: torch.Generator) -> None:
    weights, gradients = drawn(generator, torch.float64)
    for given, expected in zip(
        stepped(weights, gradients, 1.0, "auto"), reference(weights, gradients, 1.0), strict=True
    ):
        assert torch.allclose(given.cpu(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_replica_breaks_alone(generator: torch.Generator, backend: str) -> None:
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
        stepped(weights, gradients, None, "fast")
