"""Cases of AdamW: steps of three replicas, as the paper has them."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.adamw import Layout, Moments, Now, update
from linbench.kernels.family import Family, Inputs, KernelCase, normal

BETAS = (0.9, 0.98)
RATES, DECAYS = (1e-2, 3e-3, 1e-1), (0.1, 0.5, 0.0)
STEP = 3
"""The step that is taken, counted from 1."""


def _case(widths: tuple[int, ...], clip: float | None) -> KernelCase:
    shape = len(RATES), sum(widths)
    mean, square = 0.1 * normal(shape[1], len(RATES)).T, 0.1 * normal(*shape).square()
    inputs = {"weights": normal(*shape), "gradients": normal(*shape).flip(1), "mean": mean, "square": square}
    kernel = partial(_kernel, widths=widths, clip=clip)
    reference = partial(_reference, widths=widths, clip=clip)
    return KernelCase(kernel, reference, inputs, differentiable=False, at_least_float32=tuple(inputs))


def _kernel(given: Inputs, widths: tuple[int, ...], clip: float | None) -> tuple[Tensor, ...]:
    layout = Layout.of(len(RATES), widths)
    weights, gradients, mean, square = (lay_out(layout, x) for x in given.values())
    float64 = partial(torch.tensor, dtype=torch.float64, device=weights.device)
    made = update(weights, layout, scales=_scales(widths), decaying=_decaying(widths))
    numbers = float64([1 / STEP, 1 - BETAS[0] ** STEP, 1 - BETAS[1] ** STEP])
    norms = None if clip is None else made.norms(gradients)
    now = Now(numbers, float64(RATES), float64(DECAYS), norms, clip or 0.0, BETAS)
    made.step(weights, gradients, Moments(mean, square), now)
    return tuple(torch.cat(layout.split(x), dim=1) for x in (weights, mean, square))


def lay_out(layout: Layout, rows: Tensor) -> Tensor:
    """Return values [n] as a layout has them, given all numbers of each replica, [R, N]."""
    values = rows.new_zeros(layout.size)
    for place, part in zip(layout.split(values), torch.split(rows, list(layout.widths), dim=1), strict=True):
        place.copy_(part)
    return values


def _reference(given: Inputs, widths: tuple[int, ...], clip: float | None) -> tuple[Tensor, ...]:
    w, g, m, v = given.values()
    if clip is not None:
        g = g * (clip / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
    m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
    scale, decaying = (
        torch.tensor(values).repeat_interleave(torch.tensor(widths)).to(w)
        for values in (_scales(widths), _decaying(widths))
    )
    rates, decays = (torch.tensor(values).to(w)[:, None] for values in (RATES, DECAYS))
    rate = rates * scale / STEP
    step = (m / (1 - BETAS[0] ** STEP)) / ((v / (1 - BETAS[1] ** STEP)).sqrt() + 1e-8)
    return w - rate * decaying * decays * w - rate * step, m, v


def _scales(widths: tuple[int, ...]) -> list[float]:
    """Return factors on the rate: 1, 2, 1, 2, ..."""
    return [1.0 + i % 2 for i in range(len(widths))]


def _decaying(widths: tuple[int, ...]) -> list[float]:
    """Return factors on the decay: 1, 0, 0, 1, ..."""
    return [float(i % 3 == 0) for i in range(len(widths))]


FAMILY = Family(
    cases={
        "adamw": {
            "not clipped": partial(_case, (2500, 64, 1, 7), None),
            "clipped": partial(_case, (2500, 64, 1, 7), 1.0),
            "few weights": partial(_case, (3, 4), 1.0),
        }
    },
    profile_kind="clipping and AdamW",
    profile_names=("adamw",),
)
