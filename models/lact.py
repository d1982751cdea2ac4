"""LaCT: window attention beside a gated MLP that is trained with one large step per chunk."""

from functools import partial
from typing import Any

from pydantic import Field
from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.beside_attention import BesideAttention, FastOut
from linbench.models.blocks.fast_branch import FastBranch
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


class LaCT(BesideAttention):
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

    def read_memory(self, x: SharedInput, heads: Any, positions: Tensor, memory: Any, seen: Any) -> FastOut:
        """Return what the memory reads, and the memory after it."""
        read: FastOut = self.fast(x.x, *heads, partial(self.turn, positions=positions), memory, seen)
        return read

    def join(self, attended: Tensor, read: Tensor) -> Tensor:
        """Return the sum of both."""
        return attended + read

    def initial_memory(self, like: Tensor, batch: int) -> Tensor:
        """Return the memory before the first token."""
        return self.fast.init_state(like, batch)

    def memory_floats(self) -> int:
        """Return how many floats the memory is."""
        return self.fast.state_floats()

    def memory_flops(self, seq_len: int) -> float:
        """Return the operations of the memory for a token."""
        return self.fast.flops(seq_len)

    def memory_rules(self) -> dict[str, Rule]:
        """Return no weight decay for scales, shifts and the initial memory."""
        names = [f"fast.{name}" for name, _ in self.fast.named_parameters()]
        free = [name for name in names if name.split(".")[1] in ("scales", "shifts", "initial")]
        return {name: Rule(decay=False) for name in free}
