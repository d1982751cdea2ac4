"""Recurrent networks whose next memory is a nonlinear function of the last: computed token by token."""

from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.operators import without_autocast
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import keep
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.vector_mixer import VectorMixer


class RecurrentMixer(VectorMixer):
    """A mixer that computes its vectors token by token from W x_t + b and U h_{t-1}.

    The last of its vectors is h, which is also the output. A variant computes its equation in `step`.
    """

    kernel_families: ClassVar[tuple[str, ...]] = FAMILIES
    maps: ClassVar[int]
    """The number G of maps that W and U consist of."""

    def add_maps(self) -> None:
        """Add W, U and b, which is zero."""
        self.project = keep(Linear(self.layer.d_model, self.maps * self.width))
        self.recurrent = nn.Linear(self.width, self.maps * self.width)
        nn.init.zeros_(self.recurrent.bias)

    @abstractmethod
    def step(self, given: Tensor, recalled: Tensor, vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the vectors [B, W] after a token.

        Args:
            given: W x + b [B, G W].
            recalled: U h [B, G W].
            vectors: those before the token [B, W] each.
        """

    def recur(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute all steps in the dtype of the memory."""
        wide, vectors, outputs = memory.dtype, memory.unbind(dim=1), []
        projected = self.project(u).to(wide)
        U, b = self.recurrent.weight.to(wide), self.recurrent.bias.to(wide)
        with without_autocast(u):
            for given in (projected + b).unbind(dim=1):
                vectors = self.step(given, F.linear(vectors[-1], U), vectors)
                outputs.append(vectors[-1])
        return torch.stack(outputs, dim=1), torch.stack(vectors, dim=1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return 0: U h counts with the linear maps."""
        return 0.0
