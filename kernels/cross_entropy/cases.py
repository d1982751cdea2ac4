"""Cases of the head with its loss, and the operation that is timed."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.family import Family, Inputs, KernelCase, Operation, Shape, normal, random_inputs

VOCABULARY = 8192
"""Rows of the head that is timed: the vocabulary of MQAR's published settings."""

LABEL_SPACING = 8
"""One position in this many has a label where it is timed."""


def _case(rows: int, vocabulary: int) -> KernelCase:
    targets = torch.randint(vocabulary, (rows,), generator=torch.Generator().manual_seed(0))
    targets[::3] = -100
    inputs = {"hidden": normal(rows, 64), "weight": normal(vocabulary, 64) / 8, "targets": targets}
    return KernelCase(lambda given: (_call(given),), _reference, inputs)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    return (F.cross_entropy(given["hidden"] @ given["weight"].mT, given["targets"]),)


def _call(given: Inputs) -> Tensor:
    return cross_entropy(given["hidden"], given["weight"], given["targets"])


def _inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
    rows, width = _labelled_rows(shape), shape.H * shape.D
    sizes: dict[str, tuple[int, ...]] = {"hidden": (rows, width), "weight": (VOCABULARY, width)}
    inputs = random_inputs(shape, dtype, device, sizes=lambda _: sizes)
    targets = torch.randint(VOCABULARY, (rows,), generator=torch.Generator().manual_seed(0))
    return inputs | {"weight": inputs["weight"] / width**0.5, "targets": targets.to(device)}


def _flops(shape: Shape) -> float:
    return 2.0 * _labelled_rows(shape) * shape.H * shape.D * VOCABULARY


def _labelled_rows(shape: Shape) -> int:
    return -(-shape.B * shape.T // LABEL_SPACING)


FAMILY = Family(
    cases={
        "cross_entropy": {
            "small vocabulary": partial(_case, 300, 50),
            "large vocabulary": partial(_case, 60, 5003),
        }
    },
    profile_kind="head and loss",
    profile_names=("cross_entropy",),
    operations={"cross_entropy": Operation(_inputs, _call, _flops)},
)
