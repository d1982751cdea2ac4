"""Gated attention: softmax attention whose output passes a gate, as in Qwen3-Next."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from linbench.models.attention import Attention
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.heads import QKNorm


class GatedAttentionSettings(AttentionSettings):
    """Settings of gated attention. Published: a gate, a centred norm of q and k, a quarter rotated."""

    qk_norm: QKNorm = Field(
        "rms_centred",
        description="norm of q and k per head, before positions; rms_centred has weights 1 + w, decaying w",
    )
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, one number for each channel"
    )
    rope_fraction: float = Field(
        0.25,
        gt=0,
        le=1,
        description=(
            "share of a head's dimensions that positions = rope rotates, the first ones, rounded up to an"
            " even number"
        ),
    )


class GatedAttention(Attention):
    """Gated attention: softmax attention whose output passes a gate, as in Qwen3-Next.

        y_t = W_o (sigmoid(W_g x_t) * o_t)
        o_t = sum_{s <= t} softmax_s(q_t . k_s / sqrt(K)) v_s   per head

    x is the layer's input, from which q, k and v are made, too. q and k have a norm with weights 1 + w, and
    positions rotate the first quarter of their dimensions. Qiu et al. 2025, arXiv:2505.06708; the norm and
    the quarter are those of Qwen3-Next (Qwen team 2025, code).

    State: a cache of Hk (K + V) floats per token seen, as attention's.

    Known for: no attention sink. A head that has nothing to say can close its gate, where a softmax must
    spread its weight over some keys, and models without gates put much of it on the first token.

    Differences: as many heads of keys as of queries, unless kv_heads says otherwise (the source has one for
    eight), and rotary positions with the base of attention's, 10,000. The output projection starts at zero
    (docs/decisions/0002). In the controlled form the gate stays, since nothing else sets this apart from
    attention.
    """

    name = "gated_attention"
    generation = "softmax revisited"
    learner = Attention.learner
    Settings = GatedAttentionSettings
    controlled: ClassVar[dict[str, Any] | None] = {**(Attention.controlled or {}), "output_gate": "sigmoid"}
