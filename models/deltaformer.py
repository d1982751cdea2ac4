"""DeltaFormer: softmax attention whose values are corrected by what is known already."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.corrections import corrected_values
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.caches import Cache, Tokens
from linbench.models.blocks.linear import Affine, SharedInput


class DeltaFormerSettings(AttentionSettings):
    """Settings of DeltaFormer. Published: rotary positions, nothing around the heads."""

    positions: Literal["rope", "none"] = Field("rope", description="how a token knows where it stands")
    window: None = Field(None, description="a query sees all keys before it")
    sim: Literal["kk", "qk"] = Field(
        "kk", description="what a correction asks by: the token's key, or its query as in published code"
    )
    strength: Literal["sigmoid", "one"] = Field(
        "sigmoid", description="how much is corrected: sigmoid(w . x + b) per head, or all of it"
    )


class DeltaFormer(Attention):
    """DeltaFormer: softmax attention over values that first forget what attention knows at their keys.

        u_t = v_t - beta_t sum_{s < t} softmax_{s < t}(k_t . k_s / sqrt(K)) u_s
        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) u_s

    This is the delta rule with a softmax in place of its products: O = A (I + diag(beta) B)^-1 V. Zhong et
    al. 2025, arXiv:2505.19488.

    State: a cache of H (K + V) floats per token seen, with u in place of v.

    Known for: following swaps of many elements, and what is reachable in a graph, at the cost of attention
    twice over.

    Differences: beta is a sigmoid, so that corrections cannot grow without bound; the paper's plain form has
    one (`strength`), and flash-linear-attention a linear map without sigmoid. Its code asks by the query
    where its text and the paper ask by the key (`sim`). The output projection starts at zero
    (docs/decisions/0002). The controlled form is that of attention: l2 norm of q and k with a learned scale,
    for both softmaxes.
    """

    name = "deltaformer"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        loss="squared error of what a softmax reads at the new key",
        memory="every key and corrected value",
        optimiser="one step of the delta rule, with a softmax for its products",
        retention="keeps all",
    )
    Settings = DeltaFormerSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.beta = Affine(layer.d_model, settings.heads) if settings.strength == "sigmoid" else None

    def strength(self, x: SharedInput) -> Tensor:
        """Return beta [B, T, H]."""
        if self.beta is None:
            return x.x.new_ones(*x.x.shape[:2], self.settings.heads)
        return torch.sigmoid(self.beta(x.x))

    def _project_tokens(self, x: Tensor, state: Cache | None) -> Tokens:
        """Project tokens, with u in place of v."""
        new = super()._project_tokens(x, state)
        asked, beta = new.q if self.settings.sim == "qk" else new.k, self.strength(new.shared)
        if state is None:
            return new._replace(v=corrected_values(asked, new.k, new.v, beta, scale=self.scale))
        keys, values = state.keys.transpose(1, 2), state.values.transpose(1, 2)
        # a cache that is decoded into in place may hold these tokens already
        there = torch.where(state.positions < state.seen[:, None], state.positions, EMPTY)
        if x.shape[1] == 1:  # what corrects one token is attention over the cache, which need not be copied
            known = attention(
                asked,
                keys,
                values,
                query_positions=new.positions,
                key_positions=there,
                scale=self.scale,
                empty_is_zero=True,
            )
            known = torch.where(state.seen[:, None, None, None] > 0, beta[..., None] * known, 0.0)
            return new._replace(v=(new.v - known).to(new.v.dtype))
        u = corrected_values(
            asked,
            torch.cat([keys, new.k], dim=1),
            torch.cat([values, new.v], dim=1),
            beta,
            key_positions=torch.cat([there, new.positions], dim=1),
            scale=self.scale,
            empty_is_zero=True,
        )
        return new._replace(v=u)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention twice, the first time without a token's own key."""
        per_key = 2 * self.project.heads * (self.project.key_dim + self.project.value_dim)
        return super().recurrence_flops(seq_len) + per_key * (seq_len - 1) / 2
