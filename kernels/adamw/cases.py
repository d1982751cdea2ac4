"""Cases of AdamW: steps of three replicas, as the paper has them."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.adamw import Moments, adamw
from linbench.kernels.family import Family, Inputs, KernelCase, normal

BETAS = (0.9, 0.98)
RATES, DECAYS = (1e-2, 3e-3, 1e-1), (0.1, 0.5, 0.0)
STEP = 3
"""The step that is taken, counted from 1."""


def _case(weights: int, clip: float | None) -> KernelCase:
    shape = len(RATES), weights
    mean, square = 0.1 * normal(weights, len(RATES)).T, 0.1 * normal(*shape).square()
    inputs = {"weights": normal(*shape), "gradients": normal(*shape).flip(1), "mean": mean, "square": square}
    kernel, reference = partial(_kernel, clip=clip), partial(_reference, clip=clip)
    return KernelCase(kernel, reference, inputs, differentiable=False, at_least_float32=tuple(inputs))


def _kernel(given: Inputs, clip: float | None) -> tuple[Tensor, ...]:
    weights, gradients, mean, square = (
        x.clone(memory_format=torch.contiguous_format) for x in given.values()
    )
    float64 = partial(torch.tensor, dtype=torch.float64, device=weights.device)
    norms = None if clip is None else gradients.norm(dim=1)
    scale, decaying = _factors(weights)
    adamw(
        weights,
        gradients,
        Moments(mean, square),
        float64([1 / STEP, 1 - BETAS[0] ** STEP, 1 - BETAS[1] ** STEP]),
        rates=float64(RATES),
        decays=float64(DECAYS),
        scale=scale,
        decaying=decaying,
        norms=norms,
        clip=clip or 0.0,
        betas=BETAS,
    )
    return weights, mean, square


def _reference(given: Inputs, clip: float | None) -> tuple[Tensor, ...]:
    w, g, m, v = given.values()
    if clip is not None:
        g = g * (clip / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
    m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
    scale, decaying = _factors(w)
    rates, decays = (torch.tensor(values).to(w)[:, None] for values in (RATES, DECAYS))
    rate = rates * scale / STEP
    step = (m / (1 - BETAS[0] ** STEP)) / ((v / (1 - BETAS[1] ** STEP)).sqrt() + 1e-8)
    return w - rate * decaying * decays * w - rate * step, m, v


def _factors(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors of each weight on its rate and on its decay."""
    places = torch.arange(weights.shape[1])
    return (1 + places % 2).to(weights), (places % 3 == 0).to(weights)


FAMILY = Family(
    cases={
        "adamw": {
            "not clipped": partial(_case, 2500, None),
            "clipped": partial(_case, 2500, 1.0),
            "few weights": partial(_case, 7, 1.0),
        }
    },
    profile_kind="clipping and AdamW",
    profile_names=("adamw",),
)
