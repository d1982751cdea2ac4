"""Cases of the selective scan, with the recurrence as a loop."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.selective_scan import selective_scan


def _case(batch: int, length: int, width: int, states: int, *, signed: bool = False) -> KernelCase:
    inputs = {
        "u": normal(batch, length, width),
        "step": F.softplus(normal(length, batch, width).transpose(0, 1)),
        "rate": -normal(width, states).exp(),
        "write": normal(length, batch, states).transpose(0, 1),
        "read": normal(batch, states, length).mT,
        "state": normal(batch, width, states),
    }

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return selective_scan(*(given[name] for name in inputs), signed=signed)

    return KernelCase(kernel, partial(_reference, signed=signed), inputs, at_least_float32=("state",))


def _reference(given: Inputs, signed: bool) -> tuple[Tensor, ...]:
    h, outputs = given["state"], []
    for t in range(given["u"].shape[1]):
        u, step, write, read = (given[name][:, t] for name in ("u", "step", "write", "read"))
        decay = torch.exp(step[:, :, None] * given["rate"])
        h = (2 * decay - 1 if signed else decay) * h + torch.einsum("bw,bn->bwn", step * u, write)
        outputs.append(torch.einsum("bwn,bn->bw", h, read))
    return torch.stack(outputs, dim=1), h


FAMILY = Family(
    cases={
        "selective_scan": {
            "as published": partial(_case, 2, 99, 128, 16),
            "signed, odd sizes": partial(_case, 3, 65, 37, 5, signed=True),
            "one token": partial(_case, 2, 1, 5, 16),
            "many states": partial(_case, 2, 33, 20, 64),
        }
    },
    profile_kind="recurrence",
    profile_names=("selective_scan",),
    shown_with_models=True,
)
