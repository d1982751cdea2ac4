"""Forget gates before training: as each paper has them, or all at one decay, whatever their equation.

An equation turns a parameter into a decay. A gate that starts at a given decay starts at the parameter that
the inverse of its equation gives, so a setting of one meaning serves every variant.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.models.blocks.init import CPU

MOST = 30.0
"""The largest size of `forget_bias`: in float32 sigmoid is then 1, or 1e-13. Chosen."""


class GateSettings(Settings):
    """Settings of a layer that forgets."""

    forget_bias: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description=(
            "every forget gate starts at sigmoid(forget_bias), whatever its equation: with 0 each token"
            " halves what came before, with 8 nearly all is kept; null is as published"
        ),
        json_schema_extra={ABSENT: None},
    )

    @property
    def rate(self) -> float | None:
        """-log of the decay that every gate starts at; None: as published."""
        return None if self.forget_bias is None else math.log1p(math.exp(-self.forget_bias))

    def start(self, published: Tensor, inverse: Callable[[float], float | Tensor]) -> Tensor:
        """Return a gate's parameter before training.

        Args:
            published: the parameter as published, for `forget_bias = null`.
            inverse: from -log of a decay to the parameter, or to one for each gate.
        """
        if self.rate is None:
            return published
        return torch.empty_like(published).copy_(torch.as_tensor(inverse(self.rate), device=CPU))


_STRATA = (
    "decays of a layer are drawn one from each of equal parts of their distribution (docs/decisions/0003);"
    " off, each is drawn for itself, as published"
)

NO_STRATA: Any = Field(False, description=_STRATA, json_schema_extra={ABSENT: False})
"""The setting `strata` of variants whose decays are drawn one by one unless asked."""


class DrawnGateSettings(GateSettings):
    """Settings of a layer that forgets at rates that are drawn."""

    strata: bool = Field(True, description=_STRATA, json_schema_extra={ABSENT: True})


AS_PUBLISHED, ONE_BY_ONE = DrawnGateSettings(), DrawnGateSettings(strata=False)
"""Gates that start as published: drawn in strata, or each for itself."""


def draw(low: float, high: float, count: int, *, strata: bool) -> Tensor:
    """Draw [count] numbers from U(low, high).

    With strata there is one in each of `count` equal parts, in random order.
    """
    if not strata:
        return torch.empty(count, device=CPU).uniform_(low, high)
    places = (torch.randperm(count, device=CPU) + torch.rand(count, device=CPU)) / count
    return low + (high - low) * places


def draw_a_log(count: int, *, strata: bool) -> Tensor:
    """Draw A_log [count] with A ~ U(1, 16)."""
    return draw(1, 16, count, strata=strata).log()


def draw_dt_bias(count: int, *, strata: bool) -> Tensor:
    """Draw dt_bias [count] with softplus(dt_bias) log-uniform in (0.001, 0.1), at least 1e-4."""
    return inverse_softplus(draw(math.log(0.001), math.log(0.1), count, strata=strata).exp().clamp(min=1e-4))


def inverse_softplus(x: Tensor) -> Tensor:
    """Return b with softplus(b) = x, for x > 0."""
    return x + (-torch.expm1(-x)).log()


def logit(rate: float) -> float:
    """Return b with -log sigmoid(b) = rate, for rate > 0."""
    return -inverse_softplus(torch.tensor(rate, dtype=torch.float64, device=CPU)).item()
