"""The gated product of SwiGLU: one half of the channels opens or shuts the other.

The family is in no identity of a cell, since it took the place of the same expression in torch. On a CPU it
is that expression, bit for bit. On a GPU it is computed in float32 and rounded once; torch rounds silu(gate)
and, in the gradient of the gate, a product before the result. So in 16 bits it is closer to the same values,
and in float32 it differs in last bits alone.
"""

from torch import Tensor

from linbench.kernels.gated_product.eager import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "silu_product"]

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
        return eager(x)
    from linbench.kernels.gated_product import triton

    return triton.silu_product(x)
