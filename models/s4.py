"""S4: a time-invariant filter for each channel, which starts as HiPPO's memory of all inputs."""

from pydantic import Field

from linbench.models.blocks.filter_mixer import FilterMixer, FilterSettings
from linbench.models.blocks.low_rank_modes import LowRankModes
from linbench.models.blocks.starting_gates import NO_STRATA
from linbench.models.s4d import S4D


class S4Settings(FilterSettings):
    """Settings of S4.

    Published: 64 states for each channel, a skip and GELU; no convolution, no norm.
    """

    states: int = Field(
        64, ge=2, multiple_of=2, description="how many numbers each channel remembers, two for a mode"
    )
    strata: bool = NO_STRATA


class S4(FilterMixer):
    """S4: a time-invariant filter for each channel, which starts as HiPPO's memory of all inputs.

        h_t = (1 - d A / 2)^-1 ((1 + d A / 2) h_{t-1} + d B x_t)
        y_t = 2 Re(C . h_t) + D x_t
        A = diag(l) - P P^*

    for each channel, with a step d, modes l = -e^a + i b, and P, B and C. A bilinear rule makes the discrete
    steps. Gu, Goel & Re 2021, arXiv:2111.00396; the sign of P P^* is that of 2202.09729, with which no h can
    grow without bound.

    State: D N, two numbers for each of N / 2 modes, constant in length.

    Known for: long memories of smooth signals. A starts as HiPPO-LegS (2008.07669): h then holds the
    coefficients of Legendre polynomials that fit all inputs so far. Without P, with B = 1, it is S4D with the
    bilinear rule. Whole sequences are convolved with a filter that a Cauchy matrix gives; single tokens take
    the recurrence. It is the same at all times: no token decides what is written or kept, so selection is
    left to what stands between layers (arXiv:2312.00752).

    Differences: GELU and a gated linear unit follow, as in S4D, whose map starts at zero
    (docs/decisions/0002); the paper has a linear map. Of modes and their conjugates one is kept. The source
    trains d, l, P and B at a lower rate and without weight decay; here they, C and D have no decay, and the
    common rate. In the controlled form there is no skip, and a linear map follows the norm.
    """

    name = "s4"
    causality = "rounding"
    learner = S4D.learner._replace(
        memory="modes per channel and a matrix of rank one between them: a fixed linear filter",
        retention="a constant matrix per channel",
    )
    Settings = S4Settings

    def make_memory(self) -> LowRankModes:
        """Return the modes of all channels."""
        settings = self.settings
        return LowRankModes(self.layer.d_model, settings.states, strata=settings.strata)
