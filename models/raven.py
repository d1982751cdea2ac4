"""Raven: a router chooses which slots a token writes; the others stay as they are, for ever if need be."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.kernels.dtypes import to_float32
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.slots import GatedSlotMixer, GatedSlotSettings
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.learner import Learner

EPSILON = 1e-9
"""Summand of a sum of scores before it divides them."""


class RavenSettings(DrawnGateSettings, GatedSlotSettings):
    """Settings of Raven.

    Published: those of GSA, with a norm of q and k, and 32 slots of a head that a token writes.
    """

    qk_norm: Literal["none", "l2", "rms"] = Field(
        "rms", description="norm of q and k per head, the last thing before the recurrence"
    )
    active: int = Field(
        4,
        ge=1,
        description=(
            "slots of a head that a token writes, all of them if there are fewer; with 1 the router does not"
            " learn, since the share is one"
        ),
    )
    noise: bool = Field(
        False,
        description="whether the router's scores have Gumbel noise in training, as published",
        json_schema_extra={ABSENT: False},
    )


class Raven(GatedSlotMixer):
    """Raven: a router chooses which slots a token writes; the others stay as they are.

        K_t = diag(a_t) K_{t-1} + (1 - a_t) k_t^T,  V_t = diag(a_t) V_{t-1} + (1 - a_t) v_t^T
        o_t = V_t^T softmax(K_t q_t)
        log a_t = -exp(A_log) softplus(w . x_t + b) r_t
        r_t = s_t / sum s_t,  s_t = sigmoid(W x_t) for the `active` largest, 0 for other slots

    a_t has a number for each slot: 1 for those that are not chosen. w and W are per head. Afzal, Bick et al.
    2026, github.com/goombalab/raven.

    State: H m (K + V), constant in length: with m = K = V twice that of gated linear attention.

    Known for: long memories in constant size. What no later token is routed to is neither overwritten nor
    forgotten, however long the sequence. A chosen slot starts with about 1 / `active` of a decay of Mamba-2's
    kind, so writes start small, and the smaller the more slots are chosen.

    Differences: published layers choose 32 of more slots than small heads have. Gumbel noise on W x in
    training is off unless asked for (`noise`): with it a run depends on which runs train beside it. The
    project's page prints keep and write exchanged; this is its code. Other options of that code, such as
    scores of a softmax and a router of two layers, are not here. A ~ U(1, 16) in strata
    (docs/decisions/0003), and `forget_bias` is where a slot starts that gets all of a token. In the
    controlled form the convolution's SiLU replaces the layer's own, and scores of keys of unit length have a
    learned scale, as attention's. The output projection starts at zero (docs/decisions/0002).
    """

    name = "raven"
    year = 2026
    generation = "gates and decay"
    learner = Learner(
        loss="squared error of a constant per slot",
        memory="slots of a key and a value, of which a router chooses some for each token, read by softmax",
        optimiser="one gradient step of length 1 - a",
        retention="no decay: a write erases as much as it adds; other slots stay",
    )
    kernel_families = ("decay_gate", *GatedSlotMixer.kernel_families)
    Settings = RavenSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.active = min(settings.active, self.slots)
        self.router = Linear(layer.d_model, settings.heads * self.slots)
        self.whole_decay = ScalarDecay(layer.d_model, settings.heads, settings)

    def shares(self, x: SharedInput) -> Tensor:
        """Return r [B, T, H, m]: what share of a token each slot gets, in at least float32."""
        logits = to_float32(self.router(x).unflatten(-1, (-1, self.slots)))
        if self.settings.noise and self.training:
            logits = logits - torch.rand_like(logits).log().neg().log()
        best, chosen = logits.topk(self.active, dim=-1)
        scores = torch.sigmoid(best)
        shares = scores / (scores.sum(dim=-1, keepdim=True) + EPSILON)
        return torch.zeros_like(logits).scatter(-1, chosen, shares)

    def decay(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H, m], zero for slots that are not chosen, in at least float32."""
        log_decay: Tensor = self.whole_decay(x)[..., None] * self.shares(x)
        return log_decay

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the scale and the decay's parameters."""
        names = ("whole_decay.A_log", "whole_decay.dt_bias")
        return super().parameter_rules() | dict.fromkeys(names, Rule(decay=False))
