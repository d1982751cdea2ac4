"""Attention with bounded-memory control: slots are weighted means of all tokens, and a softmax reads them."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.heads import NO_CONVOLUTION, NO_QK_NORM
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.prefix_scan import running_sum
from linbench.models.blocks.slots import SlotMixer, SlotSettings
from linbench.models.learner import Learner


class ABCSettings(SlotSettings):
    """Settings of ABC, those of flash-linear-attention's layer.

    Keys are half as wide as the model and rotated by position, slots as many as a key has dimensions; a norm
    per head and a swish gate; no convolution, no feature map, no norm of q and k.
    """

    expand_k: float = Field(0.5, gt=0, description="total key width over d_model")
    conv: int = NO_CONVOLUTION
    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )
    positions: Literal["none", "rope"] = Field(
        "rope", description="whether q and k are rotated by where they stand, after their norm"
    )


class BoundedMemory(SlotMixer):
    """Attention with bounded-memory control (ABC): m slots are weighted means of all tokens.

        Z_t = Z_{t-1} + e^{s_t},  s_t = W x_t
        K_t = diag(Z_{t-1} / Z_t) K_{t-1} + (e^{s_t} / Z_t) k_t^T,  V_t likewise with v_t
        o_t = V_t^T softmax(K_t q_t / sqrt(K))

    s_t has a number for each slot, between -32 and 32. Peng et al. 2021, arXiv:2110.02488, with the control
    that a linear map learns.

    State: H m (K + V + 1), constant in length; the last column is Z.

    Known for: showing that many efficient attentions are one, with different controls of what a slot holds.
    Nothing is forgotten: the t-th token gets about 1 / t of a slot, so recall fades with length.

    Differences: kept are sums, which are divided by Z where they are read: the same numbers, as two sums
    without decay. The paper puts the layer into given models; what is around it here, and the bounds of s,
    are flash-linear-attention's. In the controlled form scores of keys of unit length have a learned scale,
    as attention's. The output projection starts at zero (docs/decisions/0002).
    """

    name = "abc"
    generation = "linear attention"
    learner = Learner(
        loss="squared error of a constant per slot, weighted by e^s",
        memory="slots of a key and a value, read by softmax",
        optimiser="exact: the weighted mean",
        retention="keeps all",
    )
    Settings = ABCSettings
    scale_power = -0.5

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.control = Linear(layer.d_model, settings.heads * self.slots)

    @property
    def extra_columns(self) -> int:
        """1, for Z."""
        return 1

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        write = to_float32(self.control(x).unflatten(-1, (-1, self.slots))).clamp(-32, 32).exp()
        total = running_sum(write.flatten(2)).view_as(write)
        keys, values, before = self.split(memory)
        if before is not None:
            total = total + before[..., 0][:, None]
        # with the keys of slots as columns
        products, keys = matrix_state(q, k, write, scale=1.0, state=None if keys is None else keys.mT)
        weights = self.weigh(products / total)
        o, values = matrix_state(weights / total, write, v, scale=1.0, state=values)
        return o, torch.cat([keys.mT, values, total[:, -1, :, :, None]], dim=-1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of both memories, token by token, and of the feature map."""
        columns = self.project.key_dim + self.project.value_dim
        both = flops_per_token(
            heads=self.project.heads, key_dim=self.slots, value_dim=columns, decay=False, delta=False
        )
        return both + self.project.feature_flops()
