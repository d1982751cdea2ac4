"""Linear attention's denominator: the sum of the weights, kept as one more column of the memory."""

from collections.abc import Callable
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.kernels.matrix_state import doubles_value_tile, matrix_state
from linbench.models.blocks.matrix_mixer import MatrixSettings


class NormalisedSettings(MatrixSettings):
    """Settings of a layer that divides by the sum of the weights.

    With `normalise=false` a norm of the output replaces the division. arXiv:2210.10340.
    """

    normalise: bool = Field(
        True, description="divide by the sum of the weights; off is the un-normalised form with output norm"
    )

    @model_validator(mode="before")
    @classmethod
    def _output_norm_without_division(cls, values: dict[str, Any]) -> dict[str, Any]:
        if str(values.get("normalise", True)).lower() in {"false", "off", "no", "0"}:
            return {"output_norm": "rms", **values}
        return values

    @model_validator(mode="after")
    def _refuse_rotated_weights(self) -> Self:
        if self.normalise and self.positions == "rope":
            raise ValueError(
                "positions = rope rotates q and k, so that the sum of the weights may vanish; it needs"
                " normalise = false"
            )
        return self


def normalised_matrix_state(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    denominator: Callable[[Tensor], Tensor],
    *,
    log_decay: Tensor | None = None,
    strength: Tensor | None = None,
    scale: float = 1.0,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return o_t = S_t^T q_t / denominator(z_t . q_t) and the memory, where S sums k v^T and z sums k.

    z is computed as one more column of S, the one that belongs to a value of 1.

    Args:
        q, k, v, log_decay, scale: as in `matrix_state`.
        denominator: maps z_t . q_t [B, T, H, 1] to what is divided by.
        strength: factor of each write to S and z [B, T, H]; None is 1.
        state: S with z as its last column [B, H, K, V+1]; None stands for zeros.
    """
    weight = torch.ones_like(v[..., :1])
    if strength is not None:  # scales values and not keys, which several heads may share
        weight = strength[..., None].to(v.dtype)
        v = weight * v

    def read(values: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        return matrix_state(q, k, values, log_decay=log_decay, scale=scale, state=state)

    if doubles_value_tile(
        v
    ):  # one more column would double the kernel's tile of values, so z has a call of its own
        o, memory = read(v, None if state is None else state[..., :-1])
        total, z = read(weight, None if state is None else state[..., -1:])
        return (o / denominator(total)).to(v.dtype), torch.cat([memory, z], dim=-1)
    o, state = read(torch.cat([v, weight], dim=-1), state)
    return (o[..., :-1] / denominator(o[..., -1:])).to(v.dtype), state


def keep_from_zero(x: Tensor, least: float = 1e-3) -> Tensor:
    """Return x with its sign and a size of at least `least`, for denominators that may have either sign."""
    return torch.where(x.abs() < least, torch.where(x < 0, -least, least), x)
