"""What is timed: every recurrence of `matrix_state` and the small kernels around it, with the least
arithmetic that each takes."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.bench.shapes import parsed, written
from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.matrix_state.published import INSTANCES, Instance, apply, random_inputs
from linbench.kernels.norms import l2_norm, rms_norm
from linbench.kernels.short_convolution import short_convolution

Inputs = dict[str, Tensor]

VOCABULARY = 8192
LABELLED = 8
"""One in so many positions has a label."""


class Shape(NamedTuple):
    """Batch, length, heads and the dimension of a head, of keys as of values."""

    B: int
    T: int
    H: int
    D: int

    def __str__(self) -> str:
        return written(self._asdict())


_TILE = Shape(4, 512, 1, 1)
SHAPES = {
    "cuda": (
        Shape(256, 256, 2, 64),
        Shape(512, 64, 1, 64),
        Shape(8, 4096, 16, 128),
        Shape(1, 65536, 16, 128),
    ),
    "cpu": (Shape(32, 256, 2, 64), Shape(64, 64, 1, 64)),
}


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """`B256xT256xH2xD64,...`. Raises UserError."""
    return parsed(text, Shape, "B256xT256xH2xD64,B8xT4096xH16xD128")


class Operation(NamedTuple):
    """inputs: random ones, those that float get gradients. call: the output alone. exact: the same in
    float64, in torch.

    flops: of the matrix products of forward; those of backward are twice as many, two for each. family: of
        its kernels.
    """

    inputs: Callable[[Shape, torch.dtype, str], Inputs]
    call: Callable[[Inputs], Tensor]
    flops: Callable[[Shape], float]
    family: str
    exact: Callable[[Inputs], Tensor] | None = None

    def versions(self) -> dict[str, int]:
        """Of its kernels, by family."""
        return {self.family: import_module(f"linbench.kernels.{self.family}").VERSION}


def recurrence_flops(instance: Instance, shape: Shape) -> float:
    """The cheaper of two forms, without what is elementwise. A multiply-add counts two; n steps per token; K
    = V = D.

    Recurrent, per token and head: 2KV to read, for each step 2KV to write, and 2KV to recall where what is
    written depends on the state; for the low-rank term 2KV to write once more. As attention, masked halves
    left out, so T/2 pairs per token: n times 2K for a score and 2V for its use in the output, n^2 times as
    much to solve for what is written; all twice with a second key for the low-rank term.
    """
    n, solves, keys = instance.steps, instance.update != "add", 2 if instance.update == "low_rank" else 1
    recurrent = 2 * shape.D**2 * (1 + n * (keys + solves))
    attention = 2 * shape.D * shape.T * keys * (n + n * n * solves)
    return shape.B * shape.T * shape.H * min(recurrent, attention)


def _recurrence(instance: Instance) -> Operation:
    def inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
        batch, length = min(shape.B, _TILE.B), min(shape.T, _TILE.T)
        tile = random_inputs(
            instance,
            batch=batch,
            length=length,
            heads=shape.H,
            key_dim=shape.D,
            value_dim=shape.D,
            dtype=dtype,
            device=device,
        )
        return {name: x if name == "bonus" else _tiled(x, shape, batch, length) for name, x in tile.items()}

    def call(given: Inputs, backend: str = "auto") -> Tensor:
        return apply(instance, given, final=False, backend=backend)[0]

    return Operation(
        inputs, call, partial(recurrence_flops, instance), "matrix_state", partial(call, backend="chunkwise")
    )


def _published(instance: Instance) -> Instance:
    """Of the delta rules, only that of several steps is published with negative eigenvalues."""
    return instance._replace(neg_eigval=instance.steps > 1)


def _tiled(x: Tensor, shape: Shape, batch: int, length: int) -> Tensor:
    """[batch, steps length, ...] -> [B, steps T, ...]: random numbers take long to draw, and speed does not
    depend on their repeating."""
    repeats = (-(-shape.B // batch), -(-shape.T // length), *[1] * (x.dim() - 2))
    return x.repeat(repeats)[: shape.B, : x.shape[1] // length * shape.T].contiguous()


def _random(
    shape: Shape, dtype: torch.dtype, device: str, *, sizes: Callable[[Shape], dict[str, tuple[int, ...]]]
) -> Inputs:
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.randn(size, generator=generator, device=device).to(dtype)
        for name, size in sizes(shape).items()
    }


def _head_loss(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
    rows, width = _rows(shape), shape.H * shape.D
    inputs = _random(
        shape, dtype, device, sizes=lambda _: {"hidden": (rows, width), "weight": (VOCABULARY, width)}
    )
    targets = torch.randint(VOCABULARY, (rows,), generator=torch.Generator().manual_seed(0))
    return {
        "hidden": inputs["hidden"],
        "weight": inputs["weight"] / width**0.5,
        "targets": targets.to(device),
    }


def _rows(shape: Shape) -> int:
    return -(-shape.B * shape.T // LABELLED)


def _like_heads(shape: Shape) -> tuple[int, ...]:
    return (shape.B, shape.T, shape.H, shape.D)


def _small(
    family: str, call: Callable[[Inputs], Tensor], sizes: Callable[[Shape], dict[str, tuple[int, ...]]]
) -> Operation:
    return Operation(partial(_random, sizes=sizes), call, lambda shape: 0.0, family)


def _convolve(given: Inputs) -> Tensor:
    channels = given["x"].shape[-1]
    (y,), _ = short_convolution(given["x"], given["weight"], l2_heads=(channels // 3 * 2, channels // 3))
    return y


OPERATIONS: dict[str, Operation] = {
    name: _recurrence(_published(instance)) for name, instance in INSTANCES.items()
} | {
    "short_convolution": _small(
        "short_convolution",
        _convolve,
        lambda s: {"x": (s.B, s.T, 3 * s.H * s.D), "weight": (4, 3 * s.H * s.D)},
    ),
    "l2_norm": _small("norms", lambda given: l2_norm(given["x"]), lambda s: {"x": _like_heads(s)}),
    "rms_norm": _small(
        "norms",
        lambda given: rms_norm(given["x"], given["weight"], gate=given["gate"], activation="swish"),
        lambda s: {"x": _like_heads(s), "weight": (s.D,), "gate": _like_heads(s)},
    ),
    "cross_entropy": Operation(
        _head_loss,
        lambda given: cross_entropy(given["hidden"], given["weight"], given["targets"]),
        lambda s: 2.0 * _rows(s) * s.H * s.D * VOCABULARY,
        "cross_entropy",
    ),
}
