"""MLA: softmax attention that keeps one latent vector per token, from which heads make keys and values."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.attention import attention
from linbench.models.attention import Attention
from linbench.models.blocks.caches import Tokens
from linbench.models.blocks.heads import CONTROLLED, NO_CONVOLUTION, OUTPUT_NORM, HeadSettings, OutputNorm
from linbench.models.blocks.latent import LatentProjection


class MLASettings(HeadSettings):
    """Settings of MLA. Published: rotary positions in dimensions of their own, nothing around the heads."""

    conv: int = NO_CONVOLUTION
    qk_activation: Literal["silu"] = Field("silu", description="what follows the convolution")
    feature_map: Literal["identity"] = Field("identity", description="keys are read as they are made")
    qk_norm: Literal["none", "l2"] = Field(
        "none", description="norm of q per head; keys have that of their latent; l2 has a learned scale"
    )
    output_norm: OutputNorm = Field("none", description=OUTPUT_NORM.description)
    positions: Literal["rope", "none"] = Field(
        "rope", description="whether the shared dimensions are rotated; none is the form of Kimi Linear"
    )
    window: int | None = Field(
        None, ge=1, description="how many keys a query sees, itself included; null is all"
    )
    latent: int | None = Field(
        None, ge=1, description="width r of the latent of keys and values; null is half of d_model"
    )
    rope_dim: int | None = Field(
        None,
        ge=0,
        description="dimensions R that a key shares with all heads; null is half of head_dim, an even number",
    )
    q_rank: int | None = Field(
        None, ge=1, description="rank of the map to queries, with a norm between; null is a full matrix"
    )


class MLA(Attention):
    """MLA: softmax attention that keeps one latent vector per token, from which heads make keys and values.

        c_t = norm(W_c x_t),  p_t = rope(W_p x_t)   the same for all heads
        k_t = [p_t; W_k c_t],  v_t = W_v c_t,  q_t = [rope(W_r x_t); W_q x_t]   per head
        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(R + K)) v_s

    DeepSeek-V2, 2024, arXiv:2405.04434. With positions=none p is not rotated, as in Kimi Linear (2510.26692).
    With a cache, W_k is applied to the query and W_v to what was read, so that all heads read the latents
    themselves: q . W_k c = (W_k^T q) . c.

    State: a cache of r + R floats per token seen, the latent and p; at most w tokens with a window.

    Known for: recall near attention's with a cache as small as that of a few heads of keys.

    Differences: widths for small models, r = D / 2 and R = K / 2, where the source has R = K / 2 and r = 4 K
    for heads of K = 128. Queries come from a full matrix, as in the source's small model, unless q_rank is
    given. In the controlled form the short convolution is on queries, latent and p, since what is kept must
    have passed it; q has an l2 norm and a learned scale that starts at one, and keys have the norm of their
    latent. The output projection starts at zero (docs/decisions/0002).
    """

    name = "mla"
    generation = "softmax revisited"
    learner = Attention.learner._replace(memory="a latent per token, which makes keys and values")
    Settings = MLASettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none"}

    project: Any

    def make_projection(self) -> Any:
        """Return the module that makes queries and what is kept."""
        return LatentProjection(self.settings, self.layer)

    def make_scale(self) -> nn.Parameter | None:
        """Return ones if q has unit length, which keys have not."""
        return nn.Parameter(torch.ones(self.settings.heads)) if self.settings.qk_norm == "l2" else None

    def turned_dims(self) -> int:
        """Return R."""
        return int(self.project.shared)

    def attended_dims(self) -> tuple[int, int]:
        """Return R + K and V."""
        return sum(self.project.key_widths), self.project.out_dim

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Return o [B, T, H, V]; `keys` are [p; c] [B, S, 1, R + r].

        Without a cache each head's keys and values are made, unless other values [B, S, 1, V] are given. With
        one the heads read the latents.
        """
        options: dict[str, Any] = {
            "window": self.settings.window,
            "scale": sum(self.project.key_widths) ** -0.5 if self.scale is None else self.scale,
        }
        if key_positions is None:
            k, v = self.project.expand(keys)
            v = values.expand(-1, -1, k.shape[2], -1) if values.shape[-1] else v
            return attention(new.q, k, v, **options)
        options |= {"query_positions": new.positions, "key_positions": key_positions, "empty_is_zero": True}
        read: Tensor = self.project.read(attention(self.project.absorb(new.q), keys, keys, **options))
        return read
