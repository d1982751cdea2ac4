"""Cases of products number by number."""

from functools import partial

from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.gated_product import scale_rows, silu_gate, silu_product


def _case(length: int, width: int) -> KernelCase:
    """Build a case with gates from far below to far above zero, and tokens before sequences in memory."""
    return KernelCase(_kernel, _reference, {"x": 4 * normal(length, 3, 2 * width).transpose(0, 1)})


def _kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (silu_product(given["x"]),)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    half = given["x"].shape[-1] // 2
    gate, value = given["x"][..., :half], given["x"][..., half:]
    return (gate / (1 + (-gate).exp()) * value,)


def _apart_case(length: int, width: int) -> KernelCase:
    """Build a case of values and gates in two tensors, the latter a part of a wider one in memory."""
    inputs = {"value": normal(length, 3, width), "gate": 4 * normal(length, 3, 2 * width)[..., width:]}
    return KernelCase(_apart_kernel, _apart_reference, inputs)


def _apart_kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (silu_gate(given["value"], given["gate"]),)


def _apart_reference(given: Inputs) -> tuple[Tensor, ...]:
    return (given["gate"] / (1 + (-given["gate"]).exp()) * given["value"],)


def _rows_case(length: int, width: int) -> KernelCase:
    """Build a case of rows that are a part of wider ones in memory."""
    inputs = {"x": normal(length, 3, 2 * width)[..., width:], "by": normal(length, 3)}
    return KernelCase(_rows_kernel, _rows_reference, inputs)


def _rows_kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (scale_rows(given["x"], given["by"]),)


def _rows_reference(given: Inputs) -> tuple[Tensor, ...]:
    return (given["x"] * given["by"].unsqueeze(-1),)


FAMILY = Family(
    cases={
        "silu_product": {
            "width of a model of 64": partial(_case, 65, 176),
            "odd width": partial(_case, 100, 21),
            "one channel": partial(_case, 7, 1),
            "wider than a tile": partial(_case, 3, 2731),
        },
        "silu_gate": {
            "heads of 64": partial(_apart_case, 65, 64),
            "odd width": partial(_apart_case, 100, 21),
        },
        "scale_rows": {
            "heads of 64": partial(_rows_case, 65, 64),
            "odd width": partial(_rows_case, 100, 21),
        },
    },
    profile_kind="gated product",
    profile_names=("silu_product", "silu_gate", "scale_rows"),
)
