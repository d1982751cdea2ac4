"""CoPE: softmax attention with contextual positions."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.attention.contextual import contextual_attention
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo
from linbench.models.blocks.attention_settings import WholeSettings
from linbench.models.blocks.caches import Tokens


class CoPESettings(WholeSettings):
    """Settings of CoPE. Published: nothing around the heads."""

    n_pos: int = Field(
        64, ge=1, description="number of positions that are told apart; all further back are the last of them"
    )


class CoPE(Attention):
    """CoPE: softmax attention whose positions count what a query's gates let count, not tokens.

        o_t = sum_{s <= t} softmax_s(q_t . (k_s + e[p_ts]) / sqrt(K)) v_s
        p_ts = sum_{s <= l <= t} sigmoid(q_t . k_l / sqrt(K)), at most n_pos - 1

    e is learned, starts at zero, is shared by all heads and interpolated linearly between whole positions.
    Golovneva et al. 2024, arXiv:2405.18719.

    State: a cache of H (K + V) floats per token seen; positions are counted anew by every query.

    Known for: counting, and positions in units that a head chooses, such as words or sentences.

    Differences: published code has as many positions as a block has tokens and one more; here n_pos is 64
    unless set, since a layer does not know the length. A separate projection of keys for the gates, an option
    of the paper, is not here. The output projection starts at zero (docs/decisions/0002). The controlled form
    is that of attention: l2 norm of q and k with a learned scale, which the gates have, too.
    """

    name = "cope"
    generation = "softmax revisited"
    learner = Attention.learner._replace(retention="keeps all")
    Settings = CoPESettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.table = nn.Parameter(torch.zeros(settings.n_pos, self.project.key_dim))

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation."""
        return contextual_attention(new.q, keys, values, self.table, **self.asked_of(new, key_positions))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention, and each query's products with the table."""
        return super().recurrence_flops(seq_len) + 2 * self.project.heads * self.table.numel()
