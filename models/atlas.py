"""Atlas: OmegaNet with momentum, whose every change is made orthogonal."""

from pydantic import Field

from linbench.kernels.fast_weight import Step
from linbench.models.omeganet import OmegaNet, OmegaNetSettings


class AtlasSettings(OmegaNetSettings):
    """Settings of Atlas. Published: those of OmegaNet, momentum and five steps of Newton-Schulz."""

    momentum: bool = Field(True, description="whether a part of the last change is made again")
    inner_rate: float = Field(
        0.01,
        gt=0,
        description="largest learning rate of the memory, whose changes have singular values of one",
    )
    newton_schulz: int = Field(
        5,
        ge=0,
        description="steps of Newton-Schulz that make a change orthogonal (2502.16982); 0 is OmegaNet",
    )


class Atlas(OmegaNet):
    """Atlas: OmegaNet with momentum, whose every change is made orthogonal.

        S_t = theta_t S_{t-1} - sum_{t-c < i <= t} gamma_i d/dM |f(phi(k_i); M_0) - v_i|^2 / 2
        M_t = alpha_t M_{t-1} + eta_t NewtonSchulz(S_t),  o_t = f(phi(q_t); M_t)

    Features phi, network f and gates are those of OmegaNet. NewtonSchulz brings the singular values of each
    matrix near one, so that eta alone says how far a step goes. Behrouz et al. 2025, arXiv:2505.23735.

    State: H times three copies of the network, of 2 inner_expand K^2 floats as an MLP: its weights, what an
    unfinished mini-batch has gathered, and the momentum; and H (c - 1) (2 K + 1) floats of the window.

    Known for: a memory that learns by a method of second order, Muon, in place of gradient descent. Each
    token's change must be formed as a matrix: where OmegaNet takes a few products of matrices for a
    mini-batch, Atlas takes five steps of three products for every token.

    Differences: as for `omeganet`. Coefficients of Newton-Schulz are those of LaCT, and the rate is at most
    0.01, since the paper leaves both open. Momentum is kept as it is before Newton-Schulz.
    """

    name = "atlas"
    learner = OmegaNet.learner._replace(
        optimiser="orthogonal steps with momentum, those of a mini-batch from the same weights"
    )
    Settings = AtlasSettings

    def make_step(self) -> Step:
        """Return steps that make every token's change orthogonal."""
        return super().make_step()._replace(orthogonal=self.settings.newton_schulz)
