"""One side of a layer's benchmark: ours or a peer's, and the tokens that it is given."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Side(NamedTuple):
    """A layer as it is called, ours or a peer's.

    forward: x [B, T, D] -> y. prefill: the same from an empty state, which is kept. after: from a batch and a
        number of tokens to a call with the next token
    [B, 1, D], which may be repeated.
    """

    module: nn.Module
    forward: Callable[[Tensor], Tensor]
    prefill: Callable[[Tensor], Any]
    after: Callable[[int, int], Callable[[Tensor], Any]]


def random_tokens(batch: int, length: int, width: int, *, like: Tensor) -> Tensor:
    """[batch, length, width] from N(0, 1), which norms before a mixer make of what comes in."""
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.randn(batch, length, width, device=like.device, generator=generator).to(like.dtype)
