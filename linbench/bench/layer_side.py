"""One side of a layer's benchmark, linbench's or a peer's, and the random tokens that it is given."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Side(NamedTuple):
    """A layer as benchmarks call it, linbench's or a peer's.

    Args:
        module: the layer.
        forward: from x [B, T, D] to outputs.
        prefill: the same from an empty state, which is filled and kept.
        after: from a batch size and a number of tokens of context to a call with the next token [B, 1, D].
            The call leaves the state as it was, so that it may be repeated.
    """

    module: nn.Module
    forward: Callable[[Tensor], Tensor]
    prefill: Callable[[Tensor], Any]
    after: Callable[[int, int], Callable[[Tensor], Any]]


def random_tokens(batch: int, length: int, width: int, *, like: Tensor) -> Tensor:
    """Draw [batch, length, width] from N(0, 1), as the norm before a mixer gives it.

    Args:
        like: a tensor of the device and dtype that are wanted.
    """
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.randn(batch, length, width, device=like.device, generator=generator).to(like.dtype)
