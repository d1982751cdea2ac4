"""MoBA: softmax attention to a query's own block of tokens and to the blocks that match it best."""

from functools import partial
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from linbench.kernels.attention import flops_per_token
from linbench.kernels.attention.mixture_of_blocks import mixture_of_blocks
from linbench.models.attention import Attention
from linbench.models.blocks.caches import Tokens
from linbench.models.blocks.chosen_blocks import BlockSettings, keys_read, mean_over


class MoBASettings(BlockSettings):
    """Settings of MoBA. Published: rotary positions, nothing around the heads."""

    block: int = Field(256, ge=1, description="tokens in a block")
    blocks: int = Field(4, ge=1, description="blocks that a query reads, its own included")


class MoBA(Attention):
    """MoBA: softmax attention to a query's own block of tokens and to the blocks that match it best.

        o_t = sum_{s in C_t, s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s
        C_t = own block, and of those before it the n - 1 with the largest q_t . mean of their keys

    Each head of queries chooses. The choice has no gradient. Lu et al. 2025, arXiv:2502.13189.

    State: a cache of Hk (K + V) floats per token seen. Means of blocks are computed anew by every call.

    Known for: attention at the cost of n blocks, whichever they are. A block is found by the mean of its
    keys, so one key that matches may be missed among others that do not.

    Differences: with n = 1 a query reads its own block alone, as in the paper; in flash-linear-attention it
    then reads all tokens so far. The output projection starts at zero (docs/decisions/0002). The controlled
    form is that of attention, l2 norm of q and k with a learned scale, and reads 4 blocks of 16 tokens.
    """

    name = "moba"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        loss="squared error of a constant, weighted by match, over blocks chosen by their mean keys",
        retention="keeps all",
    )
    Settings = MoBASettings
    controlled: ClassVar[dict[str, Any] | None] = {**(Attention.controlled or {}), "block": 16, "blocks": 4}

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
        return mixture_of_blocks(new.q, keys, values, block=s.block, blocks=s.blocks, **given)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the mean over positions: keys that are read, means of all blocks before, and their sums."""
        key_dim, value_dim = self.attended_dims()
        flops = partial(flops_per_token, heads=self.project.heads, key_dim=key_dim)
        read = mean_over(seq_len, partial(keys_read, settings=self.settings))
        matched = mean_over(seq_len, lambda t: t // self.settings.block)
        return (
            flops(value_dim=value_dim, keys=read)
            + flops(value_dim=0, keys=matched)
            + self.project.value_heads * key_dim
            + self.project.feature_flops()
        )
