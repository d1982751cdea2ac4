"""The law of automatic mixed precision."""

import torch

from linbench.engine.layer_under_test import LayerUnderTest
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH


@law("autocast", place=12)
@torch.no_grad()
def autocast(subject: LayerUnderTest) -> Found:
    """Under torch.autocast in bfloat16 outputs are finite and within a tenth of those in float32."""
    mixer, x = subject.build(torch.float32), subject.tokens(LENGTH, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixer(x).y
    whole = mixer(x).y.double()
    error = float((y.double() - whole).norm() / whole.norm())
    return error <= 0.1, f"differs by {error:.1e} of the norm"
