"""Decaying fast weights: every entry of the memory has a decay of its own, from its row and its column."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.two_sided import flops_per_token, two_sided
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import UniformDecay
from linbench.models.blocks.heads import FAMILIES, NO_CONVOLUTION, NO_QK_NORM
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.starting_gates import NO_STRATA, DrawnGateSettings
from linbench.models.learner import Learner


class DFWSettings(DrawnGateSettings, MatrixSettings):
    """Settings of DFW: keys half as wide as values; no feature map, norm of q and k, convolution or gate."""

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = NO_CONVOLUTION
    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
    strata: bool = NO_STRATA


class DFW(MatrixMixer):
    """Decaying fast weights: every entry of the memory has a decay of its own, from its row and its column.

        S_t = (f_t g_t^T) * S_{t-1} + k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)
        f_t = sigmoid(W_f x_t + b_f),  g_t = sigmoid(W_g x_t + b_g)

    The product with f_t g_t^T is element by element; f has a number for each key channel, g for each value
    channel. Mao 2022, arXiv:2210.04243.

    State: H K V, constant in length.

    Known for: replacing softmax attention in a pretrained language model at little loss. Gates start uniform
    in (0, 1), so half of them forget within a token, and many channels never learn to remember for long.

    Differences: heads, the scale and the RMS norm of the output are those of the other variants here. The
    output projection starts at zero (docs/decisions/0002).
    """

    name = "dfw"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per entry and token",
    )
    kernel_families: ClassVar[tuple[str, ...]] = ("two_sided", *FAMILIES)
    Settings = DFWSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, value_dim = self.memory_shape
        # an entry keeps f g of itself, so each takes half of the logarithm
        self.key_decay = UniformDecay(layer.d_model, heads, key_dim, settings, share=0.5)
        self.value_decay = UniformDecay(layer.d_model, heads, value_dim, settings, share=0.5)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return two_sided(
            q, k, v, key_log_decay=self.key_decay(x), value_log_decay=self.value_decay(x), state=memory
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token."""
        heads, key_dim, value_dim = self.memory_shape
        return flops_per_token(heads=heads, key_dim=key_dim, value_dim=value_dim)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the biases of the decays."""
        return {f"{side}_decay.project.bias": Rule(decay=False) for side in ("key", "value")}
