"""PaTH: softmax attention whose positions are products of reflections."""

from typing import Any, NamedTuple

from torch import Tensor

from linbench.kernels.attention.reflected_blocks import carried
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.dtypes import to_float32
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Out, StateSize
from linbench.models.blocks.caches import Cache, Tokens
from linbench.models.blocks.reflections import Directions, ReflectionSettings, ReflectionStrength


class Reflections(NamedTuple):
    """Directions w [B, T, H, K] and strengths beta [B, T, H] of some tokens, and the convolution's state."""

    w: Tensor
    beta: Tensor
    conv: Tensor


class PaTH(Attention):
    """PaTH: softmax attention with a Householder-like reflection for every token between query and key.

        o_t = sum_{s <= t} softmax_s(q_t^T H_t H_{t-1} ... H_{s+1} k_s / sqrt(K)) v_s
        H_t = I - beta_t w_t w_t^T,  |w_t| = 1,  beta_t = 2 sigmoid(W x_t + b)   per head

    w is made from x by a map of low rank, a convolution with SiLU and the l2 norm. Yang et al. 2025,
    arXiv:2505.16381.

    State: a cache of H (K + V) floats per token seen. Every token reflects all keys in it, so they count as
    recurrent and are in float32; the convolution of w keeps 2 H K.

    Known for: tracking states, as delta rules do, together with exact recall: a head can follow swaps of five
    elements. A key along w has a score of zero after a reflection of beta = 1, not of minus infinity.

    Differences: the output projection starts at zero (docs/decisions/0002). The controlled form is that of
    attention, without the convolution's kernel of w, which belongs to the equation.
    """

    name = "path"
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        memory="every key and value; each token reflects all keys", retention="keeps all"
    )
    Settings = ReflectionSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads = self.project.key_heads
        self.directions = Directions(layer.d_model, heads, self.project.key_dim, settings)
        self.strength = ReflectionStrength(layer.d_model, heads)

    def decode(self, x: Tensor, state: Cache, cross_layer: Any = None) -> Out:
        """Mix the next tokens as `Mixer.decode` says; only one alone reads keys that it has reflected."""
        return (super().decode if x.shape[1] == 1 else self)(x, state, cross_layer)

    def _project_tokens(self, x: Tensor, state: Cache | None) -> Tokens:
        new = super()._project_tokens(x, state)
        w, conv = self.directions(new.shared, state and state.directions)
        return new._replace(more=Reflections(w, self.strength(new.shared), conv))

    def read(
        self,
        new: Tokens,
        keys: Tensor,
        values: Tensor,
        key_positions: Tensor | None,
        log_forget_sums: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute the equation."""
        return path_attention(
            new.q,
            keys,
            values,
            new.more.w,
            new.more.beta,
            key_positions=key_positions,
            kept=log_forget_sums,
            scale=self.scale,
            empty_is_zero=True,
        )

    def _attend_cache(self, new: Tokens, cache: Cache, sums: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the layer's output for a token whose reflection the keys have: what is left is attention."""
        q, keys, values = map(to_float32, (new.q, cache.keys, cache.values))
        o = super().read(
            new._replace(q=q), keys.transpose(1, 2), values.transpose(1, 2), cache.positions, sums
        )
        y: Tensor = self.readout(o.to(new.v.dtype), new.shared)
        return y

    def _append(self, state: Cache, new: Tokens, *, in_place: bool = False, first: bool = False) -> Cache:
        """Append tokens as attention does, after their reflections of all keys. Keys are never in place."""
        k, keys = carried(new.k, new.more.w, new.more.beta, None if first else state.keys)
        return super()._append(
            state._replace(keys=state.keys if keys is None else keys, directions=new.more.conv),
            new._replace(k=k),
            in_place=in_place,
            first=first,
        )

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache, with keys in at least float32."""
        empty = super().init_state(batch, capacity=capacity)
        return empty._replace(keys=to_float32(empty.keys), directions=self.directions.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return H K of recurrent and H V of cached floats for each token, and the convolutions'."""
        keys = seq_len * self.project.key_heads * self.project.key_dim
        moved = StateSize(recurrent=keys, cache=-keys, convolution=self.directions.state_floats())
        return super().state_floats(seq_len).plus(moved)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention, and 4 K for each key before a token, which its reflection moves."""
        reflected = 4 * self.project.key_heads * self.project.key_dim * (seq_len - 1) / 2
        return super().recurrence_flops(seq_len) + reflected
