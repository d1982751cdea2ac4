"""Workspaces: several arrays in one allocation."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from linbench.kernels.matrix_state.triton import launch

Array = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of an array."""


class Workspace:
    """Several arrays one after the other in one allocation.

    An allocation takes the host about as long as half a launch.

    Args:
        contents: shape and dtype of each array by name.
    """

    def __init__(self, batch: int, contents: Mapping[str, Array]) -> None:
        self.contents = dict(contents)
        self.offsets: dict[str, int] = {}
        end = 0
        for name, (shape, dtype) in self.contents.items():
            self.offsets[name] = end
            end += -(-prod(shape) * dtype.itemsize // launch.ALIGNMENT) * launch.ALIGNMENT
        self.shape = (batch, -(-end // batch))
        """Shape of the allocation in bytes.

        The batch is in front for vmap, which stacks there; arrays are not cut along it.
        """

    def empty(self, like: Tensor) -> Tensor:
        """Allocate the workspace on the device of another tensor."""
        return like.new_empty(self.shape, dtype=torch.uint8)

    def view(self, memory: Tensor, name: str) -> Tensor:
        """Return one of the arrays of an allocation."""
        shape, dtype = self.contents[name]
        start = self.offsets[name]
        return memory.view(-1)[start : start + prod(shape) * dtype.itemsize].view(dtype).view(shape)
