"""LaCT: window attention beside a gated MLP that is trained with one large step per chunk."""

from functools import partial
from typing import Any

from pydantic import Field
from torch import Tensor

from linbench.models.attention import Attention, AttentionSettings, Cache, Tokens
from linbench.models.base import LayerInfo, Rule, StateSize
from linbench.models.blocks.fast_branch import FastBranch, FastOut
from linbench.models.blocks.linear import SharedInput
from linbench.models.learner import Learner


class LaCTSettings(AttentionSettings):
    """Settings of LaCT. Published: rotary positions, a window as long as a chunk, momentum."""

    window: int | None = Field(
        16, ge=1, description="how many keys a query of the attention sees, itself included; null is all"
    )
    kv_heads: None = Field(None, description="as many heads of keys and values as of queries")
    mini_batch: int = Field(16, ge=1, description="tokens of a chunk, after which the memory makes a step")
    fast_heads: int | None = Field(None, ge=1, description="heads of the memory; null is heads")
    inner_expand: int = Field(1, ge=1, description="hidden width of the memory over its head's key dimension")
    inner_rate: float = Field(0.01, gt=0, description="learning rate of the memory at the start")
    momentum: bool = Field(True, description="whether a part of the last step is made again")
    muon: bool = Field(False, description="whether steps are made orthogonal, by Newton-Schulz (2502.16982)")
    fast_gate: bool = Field(False, description="whether a gate per head, SiLU, scales what the memory reads")


class LaCT(Attention):
    """LaCT: window attention beside a gated MLP that is trained with one large step per chunk.

        o_t = attention_window(q_t) + RMSNorm(f(q'_t; W)),  f(x; W) = (silu(x W_1) * x W_2) W_3
        G <- m G + sum_s eta_s d/dW f(k'_s; W) . v'_s,  W <- norm(W + G)  after each chunk

    The sum is over a chunk, read with the weights before it; norm makes every column as long as it was
    initially. q', k' and v' are silu of the attention's q, k and v, for q and k after a scale and a shift per
    channel, and of length one; q' and k' are rotated as q and k are. eta = softplus(W x + b), one for each
    head and matrix; m is the mean of sigmoid(W x + b) over the chunk. With `muon` G is made orthogonal before
    it is added. Zhang et al. 2025, arXiv:2505.23884.

    State: three matrices of K^2 inner_expand per fast head, as much for a chunk's gradients and for momentum,
    and a sum of momentum gates; a cache of H (K + V) floats for each of the last w tokens.

    Known for: a large nonlinear memory at the speed of matrix products, since a chunk is one step. What
    stands in the same chunk only attention sees; with no more tokens than a chunk nothing is ever written.

    Differences: chunk and window are 16 tokens where the paper has 2048 and more, and the rate starts at
    0.01, the value of its smaller examples, where its language models have 0.001. Angles of positions have
    base 10,000, not 500,000. Fast heads are as many as heads, where published models have four, and initial
    weights are full matrices N(0, 1 / inputs), not sums of one half and a low rank. No RMS norm of q and k
    over all heads. The output projection starts at zero (docs/decisions/0002). In the controlled form
    attention is that of all variants, and the memory stays.
    """

    name = "lact"
    kernel_families = (*Attention.kernel_families, "fast_weight")
    generation = "test-time training"
    learner = Learner(
        loss="inner product",
        memory="gated MLP, beside the last w keys and values",
        optimiser="one gradient step per chunk, with momentum",
        retention="no decay: columns keep their length; the window drops older tokens",
    )
    Settings = LaCTSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads = settings.heads
        self.fast = FastBranch(settings, layer, heads * self.project.key_dim, heads * self.project.value_dim)

    def _read_beside(self, x: SharedInput, heads: Any, positions: Tensor, state: Cache | None) -> FastOut:
        """Return what the memory reads, and the memory after it."""
        turn = partial(self.turn, positions=positions)
        before = (None, None) if state is None else (state.memory, state.seen)
        read: FastOut = self.fast(x.x, *heads, turn, *before)
        return read

    def _attend(
        self, new: Tokens, keys: Tensor, values: Tensor, key_positions: Tensor | None, log_forget_sums: Any
    ) -> Tensor:
        """Return the layer's output, with what the memory reads."""
        o = self.read(new, keys, values, key_positions, log_forget_sums) + new.more.o
        y: Tensor = self.readout(o, new.shared)
        return y

    def _append(self, state: Cache, new: Tokens, *, in_place: bool = False, first: bool = False) -> Cache:
        """Append tokens to the cache as `Attention` does, with the memory after them."""
        cache = super()._append(state, new, in_place=in_place, first=first)
        return cache._replace(memory=new.more.memory)

    def init_state(self, batch: int, *, capacity: int) -> Cache:
        """Return an empty cache and the initial memory."""
        cache = super().init_state(batch, capacity=capacity)
        return cache._replace(memory=self.fast.init_state(cache.keys, batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of attention and of the memory."""
        return super().state_floats(seq_len).plus(StateSize(recurrent=self.fast.state_floats()))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return those of attention and of the memory."""
        return super().recurrence_flops(seq_len) + self.fast.flops(seq_len)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for scales, shifts and the initial memory."""
        names = [f"fast.{name}" for name, _ in self.fast.named_parameters()]
        free = [name for name in names if name.split(".")[1] in ("scales", "shifts", "initial")]
        return super().parameter_rules() | {name: Rule(decay=False) for name in free}
