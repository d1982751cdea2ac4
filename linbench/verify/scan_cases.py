"""Recurrences of single numbers and of small vectors, with inputs and the same mathematics in torch, written
independently of them."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.scan import scan
from linbench.kernels.selective_scan import selective_scan
from linbench.verify.kernel_errors import Inputs, Trial, normal


def _scan(batch: int, length: int, channels: int) -> Trial:
    def truth(given: Inputs) -> tuple[Tensor, ...]:
        h = given["state"]
        every = [h := a * h + b for a, b in zip(given["a"].unbind(1), given["b"].unbind(1), strict=True)]
        return torch.stack(every, dim=1), h

    inputs = {
        "a": normal(batch, length, channels).tanh(),
        "b": normal(length, batch, channels).transpose(0, 1),
        "state": normal(batch, channels),
    }
    return Trial(lambda given: scan(given["a"], given["b"], given["state"]), truth, inputs)


def _selective_scan(batch: int, length: int, width: int, states: int, *, signed: bool = False) -> Trial:
    shared, own = (length, batch, states), (batch, length, width)
    inputs = {
        "u": normal(*own),
        "step": F.softplus(normal(length, batch, width).transpose(0, 1)),
        "rate": -normal(width, states).exp(),
    }
    inputs |= {
        "write": normal(*shared).transpose(0, 1),
        "read": normal(batch, states, length).mT,
        "state": normal(batch, width, states),
    }

    def truth(given: Inputs) -> tuple[Tensor, ...]:
        h, outputs = given["state"], []
        for u, step, write, read in zip(
            *(given[name].unbind(1) for name in ("u", "step", "write", "read")), strict=True
        ):
            left = torch.exp(step[:, :, None] * given["rate"])
            h = (2 * left - 1 if signed else left) * h + torch.einsum("bw,bn->bwn", step * u, write)
            outputs.append(torch.einsum("bwn,bn->bw", h, read))
        return torch.stack(outputs, dim=1), h

    return Trial(
        lambda given: selective_scan(*(given[name] for name in inputs), signed=signed), truth, inputs
    )


SCANS: dict[str, dict[str, Callable[[], Trial]]] = {
    "scan": {
        "odd length": partial(_scan, 3, 99, 70),
        "one token": partial(_scan, 2, 1, 5),
        "many channels": partial(_scan, 2, 65, 1030),
    },
    "selective_scan": {
        "as published": partial(_selective_scan, 2, 99, 128, 16),
        "signed, odd sizes": partial(_selective_scan, 3, 65, 37, 5, signed=True),
        "one token": partial(_selective_scan, 2, 1, 5, 16),
        "many states": partial(_selective_scan, 2, 33, 20, 64),
    },
}
"""By kernel and case."""
