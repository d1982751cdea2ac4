"""The law of extreme inputs."""

import torch
from torch import Tensor

from linbench.engine.layer_under_test import LayerUnderTest
from linbench.models.base import Mixer
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH


@law("extreme inputs", place=9)
def extreme_inputs(subject: LayerUnderTest) -> Found:
    """Extreme inputs give finite outputs and gradients in float32.

    They are zeros, one token again and again, and inputs 10,000 times as large and as small.
    """
    x = subject.tokens(LENGTH, torch.float32)
    spike = x.clone()
    spike[:, 9] *= 1e4
    given = {
        "zeros": 0 * x,
        "one token": x[:, :1].expand_as(x),
        "large": 1e4 * x,
        "small": 1e-4 * x,
        "one large token": spike,
    }
    for name, inputs in given.items():
        outputs, gradients = _outputs_and_gradients(subject.build(torch.float32), inputs)
        if not outputs.isfinite().all():
            return False, f"{name}: outputs are not finite"
        if not all(gradient.isfinite().all() for gradient in gradients):
            return False, f"{name}: gradients are not finite"
    return True, f"finite for {', '.join(given)}"


def _outputs_and_gradients(mixer: Mixer, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaf = x.clone().requires_grad_()
    y = mixer(leaf).y
    weights = [p for p in mixer.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(y.sum(), [leaf, *weights], allow_unused=True)
    return y, [gradient for gradient in gradients if gradient is not None]
