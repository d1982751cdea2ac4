"""RetNet: linear attention in which each head forgets at a constant rate."""

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.gates import ConstantDecay
from linbench.models.blocks.heads import NO_CONVOLUTION, NO_QK_NORM
from linbench.models.blocks.init import CPU, indices
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.learner import Learner


class RetNetSettings(MatrixSettings):
    """Settings of RetNet.

    Published: rotary positions, values twice as wide as keys, norm per head and a swish gate; no convolution,
    no norm of q and k.
    """

    expand_v: float = Field(
        2.0,
        gt=0,
        description=(
            "total value width over d_model; with head_dim given, expand_v / expand_k * head_dim per head"
        ),
    )
    conv: int = NO_CONVOLUTION
    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
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
    """RetNet: linear attention in which each head forgets at a constant rate.

        S_t = a_h S_{t-1} + k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)

    q and k are rotated by position; a_h = 1 - 2^(-5-h) for h = 0 ... H-1. Sun et al. 2023, arXiv:2307.08621.

    State: H K V, constant in length.

    Known for: a recurrent, a parallel and a chunkwise form of the same layer. What it forgets does not depend
    on what it reads, and few heads forget soon: half-lives of 22 and 44 tokens for two, hence the other
    `decay_law`.

    Differences: rotations pair the halves of a head by the usual angles, where the authors' code pairs
    neighbours by slightly different ones. The sums by which that code divides the rows of its parallel form
    are left out: after the norm of the output they matter only through its epsilon. Linear layers keep
    torch's initial values; the output projection starts at zero (docs/decisions/0002).
    """

    name = "retnet"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="constant decay per head",
    )
    Settings = RetNetSettings
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        if settings.decay_law == "powers":
            forgotten = 2.0 ** (-5 - indices(settings.heads))
        else:
            log_forgotten = torch.linspace(math.log(1 / 32), math.log(1 / 512), settings.heads, device=CPU)
            forgotten = log_forgotten.exp()
        self.decay = ConstantDecay(torch.log1p(-forgotten))

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return matrix_state(q, k, v, log_decay=self.decay(), state=memory)
