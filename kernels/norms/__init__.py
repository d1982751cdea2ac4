"""Norms over the last dimension, with a weight and a gate that follow them."""

import torch
from torch import Tensor

from linbench.kernels.norms import eager
from linbench.kernels.norms.eager import ACTIVATIONS, Activation
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["ACTIVATIONS", "VERSION", "Activation", "add_rms_norm", "l2_norm", "layer_norm", "rms_norm"]

VERSION = 2
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""


def l2_norm(x: Tensor, eps: float = 1e-6, *, backend: Backend = "auto") -> Tensor:
    """Return x / sqrt(sum x^2 + eps); zero stays zero.

    Args:
        x: [..., D].
        backend: "auto" takes the fastest that runs on this device.

    Returns: shape and dtype of x. Inside, at least float32.

    Raises ValueError: a backend that is not there or does not run on x.
    """
    if not uses_triton(x, backend):
        return eager.l2_norm(x, eps)
    from linbench.kernels.norms import triton

    return triton.l2_norm(x, eps)


def rms_norm(
    x: Tensor,
    weight: Tensor,
    *,
    gate: Tensor | None = None,
    activation: Activation | None = None,
    eps: float = 1e-5,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Return x / sqrt(mean x^2 + eps) * weight * activation(gate), arXiv:1910.07467.

    The gate comes after the norm, as in 2307.08621.

    Args:
        x: [..., D].
        weight: [D].
        gate: shaped as x; None is no gate.
        activation: activation of the gate, "swish" (g sigmoid(g)) or "sigmoid".
        dtype: dtype of the result; None is that of x.
        backend: "auto" takes the fastest that runs on this device.

    Returns: shape of x. Inside, at least float32.

    Raises ValueError: shapes that do not fit together, a gate without activation or an activation without
    gate, a backend that is not there or does not run on x.
    """
    if weight.shape != x.shape[-1:] or (gate is not None and gate.shape != x.shape):
        shapes = [*map(tuple, (x.shape, weight.shape)), None if gate is None else tuple(gate.shape)]
        raise ValueError(f"x [..., D], weight [D] and gate shaped as x, not {shapes}")
    _check_activation(activation, gate)
    if not uses_triton(x, backend):
        return eager.rms_norm(x, weight, gate, activation, eps, dtype or x.dtype)
    from linbench.kernels.norms import triton

    return triton.rms_norm(x, weight, gate, activation, eps, dtype or x.dtype)


def add_rms_norm(
    x: Tensor,
    added: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-5,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Return x + added, and the `rms_norm` of that.

    It takes a pass over memory less than one after the other, and two less backward.

    Args:
        x, added: [..., D].
        weight: [D].
        dtype: dtype of the norm; None is that of x.
        backend: "auto" takes the fastest that runs on this device.

    Returns: both in the shape of x, the sum in its dtype.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on x.
    """
    if weight.shape != x.shape[-1:] or added.shape != x.shape:
        raise ValueError(
            "x [..., D], added shaped as x and weight [D], not"
            f" {[*map(tuple, (x.shape, added.shape, weight.shape))]}"
        )
    if not uses_triton(x, backend):
        total = (x + added).to(x.dtype)
        return total, eager.rms_norm(total, weight, None, None, eps, dtype or x.dtype)
    from linbench.kernels.norms import triton

    return triton.add_rms_norm(x, added, weight, eps, dtype or x.dtype)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: Tensor | None = None,
    activation: Activation | None = None,
    eps: float = 1e-5,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Return ((x - mean) / sqrt(variance + eps) * weight + bias) * activation(gate), each head by itself.

    arXiv:1607.06450.

    Args:
        x: [..., H, D].
        weight: [H, D].
        bias: [H, D]; None is no bias.
        gate: shaped as x; None is no gate.
        activation: activation of the gate, "swish" (g sigmoid(g)) or "sigmoid".
        dtype: dtype of the result; None is that of x.
        backend: "auto" takes the fastest that runs on this device.

    Returns: shape of x. Inside, at least float32.

    Raises ValueError: shapes that do not fit together, a gate without activation or an activation without
    gate, a backend that is not there or does not run on x.
    """
    if not weight.shape == (weight if bias is None else bias).shape == x.shape[-2:] or (
        gate is not None and gate.shape != x.shape
    ):
        shapes = [None if given is None else tuple(given.shape) for given in (x, weight, bias, gate)]
        raise ValueError(f"x [..., H, D], weight [H, D], bias [H, D] and gate shaped as x, not {shapes}")
    _check_activation(activation, gate)
    if not uses_triton(x, backend):
        return eager.layer_norm(x, weight, bias, gate, activation, eps, dtype or x.dtype)
    from linbench.kernels.norms import triton

    return triton.layer_norm(x, weight, bias, gate, activation, eps, dtype or x.dtype)


def _check_activation(activation: str | None, gate: Tensor | None) -> None:
    if activation not in (ACTIVATIONS if gate is not None else (None,)):
        raise ValueError(
            f"activation must be swish or sigmoid with a gate and None without one, not {activation!r}"
        )
