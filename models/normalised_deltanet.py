"""Normalised DeltaNet: what the delta rule predicts is a mean of what was written, as in linear attention."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import widened
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.blocks.linear import SharedInput
from linbench.models.deltanet import DeltaNet, DeltaSettings


class NormalisedDeltaSettings(DeltaSettings):
    """As DeltaNet, with features that are not negative, as a mean needs them."""

    feature_map: Literal["elu+1", "relu"] = Field("elu+1", description="applied to q and k, before the norm")
    qk_norm: Literal["none", "l2"] = Field(
        "l2", description="norm of q and k per head, the last thing before the recurrence"
    )
    positions: Literal["none"] = Field(
        "none", description="q and k are not rotated: what is divided by could vanish"
    )


class NormalisedDeltaNet(DeltaNet):
    """S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t / (z_{t-1} . k_t))^T,  z_t = z_{t-1} + k_t,  o_t =
    S_t^T q_t / sqrt(K).

    The delta rule as surveys write it when they start from normalised linear attention (Katharopoulos et al.
    2020, arXiv:2006.16236). The delta rules of Schlag, Irie & Schmidhuber 2021, arXiv:2102.11174, and of most
    since do not divide, though not all: one published layer does. z . k below 1e-6 counts as that: nothing
    was yet written near such a key. It is a model of its own and no setting of `deltanet`: its state holds z
    as well, and the key that it erases with is not the one that it writes with.

    State: H K V, and H K for the normaliser; constant in length.
    Known for: what the division costs. Predictions stay within what was written, whatever the length of keys;
    but a key that is written again is not overwritten: what it recalls grows with its count, and the mean
    that is erased does not. The output projection starts at zero (docs/decisions/0002).
    """

    name = "normalised_deltanet"
    Settings = NormalisedDeltaSettings
    epsilon: ClassVar[float] = 1e-6

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The normaliser z is one more column of S."""
        heads, key_dim, value_dim = super().memory_shape
        return heads, key_dim, value_dim + 1

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """To divide what is predicted is to divide the key that erases."""
        S, z = (None, None) if memory is None else (memory[..., :-1], memory[..., -1:])
        wide = widened(k)
        seen, z = matrix_state(wide, wide, torch.ones_like(wide[..., :1]), read="before", scale=1.0, state=z)
        erase = wide / seen.clamp(min=self.epsilon)
        o, S = matrix_state(q, k, v, update=Delta(self.beta(x), erase_key=erase), state=S)
        return o, torch.cat([S, z], dim=-1)
