"""Products number by number: the gated one of SwiGLU, and rows times a number each, as values times a step.

The family is in no identity of a cell, since it took the place of expressions in torch. In float32 a CPU
computes these, bit for bit; a GPU differs in last bits alone. In 16 bits a product is rounded once: torch
rounds silu(gate) and, in the gradient of the gate, a product before the result, and rounded Mamba-2's skip
before it was a factor.
"""

from torch import Tensor

from linbench.kernels.gated_product import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "scale_rows", "silu_gate", "silu_product"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""


def silu_product(x: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return silu(gate) * value, where the first half of the channels of x is the gate, arXiv:2002.05202.

    With Triton there is no second derivative.

    Args:
        x: [..., 2 H], gate and value side by side, as one linear map gives them.
        backend: "auto" takes the fastest that runs on this device.

    Returns: [..., H] in the dtype of x. With Triton at least float32 inside.

    Raises ValueError: a last dimension that has no halves, a backend that is not there or does not run on x.
    """
    if not x.dim() or not x.shape[-1] or x.shape[-1] % 2:
        raise ValueError(f"x must be [..., 2 H] with H >= 1, not {tuple(x.shape)}")
    if not uses_triton(x, backend):
        return eager.silu_product(x)
    from linbench.kernels.gated_product import triton

    return triton.silu_product(x)


def silu_gate(value: Tensor, gate: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return silu(gate) * value of two tensors. With Triton there is no second derivative.

    Args:
        value, gate: [..., H], of one dtype.
        backend: "auto" takes the fastest that runs on this device.

    Returns: [..., H] in their dtype. With Triton at least float32 inside.

    Raises ValueError: shapes or dtypes that differ, a backend that is not there or does not run on them.
    """
    if not value.dim() or value.shape != gate.shape or value.dtype != gate.dtype:
        given = [(tuple(x.shape), x.dtype) for x in (value, gate)]
        raise ValueError(f"value and gate have one shape [..., H] and one dtype, not {given}")
    if not uses_triton(value, backend):
        return eager.silu_gate(value, gate)
    from linbench.kernels.gated_product import triton

    return triton.silu_gate(value, gate)


def scale_rows(x: Tensor, by: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return each row of x times a number of its own. With Triton there is no second derivative.

    Args:
        x: [..., D].
        by: [...].
        backend: "auto" takes the fastest that runs on this device.

    Returns: [..., D] in the dtype of x. With Triton at least float32 inside.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on x.
    """
    if not x.dim() or x.shape[:-1] != by.shape:
        raise ValueError(f"x [..., D] and by [...], not {[*map(tuple, (x.shape, by.shape))]}")
    if not uses_triton(x, backend):
        return eager.scale_rows(x, by)
    from linbench.kernels.gated_product import triton

    return triton.scale_rows(x, by)
