"""Gated KalmaNet: least squares whose ridge follows the Gram matrix, solved by Chebyshev steps."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.gated_product import scale_rows
from linbench.kernels.least_squares import gram_norm
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.regression import RegressionMixer, RegressionSettings
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.learner import Learner


class GatedKalmaNetSettings(DrawnGateSettings, RegressionSettings):
    """Settings of Gated KalmaNet.

    Published: a convolution of 4 on q, k and v, q and k of unit length, a swish gate on the output, 30 steps.
    """

    method: Literal["cg", "chebyshev", "exact"] = Field(
        "chebyshev",
        description=(
            "how least squares are solved: steps of Chebyshev's iteration or of conjugate gradients, or"
            " exactly, which takes long"
        ),
    )
    gradient: Literal["implicit", "unrolled"] = Field(
        "unrolled",
        description=(
            "gradient through all steps, which keeps each in memory; or, as published, of the solution, by"
            " solving once more"
        ),
    )
    ridge: float = Field(0.02, gt=0, description="the ridge over the norm of the Gram matrix")
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class GatedKalmaNet(RegressionMixer):
    """Gated KalmaNet: least squares whose ridge follows the Gram matrix, solved by Chebyshev steps.

        G_t = a_t G_{t-1} + b_t^2 k_t k_t^T
        C_t = a_t C_{t-1} + b_t^2 k_t v_t^T
        o_t = C_t^T ((1 - c_t) q_t + c_t (G_t + 0.02 |G_t| I)^-1 q_t) / sqrt(K)

    |G| is the Frobenius norm. The decay a_t is Gated DeltaNet's; b_t and c_t are sigmoids of the token, one
    per head. Peng et al. 2025, arXiv:2511.21016.

    State: H K (K + V), constant in length; the convolution keeps 3 inputs per channel.

    Known for: a condition that is at most 51 whatever the keys, so that steps fixed beforehand suffice, in 16
    bits, too. The gate c_t leads from linear attention to least squares. The solution is not normed: after
    few tokens it is as large as what was written is small, which the norm of the output takes away.

    Differences: the gradient is that of the 30 steps; published code takes that of the solution, which is off
    where steps have not converged (`gradient`). A ridge also counts as at least 1e-6, so that before anything
    is written nothing is divided by zero. A ~ U(1, 16) in strata (docs/decisions/0003), where published code
    draws U(0, 16). The output projection starts at zero (docs/decisions/0002).
    """

    name = "gated_kalmanet"
    kernel_families: ClassVar[tuple[str, ...]] = (*RegressionMixer.kernel_families, "decay_gate")
    generation = "test-time training"
    learner = Learner(
        loss="squared error of all tokens, and a ridge that follows the keys",
        memory="two matrices: sums of k k^T and of k v^T",
        optimiser="30 Chebyshev steps for every query, mixed with one gradient step on inner products",
        retention="decay per head and token",
    )
    Settings = GatedKalmaNetSettings
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.decay = ScalarDecay(layer.d_model, settings.heads, settings)
        self.beta = Affine(layer.d_model, settings.heads)
        self.mix = Affine(layer.d_model, settings.heads)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay, strength = self.decay(x), (torch.sigmoid(to_float32(self.beta(x.x))) + 1e-6).square()
        gram = None if memory is None else memory[..., : self.project.key_dim]
        norm = gram_norm(k, log_decay=log_decay, strength=strength, gram=gram)
        ridge = (self.settings.ridge * norm)[..., None]
        solved, after = self.regress(q, k, v, memory, ridge=ridge, log_decay=log_decay, strength=strength)
        cross = None if memory is None else memory[..., self.project.key_dim :]
        values = scale_rows(v, strength)
        plain, _ = matrix_state(q, k, values, log_decay=log_decay, scale=1.0, state=cross)
        mixed = plain + torch.sigmoid(self.mix(x.x))[..., None] * (solved - plain)
        return (mixed * self.project.key_dim**-0.5).to(v.dtype), after

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of least squares, of the norm of G, and of linear attention."""
        heads, key_dim, columns = self.memory_shape
        twice = flops_per_token(heads=heads, key_dim=key_dim, value_dim=columns, decay=True, delta=False)
        return super().recurrence_flops(seq_len) + twice

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
