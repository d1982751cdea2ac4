"""Settings of softmax attention, which its variants share."""

from typing import Literal

from pydantic import Field

from linbench.common.settings import ABSENT
from linbench.models.blocks.heads import NO_CONVOLUTION, OUTPUT_NORM, HeadSettings, OutputNorm, QKNorm


class AttentionSettings(HeadSettings):
    """Settings of softmax attention. Published: rotary positions, nothing around the heads."""

    conv: int = NO_CONVOLUTION
    qk_norm: QKNorm = Field(
        "none", description="norm of q and k per head; with l2 the scores get a learned scale (2010.04245)"
    )
    output_norm: OutputNorm = Field("none", description=OUTPUT_NORM.description)
    positions: Literal["rope", "none", "alibi"] = Field(
        "rope", description="how a token knows where it stands"
    )
    window: int | None = Field(
        None, ge=1, description="how many keys a query sees, itself included; null is all"
    )
    kv_heads: int | None = Field(
        None,
        ge=1,
        description="heads of keys and values, each for as many heads of queries; null is heads",
        json_schema_extra={ABSENT: None},
    )
    rope_fraction: float = Field(
        1.0,
        gt=0,
        le=1,
        description=(
            "share of a head's dimensions that positions = rope rotates, the first ones, rounded up to an"
            " even number"
        ),
        json_schema_extra={ABSENT: 1.0},
    )


class WholeSettings(AttentionSettings):
    """Settings of attention over all keys so far, whose scores say by themselves where a key stands."""

    positions: Literal["none"] = Field("none", description="beside what the scores say, there are none")
    window: None = Field(None, description="a query sees all keys before it")
    kv_heads: None = Field(None, description="as many heads of keys and values as of queries")
