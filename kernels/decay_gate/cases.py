"""Cases of the decay gate."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.family import Family, Inputs, KernelCase, normal


def _case(heads: int) -> KernelCase:
    inputs = {"step": 4 * normal(7, 33, heads), "A_log": normal(heads), "bias": normal(heads) - 4}
    return KernelCase(_kernel, _reference, inputs)


def _kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (decay_gate(given["step"], given["A_log"], given["bias"]),)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    return (-given["A_log"].exp() * F.softplus(given["step"] + given["bias"]),)


FAMILY = Family(
    cases={"decay_gate": {"a few heads": partial(_case, 3), "channels": partial(_case, 200)}},
    profile_kind="gates",
    profile_names=("decay_gate",),
)
