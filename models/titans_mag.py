"""Titans MAG: window attention, gated by what Titans' memory reads of the same queries, keys and values."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.models.base import LayerInfo
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.beside_attention import BesideAttention, FastOut
from linbench.models.blocks.heads import OUTPUT_NORM, OutputNorm, QKNorm
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.norms import RMSNorm
from linbench.models.titans import Titans, TitansMemory, TitansSettings


class TitansMAGSettings(TitansSettings, AttentionSettings):
    """Settings of Titans MAG. Published: those of Titans, beside attention with a window."""

    conv: int = Field(
        4, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_norm: QKNorm = Field(
        "l2", description="norm of q and k per head; with l2 the scores get a learned scale (2010.04245)"
    )
    output_norm: OutputNorm = Field("none", description=OUTPUT_NORM.description)
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "none", description="gate computed from the layer's input, beside that of the memory"
    )
    window: int | None = Field(
        16, ge=1, description="how many keys a query of the attention sees, itself included; null is all"
    )
    kv_heads: None = Field(None, description="as many heads of keys and values as of queries")


class GatingMemory(TitansMemory):
    """The memory of Titans as a gate of attention."""

    def start_memory(self) -> None:
        """Make the memory, and the norms of what attention and the memory read."""
        super().start_memory()
        self.attention_norm = RMSNorm(self.project.value_dim)
        self.memory_norm = RMSNorm(self.project.value_dim)

    def as_gate(self, read: Tensor) -> Tensor:
        """Return the gate that is made of what the memory read."""
        return torch.sigmoid(self.memory_norm(read))


class TitansMAG(GatingMemory, BesideAttention):
    """Titans MAG: window attention, gated by what Titans' memory reads of the same queries, keys and values.

        o_t = RMSNorm(attention_window(q_t)) * sigmoid(RMSNorm(f(q_t; M_t)))

    M_t is the memory of `titans`, learned from the same keys and values, which attention turns by rotary
    positions and the memory does not. "Memory as a gate" of Behrouz, Zhong & Mirrokni 2024, arXiv:2501.00663.

    State: that of `titans`, H times three copies of the network, and a cache of H (K + V) floats for each of
    the last w tokens.

    Known for: a sharp memory of a few tokens and a fading one of all others, side by side in one layer. "As a
    layer", MAL, the memory stands before attention: `titans+attention`.

    Differences: the paper leaves open whether both have projections of their own; here they share q, k and v,
    as in `lact`. It norms both outputs by learned weights and names a nonlinearity, which is the sigmoid of
    the memory's. No learned tokens precede the sequence, and the window is 16. As context, MAC, it is
    `titans_mac`. The rest is as in `titans`. The output projection starts at zero (docs/decisions/0002).
    """

    name = "titans_mag"
    learner = Titans.learner._replace(
        memory="MLP of two layers, beside the last w keys and values",
        retention="decay per head and token; the window drops older tokens",
    )
    Settings = TitansMAGSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.start_memory()

    def read_memory(self, x: SharedInput, heads: Any, positions: Tensor, memory: Any, seen: Any) -> FastOut:
        """Return what the memory reads, and the memory after it."""
        return FastOut(*self.learn(x, heads, memory, seen))

    def join(self, attended: Tensor, read: Tensor) -> Tensor:
        """Return what attention read, gated by what the memory read."""
        joined: Tensor = self.attention_norm(attended) * self.as_gate(read)
        return joined
