"""Gated slot attention: each slot forgets as much as it writes, and a softmax reads the slots."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.heads import NO_QK_NORM
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.slots import GatedSlotMixer, GatedSlotSettings
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.learner import Learner


class GSASettings(GateSettings, GatedSlotSettings):
    """Settings of GSA.

    Published: as many slots as a key has dimensions; SiLU on q, k and v and on what is read, a norm over all
    heads together; no convolution, no norm of q and k.
    """

    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
    gate_divisor: float = Field(
        8.0, gt=0, description="the logarithm of a decay is that of a sigmoid divided by this"
    )


class GSA(GatedSlotMixer):
    """Gated slot attention: each of m slots forgets as much as it writes, and a softmax reads the slots.

        K_t = diag(a_t) K_{t-1} + (1 - a_t) k_t^T,  V_t = diag(a_t) V_{t-1} + (1 - a_t) v_t^T
        o_t = V_t^T softmax(K_t q_t)
        log a_t = logsigmoid(W x_t) / 8

    a_t has a number for each slot. Zhang et al. 2024, arXiv:2409.07146.

    State: H m (K + V), constant in length: with m = K = V twice that of gated linear attention.

    Known for: softmax over what it remembers, where linear attention reads sums. Every slot gets a share of
    every token. It starts at a decay of 0.917, a half-life of 8 tokens: short for recall over hundreds
    (`forget_bias`). Before slots are written their keys are zero and count in the softmax, so early outputs
    are small.

    Differences: gates have a bias only with a `forget_bias`. In the controlled form the convolution's SiLU
    replaces the layer's own, and scores of keys of unit length have a learned scale, as attention's. The
    output projection starts at zero (docs/decisions/0002).
    """

    name = "gsa"
    generation = "gates and decay"
    learner = Learner(
        loss="squared error of a constant per slot",
        memory="slots of a key and a value, read by softmax",
        optimiser="one gradient step of length 1 - a",
        retention="no decay: a write erases as much as it adds",
    )
    Settings = GSASettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.gate = Linear(layer.d_model, settings.heads * self.slots)
        self.bias: nn.Parameter | None = None
        if settings.rate is not None:
            bias = logit(settings.gate_divisor * settings.rate)
            self.bias = nn.Parameter(nn.init.constant_(torch.empty(settings.heads, self.slots), bias))

    def decay(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H, m] <= 0, in at least float32."""
        logits = to_float32(self.gate(x).unflatten(-1, (-1, self.slots)))
        if self.bias is not None:
            logits = logits + self.bias
        log_decay: Tensor = F.logsigmoid(logits) / self.settings.gate_divisor
        return log_decay

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the scale and the bias, where there is one."""
        return super().parameter_rules() | ({} if self.bias is None else {"bias": Rule(decay=False)})
