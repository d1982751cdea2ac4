"""Bases of the variants that remember slots: few keys and values, which a softmax over the slots reads."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import flops_per_token as matrix_flops
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.two_sided import flops_per_token as two_sided_flops
from linbench.kernels.two_sided import two_sided
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.feature_maps import feature_map
from linbench.models.blocks.heads import NO_CONVOLUTION, OUTPUT_NORM, OutputNorm
from linbench.models.blocks.key_norms import score_scale
from linbench.models.blocks.linear import SharedInput
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


class GatedSlotSettings(SlotSettings):
    """Settings of slots that forget as much as they write.

    Published: SiLU on q, k and v and on what is read, a norm over all heads together; no convolution.
    """

    conv: int = NO_CONVOLUTION
    feature_map: Literal["identity", "silu"] = Field("silu", description="applied to q and k")
    value_map: Literal["identity", "silu"] = Field("silu", description="applied to v")
    output_map: Literal["identity", "silu"] = Field(
        "silu", description="applied to what is read, before its norm"
    )
    output_norm: OutputNorm = Field("rms_all", description=OUTPUT_NORM.description)


class GatedSlotMixer(SlotMixer):
    """A mixer whose slots forget as much as they write: a variant says how much in `decay`.

    K_t = diag(a_t) K_{t-1} + (1 - a_t) k_t^T,  V_t = diag(a_t) V_{t-1} + (1 - a_t) v_t^T
    o_t = V_t^T softmax(K_t q_t)
    """

    kernel_families: ClassVar[tuple[str, ...]] = ("two_sided", *SlotMixer.kernel_families)
    controlled: ClassVar[dict[str, Any] | None] = {
        **(SlotMixer.controlled or {}),
        "feature_map": "identity",
        "value_map": "identity",
        "output_map": "identity",
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.value_map = feature_map(settings.value_map, self.project.value_dim)
        self.output_map = feature_map(settings.output_map, self.project.value_dim)

    @abstractmethod
    def decay(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H, m] <= 0, in at least float32."""

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay = self.decay(x)
        write = -torch.expm1(log_decay)  # 1 - a
        keys, values, _ = self.split(memory)
        scores, keys = two_sided(  # with the keys of slots as columns
            q,
            k,
            write,
            key_log_decay=torch.zeros_like(log_decay[..., :1]),
            value_log_decay=log_decay,
            scale=1.0,
            state=None if keys is None else keys.mT,
        )
        v = self.value_map.features(v)
        o, values = matrix_state(self.weigh(scores), write, v, log_decay=log_decay, scale=1.0, state=values)
        return self.output_map.features(o), torch.cat([keys.mT, values], dim=-1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of both memories, token by token, and of the feature map."""
        heads, keys, values = self.project.heads, self.project.key_dim, self.project.value_dim
        scored = two_sided_flops(heads=heads, key_dim=keys, value_dim=self.slots)
        read = matrix_flops(heads=heads, key_dim=self.slots, value_dim=values, decay=True, delta=False)
        return scored + read + self.project.feature_flops()
