"""RWKV-6, Finch: a decay for every row and token, and a token shift that depends on the token."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.operators import product_dtype
from linbench.kernels.token_shift import token_shift_by_token
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.init import keep, zero_init
from linbench.models.blocks.linear import Affine, Linear, LowRank
from linbench.models.blocks.shift_mixer import Streams
from linbench.models.blocks.token_shift import TokenShift, layer_depth, own_token_share
from linbench.models.learner import Learner
from linbench.models.rwkv5 import RWKV5, RWKV5Settings


class RWKV6Settings(RWKV5Settings):
    """Settings of RWKV-6. Published: as RWKV-5, with ranks of 32 and 64 at any width."""

    shift_rank: int = Field(32, ge=1, description="rank of the map from a token to the mix of each stream")
    decay_rank: int = Field(64, ge=1, description="rank of the map from a token to its decay")


class TokenShiftByToken(TokenShift):
    """x_t + (mix + offset_t) * (x_{t-1} - x_t), with an offset for each stream that depends on the tokens.

    offset_t = B tanh(A (x_t + first * (x_{t-1} - x_t))), with a B for each stream.
    """

    def __init__(self, mixes: dict[str, Tensor], first: Tensor, rank: int) -> None:
        super().__init__(mixes)
        self.first = nn.Parameter(first)
        self.down = Linear(len(first), len(mixes) * rank)
        self.up = nn.ModuleList(keep(Affine(rank, len(first), bias=False)) for _ in mixes)
        zero_init(self.down)
        for up in self.up:
            nn.init.uniform_(up.get_parameter("weight"), -0.01, 0.01)

    def streams(self, x: Tensor, last: Tensor | None) -> tuple[Tensor, ...]:
        """Return the streams in their order."""
        return token_shift_by_token(x, self.first, self.offset, self.mix, last, dtype=product_dtype(x))

    def offset(self, read: Tensor) -> list[Tensor]:
        """Return the offset of each stream's mix, from a first mixture [B, T, D]."""
        parts = self.down(read).tanh().chunk(len(self.names), dim=-1)
        return [up(part) for up, part in zip(self.up, parts, strict=True)]


class RWKV6(RWKV5):
    """RWKV-6, Finch: a decay for every row and token, and a token shift that depends on the token.

        o_t = S_{t-1}^T r_t + (r_t . (u k_t)) v_t
        S_t = diag(w_t) S_{t-1} + k_t v_t^T
        w_t = exp(-exp(time_decay + W_2 tanh(W_1 x_t)))

    Each map reads a mixture of a token and the one before that depends on both. Peng et al. 2024,
    arXiv:2404.05892.

    State: H K V, constant in length, and D for the token shift.

    Known for: forgetting row by row as the token asks, from almost nothing to all at once, since the decay
    has no lower bound. Much better recall than RWKV-5 at small widths. Nothing is erased by key.

    Differences: this follows the authors' code, not flash-linear-attention's, which halves the keys and norms
    otherwise. RWKV's own channel mixer, which has a token shift of its own, follows with `channel_mixer=own`.
    The backbone has no LayerNorm (ln0) after the embedding, unlike published models, whose embedding starts
    near zero. Linear maps start as torch's do, the output projection at zero (docs/decisions/0002).
    """

    name = "rwkv6"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per key channel and token",
    )
    kernel_families: ClassVar[tuple[str, ...]] = (*RWKV5.kernel_families, "channel_decay")
    channel_mixer = "rwkv6"
    Settings = RWKV6Settings
    stream_names = "wkvrg"

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, _ = self.memory_shape
        self.decay = LowRank(layer.d_model, settings.decay_rank, heads * key_dim, activation=torch.tanh)
        zero_init(self.decay.down)
        nn.init.uniform_(keep(self.decay.up).weight, -0.01, 0.01)

    def token_shift(self) -> TokenShift:
        """Return shifts with RWKV-5's mixes and an offset for each stream."""
        width, (risen, left) = self.layer.d_model, layer_depth(self.layer)
        whole, half = 1 - own_token_share(width, left), 1 - own_token_share(width, left / 2)
        mixes = {"w": whole, "k": whole, "v": whole - 0.3 * risen, "r": half, "g": half}
        return TokenShiftByToken(self.select_streams(mixes), whole, self.settings.shift_rank)

    def log_decay(self, streams: Streams) -> Tensor:
        """Return the log decay [B, T, H, K], in at least float32."""
        return channel_decay(self.decay(streams["w"]), self.time_decay)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for everything that is not a linear map."""
        first = {} if self.shift is None else {"shift.first": Rule(decay=False)}
        return {**super().parameter_rules(), **first}
