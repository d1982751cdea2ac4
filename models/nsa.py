"""NSA: three softmax attentions under gates, to means of blocks, to chosen blocks and to a window."""

from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.attention import attention, flops_per_token
from linbench.kernels.attention.native_sparse import FORCED, compressed_and_selected
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo
from linbench.models.blocks.caches import Cache, Tokens
from linbench.models.blocks.chosen_blocks import BlockSettings, keys_read, mean_over
from linbench.models.blocks.linear import Linear, SharedInput


class NSASettings(BlockSettings):
    """Settings of NSA. Published: rotary positions, nothing around the heads."""

    block: int = Field(64, ge=1, description="tokens in a block")
    blocks: int = Field(
        16,
        ge=FORCED,
        description="blocks that a query reads: the first, its own, the one before it, and the best",
    )
    near: int = Field(
        512, ge=1, description="keys that a query sees in the window, itself included; all are kept"
    )


class NSA(Attention):
    """NSA: three softmax attentions under gates, to means of blocks, to chosen blocks and to a window.

        o_t = g_1 sum_c p_tc mean(v in c) + g_2 attend_t(s in C_t) + g_3 attend_t(t - w < s)
        p_tc = softmax_c(q_t . mean(k in c) / sqrt(K)) over the blocks c that end at t or before
        attend_t(A) = sum_{s in A, s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s
        g = sigmoid(W_g x_t)   three per head

    C_t are n blocks: the first, the query's own, the one before it, and those with the largest p_tc, its mean
    over the heads that share keys. The choice has no gradient. Yuan et al. 2025, arXiv:2502.11089.

    State: a cache of Hk (K + V) floats per token seen. Means of blocks are computed anew by every call.

    Known for: attention at the cost of all means, n blocks and w tokens. The means learn which blocks are
    worth reading, since they are read, too.

    Differences: blocks are compressed to the means of their keys and values, which do not overlap, as in
    flash-linear-attention; the paper learns a network for it, and has keys and values of their own for each
    of the three. Heads of queries need not share keys. The output projection starts at zero
    (docs/decisions/0002). The controlled form is that of attention, l2 norm of q and k with a learned scale
    for all three, and has n = 4 blocks of 16 tokens and w = 32.
    """

    name = "nsa"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        loss="squared error of a constant, weighted by match, over means, chosen blocks and a window",
        memory="every key and value, and their means over blocks",
        optimiser="exact: three weighted means, added under gates",
        retention="keeps all",
    )
    Settings = NSASettings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(Attention.controlled or {}), "block": 16, "blocks": 4, "near": 32,
    }  # fmt: skip

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.gate = Linear(layer.d_model, 3 * settings.heads)

    def _read_beside(self, x: SharedInput, heads: Any, positions: Tensor, state: Cache | None) -> Tensor:
        """Return the gates [B, T, H, 3]."""
        gates: Tensor = self.gate(x)
        return torch.sigmoid(gates).view(*gates.shape[:2], self.settings.heads, 3)

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation."""
        s, given = self.settings, self.asked_of(new, key_positions)
        compressed, selected = compressed_and_selected(
            new.q, keys, values, block=s.block, blocks=s.blocks, **given
        )
        near = attention(new.q, keys, values, window=s.near, **given)
        gates: Tensor = new.more[..., None]
        return gates[:, :, :, 0] * compressed + gates[:, :, :, 1] * selected + gates[:, :, :, 2] * near

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the mean over positions: keys and means that are read, their sums, and the gates."""
        key_dim, value_dim = self.attended_dims()
        block, near = self.settings.block, self.settings.near
        read = (
            mean_over(seq_len, lambda t: (t + 1) // block)
            + mean_over(seq_len, partial(keys_read, settings=self.settings))
            + mean_over(seq_len, lambda t: min(t + 1, near))
        )
        return (
            flops_per_token(heads=self.project.heads, key_dim=key_dim, value_dim=value_dim, keys=read)
            + self.project.value_heads * (key_dim + value_dim)
            + 5 * self.project.heads * value_dim
            + self.project.feature_flops()
        )
