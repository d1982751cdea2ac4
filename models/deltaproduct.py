"""DeltaProduct: several writes of the delta rule for every token."""

from typing import Any

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.gates import WriteStrength
from linbench.models.blocks.heads import HeadProjection
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.gated_deltanet import WideDeltaSettings
from linbench.models.learner import Learner


class DeltaProductSettings(WideDeltaSettings):
    """Settings of DeltaProduct. Published: as Gated DeltaNet, with two steps per token and beta in (0, 2)."""

    steps: int = Field(
        2, ge=1, description="writes per token, n_h of the paper: each has a key, a value and a beta"
    )
    neg_eigval: bool = Field(
        True,
        description="beta in (0, 2) instead of (0, 1): a write can reflect, which parity needs (2411.12537)",
    )


class DeltaProduct(MatrixMixer):
    """DeltaProduct: several writes of the delta rule for every token.

        S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T   for j = 1 .. n
        o_t = S_{t,n}^T q_t / sqrt(K)

    S_{t,0} is the memory after the token before. Siems et al. 2025, arXiv:2502.10297.

    State: H K V, constant in length and in n; the convolution keeps 3 inputs per channel, and keys and values
    have n times as many channels.

    Known for: state tracking. A token acts on the memory by a product of n reflections, and two reflections
    make a rotation: one layer learns the permutations of three elements with n = 2, of five with n = 4, and
    parity with n = 1. It costs n times as much, and never forgets on its own.

    Differences: the output projection starts at zero (docs/decisions/0002).
    """

    name = "deltaproduct"
    generation = "delta rule"
    learner = Learner(
        loss="squared error",
        memory="matrix",
        optimiser="n gradient steps, each for a pair of its own",
        retention="no decay: similar keys overwrite",
    )
    Settings = DeltaProductSettings
    delta = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.beta = WriteStrength(
            layer.d_model, settings.steps * settings.heads, neg_eigval=settings.neg_eigval
        )

    def log_decay(self, x: SharedInput) -> Tensor | None:
        """Return None: nothing decays. A variant with a decay overrides it."""
        return None

    def make_projection(self) -> HeadProjection:
        """Return a projection with a key and a value for every step."""
        return self.head_projection(steps=self.settings.steps)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation.

        beta [B, T, n H] has a token's steps one after the other, like keys and values.
        """
        beta = self.beta(x).reshape(*v.shape[:3])
        update = Delta(beta, neg_eigval=self.settings.reflects)
        return matrix_state(
            q, k, v, log_decay=self.log_decay(x), update=update, steps=self.settings.steps, state=memory
        )
