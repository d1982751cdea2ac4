"""Cases of the scan, with the recurrence as a loop."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.scan import scan


def _case(batch: int, length: int, channels: int) -> KernelCase:
    inputs = {
        "a": normal(batch, length, channels).tanh(),
        "b": normal(length, batch, channels).transpose(0, 1),
        "state": normal(batch, channels),
    }
    return KernelCase(
        lambda given: scan(given["a"], given["b"], given["state"]),
        _reference,
        inputs,
        at_least_float32=("state",),
    )


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    h, every = given["state"], []
    for a, b in zip(given["a"].unbind(1), given["b"].unbind(1), strict=True):
        h = a * h + b
        every.append(h)
    return torch.stack(every, dim=1), h


FAMILY = Family(
    cases={
        "scan": {
            "odd length": partial(_case, 3, 99, 70),
            "one token": partial(_case, 2, 1, 5),
            "many channels": partial(_case, 2, 65, 1030),
        }
    },
    profile_kind="recurrence",
    profile_names=("linbench::scan", "linbench_scan"),
    shown_with_models=True,
)
