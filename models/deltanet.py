"""DeltaNet: writes only what the memory does not predict yet."""

from typing import Any

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.gates import WriteStrength
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.learner import Learner


class DeltaSettings(MatrixSettings):
    """Settings of delta rules.

    Published: convolution of 4 with SiLU, l2 norm of q and k, RMS norm of the output, no gate.
    """

    neg_eigval: bool = Field(
        False,
        description="beta in (0, 2) instead of (0, 1): a write can reflect, which parity needs (2411.12537)",
    )

    @property
    def reflects(self) -> bool:
        """True if beta |k|^2 may exceed 1. Only the l1 and l2 norms keep keys at most 1 long."""
        return self.neg_eigval or self.qk_norm not in ("l1", "l2")


class DeltaNet(MatrixMixer):
    """DeltaNet: writes only what the memory does not predict yet, so that a key's value is overwritten.

        S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T
        o_t = S_t^T q_t / sqrt(K)

    Schlag, Irie & Schmidhuber 2021, arXiv:2102.11174; parallel form and parameterisation of Yang et al. 2024,
    arXiv:2406.06484.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: overwriting. What a key recalls is erased before the new value is written, so with orthonormal
    keys and beta = 1 recall is exact. It never forgets on its own: only a write to the same key frees room.

    Differences: the output projection starts at zero (docs/decisions/0002). Division of the prediction by a
    normaliser is not a setting, since it takes another state and another key to erase with: see
    `normalised_deltanet`.
    """

    name = "deltanet"
    generation = "delta rule"
    learner = Learner(
        loss="squared error",
        memory="matrix",
        optimiser="one gradient step",
        retention="no decay: similar keys overwrite",
    )
    Settings = DeltaSettings
    delta = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.beta = WriteStrength(layer.d_model, settings.heads, neg_eigval=settings.neg_eigval)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return matrix_state(
            q, k, v, update=Delta(self.beta(x), neg_eigval=self.settings.reflects), state=memory
        )
