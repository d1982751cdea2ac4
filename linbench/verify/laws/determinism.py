"""The law of determinism."""

import torch

from linbench.engine.layer_under_test import LayerUnderTest
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH


@law("determinism", place=10)
@torch.no_grad()
def determinism(subject: LayerUnderTest) -> Found:
    """Twice the same gives the same bits, and the same seed the same weights."""
    mixer, x = subject.build(torch.float32), subject.tokens(LENGTH, torch.float32)
    if not torch.equal(mixer(x).y, mixer(x).y):
        return False, "two calls differ"
    if not torch.equal(mixer(x).y, subject.build(torch.float32)(x).y):
        return False, "the same seed gives other weights"
    return True, "identical bits"
