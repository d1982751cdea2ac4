"""Normalised DeltaNet: a delta rule whose prediction is a mean, as in normalised linear attention."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.blocks.linear import SharedInput
from linbench.models.deltanet import DeltaNet, DeltaSettings


class NormalisedDeltaSettings(DeltaSettings):
    """Settings as DeltaNet's, with features that are not negative, which a mean needs."""

    feature_map: Literal["elu+1", "relu"] = Field("elu+1", description="applied to q and k, before the norm")
    qk_norm: Literal["none", "l2"] = Field(
        "l2", description="norm of q and k per head, the last thing before the recurrence"
    )
    positions: Literal["none"] = Field(
        "none", description="q and k are not rotated: what is divided by could vanish"
    )


class NormalisedDeltaNet(DeltaNet):
    """Normalised DeltaNet: a delta rule whose prediction is a mean, as in normalised linear attention.

        S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t / (z_{t-1} . k_t))^T
        z_t = z_{t-1} + k_t
        o_t = S_t^T q_t / sqrt(K)

    This is the delta rule as surveys write it when they start from normalised linear attention (Katharopoulos
    et al. 2020, arXiv:2006.16236). The delta rules of Schlag, Irie & Schmidhuber 2021, arXiv:2102.11174, and
    most since do not divide; one published layer does. z . k below 1e-6 counts as that: nothing was written
    near such a key yet. It is a model of its own and not a setting of `deltanet`: its state also holds z, and
    it erases with another key than it writes with.

    State: H K V, and H K for the normaliser; constant in length.

    Known for: what the division costs. Predictions stay within what was written, whatever the length of keys;
    but a key that is written again is not overwritten: what it recalls grows with its count, and the mean
    that is erased does not.

    Differences: the output projection starts at zero (docs/decisions/0002).
    """

    name = "normalised_deltanet"
    learner = DeltaNet.learner._replace(
        loss="squared error of a prediction that is divided by z . k",
        memory="matrix, and a sum of keys z",
        optimiser="one gradient step of length beta z . k",
    )
    Settings = NormalisedDeltaSettings
    epsilon: ClassVar[float] = 1e-6

    @property
    def extra_columns(self) -> int:
        """1, for z as one more column of S."""
        return 1

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation. Dividing the prediction is the same as dividing the key that erases."""
        S, z = (None, None) if memory is None else (memory[..., :-1], memory[..., -1:])
        wide = to_float32(k)
        ones = torch.ones_like(v[..., :1], dtype=wide.dtype)
        weight_sum, z = matrix_state(wide, wide, ones, read="before", scale=1.0, state=z)  # z_{t-1} . k_t
        of_keys = weight_sum[:, :, :: v.shape[2] // k.shape[2]]  # alike for all heads that share a key
        erase_key = wide / of_keys.clamp(min=self.epsilon)
        o, S = matrix_state(q, k, v, update=Delta(self.beta(x), erase_key=erase_key), state=S)
        return o, torch.cat([S, z], dim=-1)
