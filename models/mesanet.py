"""MesaNet: reads the regularised least squares map of all tokens so far, solved by conjugate gradients."""

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.heads import HeadProjection
from linbench.models.blocks.init import CPU, set_bias
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.regression import RegressionMixer, RegressionSettings
from linbench.models.blocks.starting_gates import GateSettings, inverse_softplus, logit
from linbench.models.learner import Learner


class MesaNetSettings(GateSettings, RegressionSettings):
    """Settings of MesaNet.

    Published: a convolution of 4 on q and k, which have unit length; v is a linear map; 30 steps.
    """

    conv_v: bool = Field(False, description="whether the short convolution covers v, too")
    decay: Literal["sigmoid", "none"] = Field(
        "sigmoid", description="what is kept from token to token: sigmoid(w . x + b) per head, or all"
    )
    strength: Literal["sigmoid", "one"] = Field(
        "sigmoid", description="weight of a token's error: sigmoid(w . x + b) per head, or one"
    )
    ridge: float = Field(1.0, gt=0, description="what the learned ridge starts at")
    ridge_of: Literal["channel", "head"] = Field(
        "channel", description="whether channels of a head have ridges of their own"
    )
    ridge_floor: float = Field(0.25, ge=0, description="what the learned ridge stays above")

    @model_validator(mode="after")
    def _starts_that_there_are(self) -> Self:
        if self.ridge <= self.ridge_floor:
            raise ValueError(f"ridge must be above ridge_floor = {self.ridge_floor}, not {self.ridge}")
        if self.forget_bias is not None and self.decay == "none":
            raise ValueError("forget_bias needs a gate; set decay = sigmoid")
        return self


class MesaNet(RegressionMixer):
    """MesaNet: reads the regularised least squares map of all tokens so far, solved by conjugate gradients.

        G_t = a_t G_{t-1} + b_t k_t k_t^T
        C_t = a_t C_{t-1} + b_t k_t v_t^T
        o_t = C_t^T (G_t + diag(l))^-1 q_t

    a_t and b_t are sigmoids of the token, one per head; the ridge l = softplus(p) + 0.25 is learned for each
    channel and does not decay. von Oswald et al. 2025, arXiv:2506.05233. Of all linear maps S from keys to
    values, C^T (G + diag(l))^-1 is the transpose of the one with the least squared error over all tokens,
    weighted by b and what is left of them.

    State: H K (K + V), constant in length; the convolution keeps 3 inputs per channel of q and k.

    Known for: the best that a linear memory can predict in context, where a delta rule takes one step
    towards it. It pays with a product with G for each of 30 steps, at every token. With a large ridge it is
    linear attention. What a key recalls is a mean over all that was written to it: only the decay lets a new
    value replace an old one. As published every head starts by keeping half from token to token, which small
    models of recall leave late: `forget_bias=6` starts open.

    Differences: steps start from zero when decoding, too, where published code starts from q over the
    diagonal of G. A token stops where its residual is rounding, where that code adds 1e-5 to what it divides
    by. The output projection starts at zero (docs/decisions/0002). `decay`, `strength`, `ridge_of`, `method`,
    `steps` and `gradient` are settings.
    """

    name = "mesanet"
    generation = "test-time training"
    learner = Learner(
        loss="squared error of all tokens, and a ridge",
        memory="two matrices: sums of k k^T and of k v^T",
        optimiser="30 conjugate gradient steps for every query",
        retention="decay per head and token",
    )
    Settings = MesaNetSettings
    controlled: ClassVar[dict[str, Any] | None] = {**(RegressionMixer.controlled or {}), "conv_v": True}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, start = settings.heads, torch.tensor(settings.ridge - settings.ridge_floor, device=CPU)
        self.forget = Affine(layer.d_model, heads) if settings.decay == "sigmoid" else None
        self.strength = Affine(layer.d_model, heads) if settings.strength == "sigmoid" else None
        for gate in (self.forget, self.strength):
            if gate is not None:
                set_bias(gate, 0.0)
        if self.forget is not None:
            set_bias(self.forget, settings.start(torch.zeros(heads, device=CPU), logit))
        ridges = self.project.key_dim if settings.ridge_of == "channel" else 1
        self.ridge = nn.Parameter(inverse_softplus(start).repeat(heads, ridges))

    @property
    def decays(self) -> bool:  # type: ignore[override]
        """True if the memory decays, which is a setting."""
        return bool(self.settings.decay == "sigmoid")

    def make_projection(self) -> HeadProjection:
        """Return a projection whose convolution may leave out v."""
        return self.head_projection(conv_v=self.settings.conv_v)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay = None if self.forget is None else F.logsigmoid(to_float32(self.forget(x.x)))
        strength = None if self.strength is None else torch.sigmoid(to_float32(self.strength(x.x)))
        ridge = F.softplus(to_float32(self.ridge)) + self.settings.ridge_floor
        return self.regress(q, k, v, memory, ridge=ridge, log_decay=log_decay, strength=strength)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the ridge."""
        return {"ridge": Rule(decay=False)}
