"""Delta positions: softmax attention whose queries and keys a delta rule has reflected."""

from typing import Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.kernels.matrix_state import Delta, flops_per_token, matrix_state
from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, StateSize
from linbench.models.blocks.caches import Cache, Tokens
from linbench.models.blocks.reflections import Directions, ReflectionSettings, ReflectionStrength


class DeltaPositionsSettings(ReflectionSettings):
    """Settings of delta positions. None are published: w is made as in PaTH."""

    strength: Literal["two", "learned"] = Field(
        "two", description="beta: 2, which reflects, or 2 sigmoid(w . x + b) per head, as in PaTH"
    )


class Carried(NamedTuple):
    """State after some tokens: of the convolution of w, and the delta rule's matrix."""

    conv: Tensor
    memory: Tensor


class DeltaPositions(Attention):
    """Delta positions: softmax attention on what two delta rules leave of queries and keys.

        o_t = sum_{s <= t} softmax_s(q~_t . k~_s / sqrt(K)) v_s
        q~_t = q_t - S_t^T q_t,  k~_t = k_t - S_t^T k_t
        S_t = S_{t-1} + beta_t w_t (w_t - S_{t-1}^T w_t)^T,  |w_t| = 1

    In matrices softmax(Q~ K~^T) V with Q~ = Q - DeltaNet(Q, W, W) and K~ = K - DeltaNet(K, W, W): Su 2025,
    "A brief history of linear attention". No table of it is published.

    What it does: I - S_t = R_t is the product of all reflections I - beta w w^T so far. With beta = 2, which
    is w of length sqrt(2) in the survey, R_t is orthogonal and q~_t . k~_s = q_t^T H_t ... H_{s+1} k_s: PaTH
    whose tokens all reflect in full. Positions are relative, and lengths of queries and keys stay. With other
    beta they are not: both lose for good what lies along earlier w, a token's own score changes, too, and
    only with beta = 0 this is attention without positions.

    State: a cache of H (K + V) floats per token seen, H K^2 for S, and 2 H K for the convolution of w.

    Known for: decoding as cheap as attention's where PaTH reflects every key in its cache with every token.

    Differences: the survey does not say how w is made. The output projection starts at zero
    (docs/decisions/0002). The controlled form is that of attention; the convolution of w stays.
    """

    name = "delta_positions"
    year = 2025
    kernel_families = (*Attention.kernel_families, "matrix_state")
    generation = "softmax revisited"
    learner = Attention.learner._replace(
        memory="every key and value, and a matrix that changes queries and keys", retention="keeps all"
    )
    Settings = DeltaPositionsSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, dim = self.project.heads, self.project.key_dim
        # an error of the length is one of each product of reflections, and grows with their number
        self.directions = Directions(layer.d_model, heads, dim, settings, eps=1e-12)
        self.beta = ReflectionStrength(layer.d_model, heads) if settings.strength == "learned" else None

    def _project_tokens(self, x: Tensor, state: Cache | None) -> Tokens:
        """Project tokens, with q~ and k~ in place of q and k."""
        new = super()._project_tokens(x, state)
        w, conv = self.directions(new.shared, state and state.directions)
        beta = w.new_full(w.shape[:3], 2.0) if self.beta is None else self.beta(new.shared)
        rule, memory = Delta(beta), state and state.memory
        of_q, last = matrix_state(to_float32(new.q), w, w, update=rule, scale=1.0, state=memory)
        of_k, _ = matrix_state(to_float32(new.k), w, w, update=rule, scale=1.0, state=memory, final=False)
        q, k = (new.q - of_q).to(new.q.dtype), (new.k - of_k).to(new.k.dtype)
        return new._replace(q=q, k=k, more=Carried(conv, last))

    def _append(self, state: Cache, new: Tokens, *, in_place: bool = False, first: bool = False) -> Cache:
        """Append tokens as attention does."""
        state = state._replace(directions=new.more.conv, memory=new.more.memory)
        return super()._append(state, new, in_place=in_place, first=first)

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache and a matrix of zeros, in at least float32."""
        empty, dim = super().init_state(batch, capacity=capacity), self.project.key_dim
        wide = at_least_float32(empty.keys.dtype)
        memory = empty.keys.new_zeros(batch, self.project.heads, dim, dim, dtype=wide)
        return empty._replace(directions=self.directions.init_state(batch), memory=memory)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of attention, H K^2 for the matrix, and those of the convolution of w."""
        matrix = self.project.heads * self.project.key_dim**2
        more = StateSize(recurrent=matrix, convolution=self.directions.state_floats())
        return super().state_floats(seq_len).plus(more)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention and of two delta rules."""
        dim = self.project.key_dim
        rule = flops_per_token(heads=self.project.heads, key_dim=dim, value_dim=dim, decay=False, delta=True)
        return super().recurrence_flops(seq_len) + 2 * rule
