"""LRU: complex numbers that oscillate and fade, written and read by all channels together."""

import math
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from linbench.models.blocks.filter_mixer import FilterMixer, FilterSettings
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import CPU
from linbench.models.blocks.shared_modes import SharedModes, Transition
from linbench.models.blocks.starting_gates import NO_STRATA, draw
from linbench.models.learner import Learner

EDGE = 1e-6
"""The distance of |l|^2 from 0 and 1, and of angles from 0, at first: their logarithms are learned."""


class LRUSettings(FilterSettings):
    """Settings of the LRU.

    Published: a skip, GELU and a gated linear unit; no convolution, no norm.
    """

    states: int | None = Field(
        None,
        ge=2,
        multiple_of=2,
        description="how many numbers the layer remembers, two for a mode; null is 2 d_model",
    )
    r_min: float = Field(0.0, ge=0, lt=1, description="least size of modes at first")
    r_max: float = Field(1.0, gt=0, le=1, description="largest size of modes at first")
    max_phase: float = Field(2 * math.pi, gt=0, le=2 * math.pi, description="largest angle of modes at first")
    strata: bool = NO_STRATA

    @model_validator(mode="after")
    def _from_less_to_more(self) -> Self:
        if self.r_min > self.r_max:
            raise ValueError(f"r_min must be at most r_max = {self.r_max}, not {self.r_min}")
        return self


class LinearRecurrentUnit(SharedModes):
    """l = exp(-e^nu + i e^theta), with B scaled by gamma for each mode."""

    def __init__(self, width: int, modes: int, settings: Any) -> None:
        super().__init__(width, modes)
        squares = draw(settings.r_min**2, settings.r_max**2, modes, strata=settings.strata)
        squares = squares.clamp(EDGE, 1 - EDGE)
        angles = draw(0, settings.max_phase, modes, strata=settings.strata).clamp(min=EDGE)
        self.log_decay = nn.Parameter((-squares.log() / 2).log())
        self.log_angle = nn.Parameter(angles.log())
        self.log_gamma = nn.Parameter((1 - squares).log() / 2)
        self.write = nn.Parameter(torch.randn(2, modes, width, device=CPU) * (2 * width) ** -0.5)
        self.read = nn.Parameter(torch.randn(2, width, modes, device=CPU) * modes**-0.5)

    def transition(self, dtype: torch.dtype) -> Transition:
        """Return l, B and C."""
        write = self.log_gamma.to(dtype).exp()[:, None] * self.write.to(dtype)
        return Transition(
            -self.log_decay.to(dtype).exp(), self.log_angle.double().exp(), write, self.read.to(dtype)
        )


class LRU(FilterMixer):
    """LRU: complex numbers that oscillate and fade, written and read by all channels together.

        h_t = l h_{t-1} + gamma (B x_t)
        y_t = Re(C h_t) + D x_t
        l = exp(-e^nu + i e^theta)   for each mode

    with learned nu, theta, gamma, complex matrices B and C, and D for each channel. Orvieto et al. 2023,
    arXiv:2303.06349.

    State: 2 N, two numbers for each of N modes, as many as channels by default, constant in length.

    Known for: long memories of a linear recurrence that is written down as such, without the continuous time
    of state spaces. What it needs is sizes of l near one, which cannot pass one, and gamma, which keeps the
    size of h alike for all l. It is the same at all times: no token decides what is written or kept, so
    selection is left to what stands between layers (arXiv:2312.00752).

    Differences: GELU and a gated linear unit follow, as published, whose map starts at zero
    (docs/decisions/0002). The source trains nu, theta, gamma and B at a lower rate of their own and without
    weight decay; here they, C and D have no decay, and the common rate. Sizes start with |l|^2 uniform in
    (r_min^2, r_max^2), angles uniform in (0, max_phase), as published; long tasks take r_min = 0.9, r_max =
    0.999 and max_phase = pi / 10. In the controlled form there is no skip, and a linear map follows the norm.
    """

    name = "lru"
    kernel_families: ClassVar[tuple[str, ...]] = ("scan", *FAMILIES)
    learner = Learner(
        loss="none: every input is written alike",
        memory="modes that channels share: a fixed linear filter",
        optimiser="none: inputs are summed",
        retention="constant decay and rotation per mode",
    )
    Settings = LRUSettings

    def make_memory(self) -> LinearRecurrentUnit:
        """Return the modes."""
        width = self.layer.d_model
        return LinearRecurrentUnit(width, (self.settings.states or 2 * width) // 2, self.settings)
