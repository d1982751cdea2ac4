"""Both ends of a model: what a task gives becomes vectors, and vectors become what it asks for."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.common.task_io import IO
from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.embedding import embedding
from linbench.models.blocks.norms import RMSNorm


class Embedding(nn.Embedding):
    """Ids [B, T], or [B, T, F] whose embeddings are summed -> [B, T, D]; starts at N(0, 1 / D)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """As above."""
        x = embedding(self.weight, inputs)
        return x.sum(dim=2) if inputs.dim() == 3 else x


class Projection(nn.Linear):
    """Vectors [B, T, d_in] -> [B, T, D], in the precision of the stream."""

    def forward(self, inputs: Tensor) -> Tensor:
        """As above."""
        with torch.autocast(inputs.device.type, enabled=False):
            return super().forward(inputs.to(self.weight.dtype))


class CodeDecoder(nn.Module):
    """What a code says of each place: to the code come the sines and cosines of the place, then twice norm,
    linear, GELU.

    The decoder of MAD's compression task, whose last norm and linear are a model's own. Poli et al. 2024,
    arXiv:2403.17844.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(module for _ in range(2) for module in (RMSNorm(width), nn.Linear(width, width), nn.GELU()))
        )
        self.frequencies: Tensor
        self.register_buffer(
            "frequencies", 1e4 ** -(torch.arange((width + 1) // 2) / ((width + 1) // 2)), persistent=False
        )

    def forward(self, code: Tensor, places: Tensor) -> Tensor:
        """code [B, D], places [B, N] -> [B, N, D]."""
        angles = places[:, :, None] * self.frequencies
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)[..., : code.shape[-1]]
        decoded: Tensor = self.layers(code[:, None] + waves)
        return decoded


def make_embedding(io: IO, width: int) -> nn.Module:
    """What makes vectors of a task's inputs."""
    if io.vocab_in is not None:
        return Embedding(io.vocab_in, width)
    assert io.d_in is not None
    return Projection(io.d_in, width, bias=False)


def make_head(io: IO, width: int) -> nn.Linear:
    """What makes logits, or the vectors themselves, of a model's last vectors."""
    size = io.vocab_out if io.vocab_out is not None else io.d_out
    assert size is not None
    return nn.Linear(width, size, bias=False)


def head_loss(hidden: Tensor, head: nn.Linear, targets: Tensor) -> Tensor:
    """Of hidden [B, N, D]: mean negative log-likelihood of ids [B, N], for which the logits are never all
    there at once; mean squared error of vectors [B, N, d_out]."""
    if targets.dim() == 2:
        return cross_entropy(hidden.flatten(0, 1), head.weight, targets.flatten())
    return F.mse_loss(head(hidden).to(targets.dtype), targets)
