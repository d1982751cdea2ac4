"""RetNet: linear attention that forgets, each head at a pace of its own."""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.gates import ConstantDecay
from linbench.models.blocks.init import CPU, indices
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings


class RetNetSettings(MatrixSettings):
    """Published: rotary positions, values twice as wide as keys, norm per head and a swish gate; no
    convolution, no norm of q and k."""

    expand_v: float = Field(
        2.0,
        gt=0,
        description=(
            "total value width over d_model; with head_dim given, expand_v / expand_k * head_dim per head"
        ),
    )
    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_norm: Literal["none", "l2", "rms"] = Field(
        "none", description="norm of q and k per head, the last thing before the recurrence"
    )
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )
    positions: Literal["none", "rope"] = Field(
        "rope", description="whether q and k are rotated by where they stand, after their norm"
    )
    decay_law: Literal["powers", "linspace"] = Field(
        "powers",
        description=(
            "1 - decay of head h: 2^(-5-h), or evenly from 1/32 to 1/512 on a logarithmic scale, which also"
            " with few heads reaches far"
        ),
    )


class RetNet(MatrixMixer):
    """S_t = a_h S_{t-1} + k_t v_t^T,  o_t = S_t^T q_t / sqrt(K), with q and k rotated by position and a_h
    constant.

    Sun et al. 2023, arXiv:2307.08621; a_h = 1 - 2^(-5-h) for h = 0 ... H-1.

    State: H K V, constant in length.
    Known for: a recurrence, a parallel and a chunkwise form of the same layer. What it forgets does not
    depend on what it reads, and a few heads forget soon: half-lives of 22 and 44 tokens for two, hence the
    other law. Rotations pair the halves of a head by the usual angles, where the authors' code pairs
    neighbours by slightly others; the sums by which that code divides the rows of its parallel form are left
    out: after the norm of the output they matter only through its epsilon. Linear layers keep torch's start;
    the output projection starts at zero (docs/decisions/0002).
    """

    name = "retnet"
    generation = "gates and decay"
    Settings = RetNetSettings
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        powers = 2.0 ** (-5 - indices(settings.heads))
        lost = (
            powers
            if settings.decay_law == "powers"
            else torch.linspace(math.log(1 / 32), math.log(1 / 512), settings.heads, device=CPU).exp()
        )
        self.decay = ConstantDecay(torch.log1p(-lost))

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The equation."""
        return matrix_state(q, k, v, log_decay=self.decay(), state=memory)
