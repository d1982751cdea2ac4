"""The law of construction."""

from linbench.engine.layer_under_test import LAYER_POSITIONS, LayerUnderTest
from linbench.verify.laws import Found, law


@law("construction", place=0, decisive=True)
def construction(subject: LayerUnderTest) -> Found:
    """It can be built as the first and as the second of two layers."""
    first, second = (
        sum(p.numel() for p in subject.build(index=index).parameters()) for index in LAYER_POSITIONS
    )
    return True, f"{first:,} parameters" + (f", {second:,} in the second layer" if second != first else "")
