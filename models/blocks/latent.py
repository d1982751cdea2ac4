"""Projection of multi-head latent attention: queries by head, and one latent vector for all heads."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.norms import l2_norm
from linbench.models.base import LayerInfo
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.heads import head_dims
from linbench.models.blocks.linear import Affine, Linear, LowRank, SharedInput
from linbench.models.blocks.norms import RMSNorm


class LatentProjection(nn.Module):
    """Map x to queries [B, T, H, R + K], to [p; c] for all heads [B, T, 1, R + r], and to no values.

    p are the dimensions that keys share, c is the normed latent, of which heads make the rest of their keys,
    and their values. A short convolution with SiLU may follow the linear maps. arXiv:2405.04434.

    `expand` makes keys and values of what is kept. Or else `absorb` makes queries that read [p; c] itself,
    and `read` makes of what they read what they would have read of the values.
    """

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__()
        self.heads, self.value_heads = settings.heads, 1
        self.head_dim, self.out_dim = head_dims(settings, layer.d_model)
        self.shared: int = (
            2 * math.ceil(self.head_dim / 4) if settings.rope_dim is None else settings.rope_dim
        )
        self.latent: int = settings.latent or math.ceil(layer.d_model / 2)
        self.key_dim, self.value_dim = self.shared + self.latent, 0
        if settings.positions == "rope" and self.shared % 2:
            raise UserError(f"model.rope_dim = {self.shared} must be even where positions rotate it.")
        queries = self.heads * (self.shared + self.head_dim)
        self.queries = (
            Linear(layer.d_model, queries)
            if settings.q_rank is None
            else LowRank(layer.d_model, settings.q_rank, queries, activation=RMSNorm(settings.q_rank))
        )
        self.down = Linear(layer.d_model, self.key_dim)
        self.conv = (
            ShortConvolution(queries + self.key_dim, settings.conv, parts=[queries, self.key_dim])
            if settings.conv
            else None
        )
        self.norm = RMSNorm(self.latent)
        self.key_widths = [self.shared, self.head_dim]
        self.up = Affine(self.latent, self.heads * (self.head_dim + self.out_dim), bias=False)
        self.l2 = settings.qk_norm == "l2"

    def forward(self, x: SharedInput, conv: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries, what is kept, values without width, and the state of the convolution."""
        q, kept = self.queries(x), self.down(x)
        if self.conv is not None:
            (q, kept), conv = self.conv(torch.cat([q, kept], dim=-1), conv)
        latent = self.norm(kept[..., self.shared :])
        k = torch.cat([kept[..., : self.shared].to(latent.dtype), latent], dim=-1)[:, :, None]
        q = q.unflatten(-1, (self.heads, -1))
        return l2_norm(q) if self.l2 else q, k, k[..., :0], conv

    def expand(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys [B, S, H, R + K] and values [B, S, H, V] of [p; c] [B, S, 1, R + r]."""
        made = self.up(kept[:, :, 0, self.shared :])
        made = made.view(*made.shape[:2], self.heads, -1)
        same = kept[..., : self.shared].to(made.dtype).expand(-1, -1, self.heads, -1)
        return torch.cat([same, made[..., : self.head_dim]], dim=-1), made[..., self.head_dim :]

    def absorb(self, q: Tensor) -> Tensor:
        """Return queries of [p; c] [B, T, H, R + r] for those of the keys [B, T, H, R + K]."""
        of_keys = self.up.weight.view(self.heads, -1, self.latent)[:, : self.head_dim].to(q.dtype)
        of_latent = torch.einsum("bthk,hkr->bthr", q[..., self.shared :], of_keys)
        return torch.cat([q[..., : self.shared], of_latent.to(q.dtype)], dim=-1)

    def read(self, o: Tensor) -> Tensor:
        """Return the weighted values [B, T, H, V] of the weighted [p; c] [B, T, H, R + r]."""
        of_values = self.up.weight.view(self.heads, -1, self.latent)[:, self.head_dim :].to(o.dtype)
        return torch.einsum("bthr,hvr->bthv", o[..., self.shared :], of_values)

    def init_state(self, batch: int) -> Tensor | None:
        """Return zeros for the convolution; None without one."""
        return None if self.conv is None else self.down.weight.new_zeros(batch, *self.conv.state_shape)

    def state_floats(self) -> int:
        """Return the floats that the convolution carries."""
        return 0 if self.conv is None else math.prod(self.conv.state_shape)

    def feature_flops(self) -> int:
        """Return 0: there is no feature map."""
        return 0
