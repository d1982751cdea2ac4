"""OmegaNet: Titans' memory on polynomial features, with a gradient over a window of tokens in every step."""

import torch
from pydantic import Field
from torch import nn

from linbench.kernels.fast_weight import Step
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.feature_maps import FeatureMapName
from linbench.models.blocks.init import PUBLISHED_STD, set_bias
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.trained_memory import Gates
from linbench.models.titans import Titans, TitansSettings


class OmegaNetSettings(TitansSettings):
    """Settings of OmegaNet. Published: those of Titans, polynomial features of q and k, no momentum."""

    window: int = Field(
        8,
        ge=1,
        description="tokens whose gradients every step sums, the newest included; one is Titans' rule",
    )
    feature_map: FeatureMapName = Field(
        "powers-2", description="applied to q and k, before the norm; powers and monomials are polynomials"
    )
    momentum: bool = Field(False, description="whether a part of the last change is made again")


class OmegaNet(Titans):
    """OmegaNet: Titans' memory on polynomial features, with a gradient over a window of tokens in every step.

        S_t = theta_t S_{t-1} - sum_{t-c < i <= t} gamma_i d/dM |f(phi(k_i); M_0) - v_i|^2 / 2
        M_t = alpha_t M_{t-1} + eta_t S_t,  o_t = f(phi(q_t); M_t),  f(x; M) = x + LN(gelu(x M_1) M_2)

    phi(x) = a_1 x + a_2 x^2, each number by itself, with learned a_i. M_0 are the weights at the start of the
    mini-batch of token t, for all tokens of its window. gamma, theta, alpha and eta over inner_rate are
    sigmoids of W x + b, one per head and token; theta is zero without momentum. Behrouz et al. 2025,
    arXiv:2505.23735.

    State: that of Titans, with momentum only if it is on, and key, value and gamma of the last c - 1 tokens:
    H (c - 1) (2 K + 1) floats.

    Known for: the Omega rule, by which a memory fits a context and not only its last token. With a window of
    one it is Titans' rule, with a linear network and an endless window gradient descent on least squares.

    Differences: the paper's features are all monomials of several numbers, which would make the memory many
    times larger; `feature_map` = monomials-2 has those of degree two, and needs inner_residual = false. q and
    k get their length of one after the features. gamma depends on the token that is learned, not on the one
    that learns it. Window, degree, widths and gates' starts are open in the paper, and its code is
    unpublished: gates are those of Titans, and gamma starts at one half. The paper's loss has no 1/2. The
    output projection starts at zero (docs/decisions/0002).
    """

    name = "omeganet"
    learner = Titans.learner._replace(
        loss="squared error of the last c tokens, after a layer norm and a residual",
        memory="MLP of two layers on polynomial features",
        optimiser="gradient steps, those of a mini-batch from the same weights",
    )
    Settings = OmegaNetSettings
    sizes_steps = True

    def __init__(self, settings: OmegaNetSettings, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.weigh = Affine(layer.d_model, settings.heads)
        nn.init.normal_(self.weigh.weight, std=PUBLISHED_STD)
        set_bias(self.weigh, 0.0)

    def make_step(self) -> Step:
        """Return steps that sum the gradients of a window."""
        return super().make_step()._replace(window=self.settings.window)

    def gates(self, x: SharedInput) -> Gates:
        """Return gamma, the logarithms of theta and alpha, and eta [B, T, H]."""
        eta, momentum, keep, _ = super().gates(x)
        return Gates(torch.sigmoid(self.weigh(x.x)), momentum, keep, eta)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the coefficients of the features, beside those of Titans."""
        names = [name for name, _ in self.project.feature_map.named_parameters()]
        free = {f"project.feature_map.{name}": Rule(decay=False) for name in names if name == "coefficients"}
        return super().parameter_rules() | free
