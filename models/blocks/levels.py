"""Base of log-linear attention: a memory for each level of a Fenwick tree over the tokens. arXiv:2506.04761.

A token reads itself at level 0, and earlier tokens at levels from 1 on: level l covers 2^(l-1) of them, and
lower levels are nearer. Token t, counted from 0, has level l if bit l - 1 of t is one. The level then covers
the first half of a block of 2^l tokens, in whose second half t stands.

So the memory of level l is the host's memory, emptied at the start of each block, written in its first half
and read in its second. Its decay, and what a delta rule erases, go on in both. The memories of all levels are
heads of one recurrence, which share keys.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.settings import Settings
from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Add, Delta, flops_per_token, matrix_state
from linbench.models.base import LayerInfo, Out, Rule, StateSize
from linbench.models.blocks.heads import share_input
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.positions import positions_after, require_places


class LevelSettings(Settings):
    """Settings of log-linear attention."""

    levels: int = Field(
        15,
        ge=2,
        description=(
            "levels with weights of their own, enough for 2^(levels - 1) tokens; further ones have the last"
            " one's"
        ),
    )


class LevelState(NamedTuple):
    """State of a layer with a memory for each level.

    levels: [B, H n, K, V] in at least float32, the levels 1 to n of a head one after the other. seen: number
    of tokens so far [B]. conv: what the short convolution remembers, None without one.
    """

    levels: Tensor
    seen: Tensor
    conv: Any


class Levels(NamedTuple):
    """Memories of levels 1 to n before some tokens.

    positions: of the tokens [B or 1, T]. number: n. memory: [B, H n, K, V]; None stands for zeros.
    """

    positions: Tensor
    number: int
    memory: Tensor | None

    def recall(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        weights: Tensor,
        *,
        log_decay: Tensor,
        update: Add | Delta,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        """Return what q reads of all levels, weighted and summed, and the memories after the last token.

        Args:
            q, k, v, log_decay, update, scale: those of the host, as `matrix_state` takes them.
            weights: of levels 0 to n [B, T, H, 1 + n].

        Returns: o [B, T, H, V] in the dtype of v, and memories [B, H n, K, V].
        """
        heads, bits = v.shape[2], torch.arange(self.number, device=v.device)
        place = self.positions[..., None]
        reads = ((place >> bits) & 1).bool()[:, :, None]  # the second half of a block [B or 1, T, 1, n]
        starts = ((place & ((2 << bits) - 1)) == 0)[:, :, None]
        written = torch.where(reads[..., None], 0.0, v[:, :, :, None])
        if isinstance(update, Delta):
            beta = update.beta
            update = update._replace(beta=beta.repeat_interleave(self.number, dim=2))
            v = beta[..., None] * v
        o, memory = matrix_state(
            q,
            k,
            written.flatten(2, 3),
            log_decay=torch.where(starts, -torch.inf, log_decay[..., None]).flatten(2),
            update=update,
            scale=scale,
            state=self.memory,
        )
        own = scale * (to_float32(q) * to_float32(k)).sum(dim=-1).repeat_interleave(
            heads // k.shape[2], dim=2
        )
        shares = torch.where(reads, weights[..., 1:], 0.0)
        total = (shares[..., None] * o.view(*written.shape)).sum(dim=3)
        return (total + (weights[..., 0] * own)[..., None] * v).to(o.dtype), memory


class LogLinear(MatrixMixer):
    """A host of scalar decays whose memory is one for each level, read with weights that tokens choose.

    A variant names this class before its host, and reads the levels in `recur_levels`.
    """

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.level_map = Linear(layer.d_model, settings.heads * settings.levels)
        self.level_scale = nn.Parameter(torch.ones(settings.heads, settings.levels))

    @abstractmethod
    def recur_levels(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, levels: Levels
    ) -> tuple[Tensor, Tensor]:
        """Return the heads' outputs o [B, T, H, V] and the memories after the last token.

        Args:
            x, q, k, v: as `recur` has them.
            levels: what is remembered so far.
        """

    def level_weights(self, x: SharedInput, count: int) -> Tensor:
        """Return weights > 0 of levels 0 to `count` [B, T, H, 1 + count], in at least float32."""
        logits = to_float32(self.level_map(x).unflatten(-1, self.level_scale.shape))
        weights = F.softplus(self.level_scale * logits)[..., : 1 + count]
        missing = 1 + count - weights.shape[-1]
        return torch.cat([weights, *[weights[..., -1:]] * missing], dim=-1) if missing else weights

    def level_count(self, seq_len: int) -> int:
        """Return n for a sequence of so many tokens: the number of levels above 0, at least 1."""
        return max(1, (seq_len - 1).bit_length())

    def forward(self, x: Tensor, state: LevelState | None = None, cross_layer: Any = None) -> Out:  # type: ignore[override]
        """Mix x as `Mixer.forward` says.

        Raises:
            RuntimeError: if there are more tokens than the levels of `state` are for.
        """
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        seen = None if state is None else state.seen
        positions = positions_after(seen, q)
        if self.settings.positions == "rope":
            q, k, _ = self._rotate(q, k, seen)
        if state is None:
            levels = Levels(positions, self.level_count(x.shape[1]), None)
        else:
            levels = Levels(positions, state.levels.shape[1] // self.settings.heads, state.levels)
            require_places(positions, 1 << levels.number)
        o, memory = self.recur_levels(given, q, k, v, levels)
        seen = (positions[:, -1] + 1).expand(len(x))
        return Out(self.readout(o, given), LevelState(memory, seen, conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> LevelState:  # type: ignore[override]
        """Return zeros for as many levels as `capacity` tokens have."""
        memory, conv, *_ = super().init_state(batch, capacity=capacity)
        levels = memory.repeat_interleave(self.level_count(capacity), dim=1)
        return LevelState(levels, torch.zeros(batch, dtype=torch.int64, device=levels.device), conv)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return H K V for each level with a memory, and those of the convolution."""
        host = super().state_floats(seq_len)
        return host._replace(recurrent=self.level_count(seq_len) * host.recurrent)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the host for each level, of a token's own level, and of all weights."""
        (heads, key_dim, value_dim), count = self.memory_shape, self.level_count(seq_len)
        level = flops_per_token(
            heads=heads, key_dim=key_dim, value_dim=value_dim, decay=True, delta=self.delta
        )
        more = (
            (count - 1) * level + 2 * heads * (count + 1) * value_dim + 2 * self.project.key_heads * key_dim
        )
        return super().recurrence_flops(seq_len) + more

    def parameter_rules(self) -> dict[str, Rule]:
        """Return the host's, and no weight decay for the scales of levels."""
        return super().parameter_rules() | {"level_scale": Rule(decay=False)}
