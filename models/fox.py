"""FoX: softmax attention with forget gates."""

from typing import Any, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, StateSize
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.caches import Cache
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine, SharedInput


class FoXSettings(AttentionSettings):
    """Settings of FoX. Published: no positions, nothing around the heads, forget gates start at one half."""

    positions: Literal["rope", "none", "alibi"] = Field(
        "none", description="how a token knows where it stands, beside its gates"
    )
    forget_bias: float = Field(
        0.0,
        description=(
            "where the bias of the forget gate starts: with 0 each token halves what came before, with 8"
            " nearly all is kept"
        ),
    )


class FoX(Attention):
    """FoX, the Forgetting Transformer: softmax attention with a forget gate per head and token.

        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K) + log f_{s+1} + ... + log f_t) v_s
        f_t = sigmoid(w . x_t + b)   per head

    A token's gate forgets what came before it, never its own key. Lin et al. 2025, arXiv:2503.02130.

    State: a cache of Hk (K + V) + H floats per token seen (keys, values and for each head of queries the
    logarithm of what is left of each key), at most w tokens with a window.

    Known for: recall like softmax attention's without positions, and lengths beyond those of training, since
    distant tokens fade. What was forgotten cannot be recalled.

    Differences: the cache keeps what is left of each key now, where published code keeps sums from the start
    of the sequence, which grow without bound. The controlled form is that of attention: l2 norm of q and k
    with a learned scale. FoX-Pro is this with qk_norm and output_norm rms and output_gate sigmoid, without
    its shift of keys and values, which is not here. The output projection starts at zero
    (docs/decisions/0002).
    """

    name = "fox"
    generation = "softmax revisited"
    learner = Attention.learner._replace(retention="keeps all or a window; weights decay per head and token")
    Settings = FoXSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.forget = Affine(layer.d_model, settings.heads)
        nn.init.normal_(self.forget.weight, std=0.02)
        set_bias(self.forget, settings.forget_bias)

    def log_forget(self, x: SharedInput) -> Tensor:
        """Return log f [B, T, H], in at least float32."""
        gate: Tensor = self.forget(x.x)
        return F.logsigmoid(to_float32(gate))

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache, with zeros for the logarithm of what is left."""
        empty = super().init_state(batch, capacity=capacity)
        wide = at_least_float32(empty.keys.dtype)
        return empty._replace(
            log_left=empty.keys.new_zeros(*empty.positions.shape, self.settings.heads, dtype=wide)
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return Hk (K + V) + H for each of the last `seq_len` tokens, or of the window."""
        kept = min(seq_len, self.settings.window or seq_len)
        return super().state_floats(seq_len).plus(StateSize(cache=kept * self.project.heads))
