"""A delta rule that writes under preconditioned keys: what keys have often had writes less."""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.settings import Settings
from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Delta, flops_per_token, matrix_state
from linbench.kernels.scan import scan
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay, WriteStrength
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.starting_gates import DrawnGateSettings

EPSILON = 1e-6
"""Summand of a curvature before its logarithm. arXiv:2604.21100, code."""


class PreconditionedSettings(Settings):
    """Settings of delta rules with a preconditioner."""

    limit: float = Field(
        1.5,
        ge=1,
        le=2,
        description=(
            "the most by which the preconditioner scales a channel of a key, either way; 1 is no"
            " preconditioner"
        ),
    )
    neg_eigval: Literal[False] = Field(
        False, description="false: with beta up to 2 a preconditioned write could make the memory grow"
    )


class Preconditioner(nn.Module):
    """Factors of the channels of keys, from a decayed sum of their squares.

        A_t = a_t A_{t-1} + b_t k_t * k_t,   r_t = log(A_t + 1e-6) - c
        M_t = limit^(-r_t / (1 + |r_t|))

    a_t is a decay of Mamba-2's kind and b_t a sigmoid of the token, with c one per head of keys. The product
    and M are element by element. arXiv:2604.21100.
    """

    def __init__(self, d_model: int, heads: int, *, limit: float, settings: DrawnGateSettings) -> None:
        super().__init__()
        self.log_limit = math.log(limit)
        self.decay = ScalarDecay(d_model, heads, settings)
        self.strength = WriteStrength(d_model, heads, neg_eigval=False)
        self.centre = nn.Parameter(torch.full((heads,), -0.2))

    def forward(self, x: SharedInput, k: Tensor, curvature: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return M_t [B, T, Hk, K] and the last A, in at least float32.

        Args:
            x: the layer's input [B, T, D].
            k: [B, T, Hk, K].
            curvature: A before the first token [B, Hk, K]; None stands for zeros.
        """
        kept = self.decay(x).exp()[..., None].expand(k.shape)
        added = self.strength(x)[..., None] * to_float32(k).square()
        sums, last = scan(
            kept.flatten(2), added.flatten(2), None if curvature is None else curvature.flatten(1)
        )
        ratio = (sums.view(k.shape) + EPSILON).log() - self.centre[:, None]
        return (-self.log_limit * ratio / (1 + ratio.abs())).exp(), last.view(-1, *k.shape[2:])


class Preconditioned(MatrixMixer):
    """A delta rule that writes under M_t k_t and erases with k_t.

    It stands before the delta rule that it changes among a variant's bases. A is one more column of the
    memory, alike for heads that share a key.
    """

    settings: Any
    beta: WriteStrength
    decay: Any

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.preconditioner = Preconditioner(
            layer.d_model, self.key_heads, limit=settings.limit, settings=settings
        )

    @property
    def extra_columns(self) -> int:
        """1, for A."""
        return 1

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        sharing = v.shape[2] // k.shape[2]
        S, A = (None, None) if memory is None else (memory[..., :-1], memory[:, ::sharing, :, -1])
        factors, A = self.preconditioner(x, k, A)
        update = Delta(self.beta(x), erase_key=k)
        o, S = matrix_state(q, (factors * k).to(k.dtype), v, log_decay=self.decay(x), update=update, state=S)
        return o, torch.cat([S, A.repeat_interleave(sharing, dim=1)[..., None]], dim=-1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, of A and of the factors."""
        heads, key_dim, _ = self.memory_shape
        recurrence = flops_per_token(
            heads=heads, key_dim=key_dim, value_dim=self.project.value_dim, decay=True, delta=True
        )
        return recurrence + 13 * self.key_heads * key_dim + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decays' parameters and for c."""
        names = ("decay.A_log", "decay.dt_bias", "centre")
        own = {f"preconditioner.{name}": Rule(decay=False) for name in names}
        return {**super().parameter_rules(), **own}
