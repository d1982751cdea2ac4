"""Mixture of memories: a router sends each token to a few of several gated delta rules."""

from typing import Any, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Delta, flops_per_token, matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.gates import ScalarDecay, WriteStrength
from linbench.models.blocks.heads import HeadProjection
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class MoMSettings(GatedDeltaNetSettings):
    """Settings of a mixture of memories.

    Published: as Gated DeltaNet, with eight memories of which a token uses two, and no shared one.
    """

    memories: int = Field(8, ge=1, description="memories of a head that the router chooses from")
    active: int = Field(
        2,
        ge=1,
        description=(
            "memories that the router chooses for a token; with 1 it does not learn, since the weight is one"
        ),
    )
    shared_memory: bool = Field(
        False, description="whether one memory more gets every token, and is read with a weight of one"
    )
    single_kv: bool = Field(
        False, description="whether all memories have the same keys, values, strengths and decays"
    )
    key_heads: None = Field(
        None, description="each head of each memory has a key", json_schema_extra={ABSENT: None}
    )

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.active > self.memories:
            raise ValueError(f"active = {self.active} is more than there are memories, {self.memories}")
        return self

    @property
    def all_memories(self) -> int:
        """Memories of a head, with the shared one."""
        return self.memories + self.shared_memory


class MoM(GatedDeltaNet):
    """Mixture of memories (MoM): a router sends each token to a few of several gated delta rules.

        S_{m,t} = a_{m,t} (I - beta_{m,t} k_{m,t} k_{m,t}^T) S_{m,t-1} + beta_{m,t} k_{m,t} v_{m,t}^T
                  for the `active` memories m with the largest r_{m,t},   r_t = W x_t
        S_{m,t} = S_{m,t-1}   for other memories
        o_t = sum_m w_{m,t} S_{m,t}^T q_t / sqrt(K),   w_t = softmax of r_t over the memories chosen

    All heads have the same router. With `shared_memory` one memory more is always chosen, and has w = 1. Du
    et al. 2025, arXiv:2502.13685, over Gated DeltaNet.

    State: M H K V, constant in length, for M memories with the shared one; the convolution keeps 3 inputs per
    channel, of H K (1 + M) + H V M.

    Known for: a large memory of which a token changes a part, so that tokens of different kinds do not
    overwrite each other. The state that models are matched on is that of all memories.

    Differences: published code gathers the tokens of each memory. Here every memory sees the whole sequence,
    as further heads of one recurrence, with beta = 0 and no decay for tokens that are not its own: the same
    numbers at M / active times the operations. So the convolution runs over the sequence, where published it
    runs over the tokens of each memory; and each memory has filters of its own. A loss that balances the load
    of memories is part of published training, not of this layer. A and the start of decays are those of
    `gated_deltanet`, shared by all memories. The output projection starts at zero (docs/decisions/0002).
    """

    name = "mom"
    learner = GatedDeltaNet.learner._replace(
        memory="several matrices, of which a router chooses some for each token",
        retention="decay per head and token where a token is written; other memories stay",
    )
    Settings = MoMSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        maps = 1 if settings.single_kv else settings.all_memories
        self.beta = WriteStrength(layer.d_model, maps * settings.heads, neg_eigval=settings.neg_eigval)
        self.decay = ScalarDecay(layer.d_model, settings.heads, settings, copies=maps)
        self.router = Linear(layer.d_model, settings.memories)

    def make_projection(self) -> HeadProjection:
        """Return a projection with a key and a value for each memory, or with one for all."""
        return self.head_projection(steps=1 if self.settings.single_kv else self.settings.all_memories)

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """H M, K, V: the memories of a head follow each other."""
        heads, key_dim, value_dim = super().memory_shape
        return heads * self.settings.all_memories, key_dim, value_dim

    def route(self, x: SharedInput) -> tuple[Tensor, Tensor]:
        """Return the weights of memories [B, T, M], in at least float32, and whether they are chosen."""
        scores = to_float32(self.router(x))
        best = scores.topk(self.settings.active, dim=-1).indices
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
        weights = scores.masked_fill(~chosen, -torch.inf).softmax(dim=-1)
        if self.settings.shared_memory:
            weights, chosen = F.pad(weights, (0, 1), value=1.0), F.pad(chosen, (0, 1), value=True)
        return weights, chosen

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        count, heads = self.settings.all_memories, self.settings.heads
        weights, chosen = self.route(x)
        own = chosen[:, :, None].expand(-1, -1, heads, -1).flatten(2)
        by_memory = (*q.shape[:2], -1, heads)
        if not self.settings.single_kv:
            q = q.repeat_interleave(count, dim=2)
            k = self._by_head(k.reshape(*by_memory, k.shape[-1]))
        v = self._by_head(v.reshape(*by_memory, v.shape[-1]))
        beta = self._by_head(self.beta(x).view(by_memory))
        log_decay = self._by_head(self.decay(x))
        o, memory = matrix_state(
            q,
            k,
            v,
            log_decay=torch.where(own, log_decay, 0.0),
            update=Delta(torch.where(own, beta, 0.0), neg_eigval=self.settings.reflects),
            state=memory,
        )
        o = o.view(*o.shape[:2], heads, count, -1) * weights[:, :, None, :, None]
        return o.sum(dim=3).to(v.dtype), memory

    def _by_head(self, x: Tensor) -> Tensor:
        """Return [B, T, H M, ...] of what memories have [B, T, M, H, ...], or of what is one for all."""
        x = x.transpose(2, 3)
        return x.expand(*x.shape[:3], self.settings.all_memories, *x.shape[4:]).flatten(2, 3)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of all memories, of the sum of what they read, and of the feature map."""
        heads, key_dim, value_dim = self.memory_shape
        rule = flops_per_token(heads=heads, key_dim=key_dim, value_dim=value_dim, decay=True, delta=True)
        return rule + 2 * heads * value_dim + self.project.feature_flops()
