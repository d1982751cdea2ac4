"""Canon layers: residual causal convolutions at up to four sites of a layer, for any mixer.

Allen-Zhu 2025, Physics of Language Models, part 4.1 (SSRN 5240330).
"""

from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from linbench.common.settings import ABSENT
from linbench.models.blocks.convolution import ShortConvolution

KERNEL = 4
"""Taps of a canon layer, as published."""

NONE = "none"


def _sites(value: str) -> str:
    if value != NONE and (not value or value != "".join(site for site in "ABCD" if site in value)):
        raise ValueError("it must be letters of ABCD in their order, or none")
    return value


Sites = Annotated[str, AfterValidator(_sites)]

CANON: Any = Field(
    NONE,
    description=(
        "where a residual causal convolution over 4 tokens stands: A after the norm before the mixer, B on q,"
        " k and v together, C after the norm before the channel mixer, D on swiglu's gate and value before"
        " the activation; letters such as ABCD, or none"
    ),
    json_schema_extra={ABSENT: NONE},
)
"""The setting of the model."""


class Canon(nn.Module):
    """x_t + sum_{i<4} w_i * x_{t-i}, with a w_i per channel, no bias and no activation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = ShortConvolution(channels, KERNEL, activation=None)

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the sum [B, T, C] and the last three inputs [B, 3, C].

        Args:
            x: [B, T, C].
            state: the inputs before x; None stands for zeros.
        """
        (y,), state = self.conv(x, state)
        return x + y, state

    def of_heads(self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> tuple[Tensor, ...]:
        """Return q, k and v with their channels side by side convolved, and the state.

        Several keys and values of one token, which follow each other in time, are channels of that token.
        """
        batch, length = q.shape[:2]
        flat = [x.reshape(batch, length, -1) for x in (q, k, v)]
        y, state = self(torch.cat(flat, dim=-1), state)
        parts = torch.split(y, [x.shape[-1] for x in flat], dim=-1)
        return *(part.reshape(x.shape).to(x.dtype) for part, x in zip(parts, (q, k, v), strict=True)), state

    def init_state(self, batch: int) -> Tensor:
        """Return zeros [B, 3, C]."""
        return self.conv.weight.new_zeros(batch, *self.conv.state_shape)

    def state_floats(self) -> int:
        """Return 3 C."""
        return self.conv.state_shape[0] * self.conv.state_shape[1]
