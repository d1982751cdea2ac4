"""Base of the variants that remember slots: few keys and values, which a softmax over the slots reads."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.key_norms import score_scale
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings


class SlotSettings(MatrixSettings):
    """Settings of a layer that remembers slots."""

    slots: int | None = Field(
        None, ge=1, description="slots m of a head; null is as many as a key has dimensions"
    )


class SlotMixer(MatrixMixer):
    """A mixer whose memory is m keys and m values per head.

    They are the rows of one matrix [B, H, m, K + V], with `extra_columns` after them. A variant computes what
    is written and kept in `recur`, and the weights of slots with `weigh`.
    """

    scale_power: ClassVar[float] = 0.0
    """The published factor on scores is K to this power, without an l2 norm of queries and keys."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.slots: int = settings.slots or self.project.key_dim
        self.scale = score_scale(settings, self.project.key_dim)

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """H, m, K + V, with the extra columns."""
        columns = self.project.key_dim + self.project.value_dim + self.extra_columns
        return self.project.heads, self.slots, columns

    def split(self, memory: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return keys [B, H, m, K], values [B, H, m, V] and extra columns; None for each without a memory."""
        if memory is None:
            return None, None, None
        widths = [self.project.key_dim, self.project.value_dim, self.extra_columns]
        return tuple(torch.split(memory, widths, dim=-1))

    def weigh(self, scores: Tensor) -> Tensor:
        """Return weights of slots [B, T, H, m], in at least float32, from their keys' products with q.

        Products of l2 norms have attention's learned scale of each head.
        """
        scale: Any = self.project.key_dim**self.scale_power
        if self.scale is not None:
            scale = to_float32(self.scale)[:, None]
        return torch.softmax(scale * to_float32(scores), dim=-1)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the scale."""
        return {} if self.scale is None else {"scale": Rule(decay=False)}
