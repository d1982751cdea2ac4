"""The law of construction."""

from linbench.engine.layer_under_test import PLACES, Subject
from linbench.verify.laws import Found, law


@law("construction", place=0, decisive=True)
def construction(subject: Subject) -> Found:
    """It can be built as the first and as the second of two layers."""
    first, second = (sum(p.numel() for p in subject.build(index=index).parameters()) for index in PLACES)
    return True, f"{first:,} parameters" + (f", {second:,} in the second layer" if second != first else "")
