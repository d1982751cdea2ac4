"""S4D: a time-invariant filter for each channel, made of modes that oscillate and fade."""

from pydantic import Field

from linbench.models.blocks.diagonal_ssm import Frequencies, Modes
from linbench.models.blocks.filter_mixer import FilterMixer, FilterSettings
from linbench.models.blocks.starting_gates import NO_STRATA
from linbench.models.learner import Learner


class S4DSettings(FilterSettings):
    """Settings of S4D.

    Published: 64 states for each channel, a skip, GELU and a gated linear unit; no convolution, no norm.
    """

    states: int = Field(
        64, ge=2, multiple_of=2, description="how many numbers each channel remembers, two for a mode"
    )
    modes: Frequencies = Field(
        "lin", description="frequencies at first: lin is pi n; inv N / pi (N / (2 n + 1) - 1)"
    )
    strata: bool = NO_STRATA


class S4D(FilterMixer):
    """S4D: a time-invariant filter for each channel, made of modes that oscillate and fade.

        h_t = e^{d l} h_{t-1} + (e^{d l} - 1) / l x_t
        y_t = 2 Re(C . h_t) + D x_t

    for each channel, with a step d, modes l = -e^a + i b, and C. Gu et al. 2022, arXiv:2206.11893, after S4,
    2021, arXiv:2111.00396.

    State: D N, two numbers for each of N / 2 modes, constant in length.

    Known for: long memories of smooth signals. It is the same at all times: no token decides what is written
    or kept, so selection is left to what stands between layers (arXiv:2312.00752).

    Differences: GELU and a gated linear unit follow, as published, whose map starts at zero
    (docs/decisions/0002). Of the source's initial modes S4D-Lin and S4D-Inv are here. The source trains modes
    and steps at a rate of their own, 0.001, and without weight decay; here they have no decay, and the common
    rate. In the controlled form there is no skip, and a linear map follows the norm.
    """

    name = "s4d"
    learner = Learner(
        loss="none: every input is written alike",
        memory="modes per channel: a fixed linear filter",
        optimiser="none: inputs are summed",
        retention="constant decay and rotation per mode",
    )
    Settings = S4DSettings

    def make_memory(self) -> Modes:
        """Return the modes of all channels."""
        settings = self.settings
        return Modes(self.layer.d_model, settings.states, settings.modes, strata=settings.strata)
