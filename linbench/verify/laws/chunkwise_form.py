"""The law of the chunkwise form."""

import torch

from linbench.engine.layer_under_test import LAYER_POSITIONS, LayerUnderTest, UndeclaredError, difference
from linbench.kernels.operators import prefer_backend
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH, within


@law("chunkwise form", place=4)
@torch.no_grad()
def chunkwise_form(subject: LayerUnderTest) -> Found:
    """The fast form of its kernels gives what their step-by-step references give: to 1e-9 in float64."""
    if not subject.cls.kernel_families:
        raise UndeclaredError("it computes with no kernel family of linbench")
    x, errors = subject.tokens(LENGTH), {}
    for index, where in LAYER_POSITIONS.items():
        mixer = subject.at_layer(index)
        with prefer_backend("reference") as families:
            slow = mixer(x).y
        if not families and subject.cls.is_plain_module:
            raise UndeclaredError("it computes with no kernel family of linbench")
        if not families:
            raise UndeclaredError("its kernels have one form")
        errors[where] = difference(mixer(x).y, slow)
    return within(subject.limit(1e-9), errors, "differs")
