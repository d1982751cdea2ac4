"""Decaying fast weights: every number of the memory forgets at its own pace, by its row and by its column."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.two_sided import flops_per_token, two_sided
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import UniformDecay
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings


class DFWSettings(MatrixSettings):
    """Keys half as wide as values; no feature map, no norm of q and k, no convolution, no gate."""

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_norm: Literal["none", "l2", "rms"] = Field(
        "none", description="norm of q and k per head, the last thing before the recurrence"
    )


class DFW(MatrixMixer):
    """S_t = (f_t g_t^T) * S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t / sqrt(K),  f_t = sigmoid(W_f x_t + b_f), g_t
    = sigmoid(W_g x_t + b_g).

    Mao 2022, arXiv:2210.04243. f has a number for each channel of the keys, g one for each of the values, and
    the product with f_t g_t^T is element by element.

    State: H K V, constant in length.
    Known for: replacing softmax attention in a pretrained language model at little loss. Gates start uniform
    in (0, 1), so that half of them forget within a token: many channels never learn to remember for long.
    Heads, the scale and the RMS norm of the output are those of other layers here. The output projection
    starts at zero (docs/decisions/0002).
    """

    name = "dfw"
    generation = "gates and decay"
    families: ClassVar[tuple[str, ...]] = ("two_sided", *FAMILIES)
    Settings = DFWSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, value_dim = self.memory_shape
        self.key_decay = UniformDecay(layer.d_model, heads, key_dim)
        self.value_decay = UniformDecay(layer.d_model, heads, value_dim)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The equation."""
        return two_sided(
            q, k, v, key_log_decay=self.key_decay(x), value_log_decay=self.value_decay(x), state=memory
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Those of the recurrence, token by token, whatever form computes it."""
        heads, key_dim, value_dim = self.memory_shape
        return flops_per_token(heads=heads, key_dim=key_dim, value_dim=value_dim)

    def parameter_rules(self) -> dict[str, Rule]:
        """No weight decay on where the forgetting starts from."""
        return {f"{side}_decay.project.bias": Rule(decay=False) for side in ("key", "value")}
