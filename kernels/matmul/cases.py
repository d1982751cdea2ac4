"""Cases of products of stacked matrices."""

from functools import partial

from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.matmul import product


def _case(replicas: int, rows: int, summands: int, columns: int) -> KernelCase:
    """Build a case whose right factor lies in memory turned, as the weights of a linear map do."""
    inputs = {"a": normal(replicas, rows, summands), "b": normal(replicas, columns, summands)}
    return KernelCase(_kernel, _reference, inputs, differentiable=False)


def _kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (product(given["a"], given["b"].mT),)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    return (given["a"] @ given["b"].mT,)


FAMILY = Family(
    cases={
        "product": {
            "odd sizes": partial(_case, 2, 65, 63, 5),
            "many summands": partial(_case, 1, 33, 1100, 100),
            "several tiles": partial(_case, 2, 200, 100, 130),
        }
    },
    profile_kind="products of float32 matrices",
    profile_names=("_float32_product",),
)
