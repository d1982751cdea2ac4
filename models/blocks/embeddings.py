"""Both ends of a model: from a task's inputs to vectors, and from vectors to logits or targets."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.common.task_io import IO
from linbench.kernels.cross_entropy import cross_entropy
from linbench.kernels.embedding import embedding
from linbench.models.blocks.norms import RMSNorm


class Embedding(nn.Embedding):
    """An embedding of ids [B, T], or of [B, T, F] with a sum over F, to [B, T, D]; starts at N(0, 1 / D)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return vectors [B, T, D]."""
        x = embedding(self.weight, inputs)
        return x.sum(dim=2) if inputs.dim() == 3 else x


class Projection(nn.Linear):
    """A linear map of vectors [B, T, d_in] to [B, T, D], in the precision of the residual stream."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return vectors [B, T, D]."""
        with torch.autocast(inputs.device.type, enabled=False):
            return super().forward(inputs.to(self.weight.dtype))


class CodeDecoder(nn.Module):
    """Decoder of MAD's compression task: from one code to a vector for each position. arXiv:2403.17844.

    It adds sines and cosines of the position to the code, then applies norm, linear and GELU twice. The last
    norm and linear map of the published decoder are the model's own.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(module for _ in range(2) for module in (RMSNorm(width), nn.Linear(width, width), nn.GELU()))
        )
        self.frequencies: Tensor
        half = (width + 1) // 2
        # on the meta device, where models are sized, a power would load torch's compiler, which takes seconds
        steps = torch.arange(half, device="cpu") / half
        self.register_buffer("frequencies", 1e4**-steps, persistent=False)

    def forward(self, code: Tensor, places: Tensor) -> Tensor:
        """Return vectors [B, N, D] from a code [B, D] and positions [B, N]."""
        angles = places[:, :, None] * self.frequencies
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)[..., : code.shape[-1]]
        decoded: Tensor = self.layers(code[:, None] + waves)
        return decoded


def make_embedding(io: IO, width: int) -> nn.Module:
    """Return the module that turns a task's inputs into vectors."""
    if io.vocab_in is not None:
        return Embedding(io.vocab_in, width)
    assert io.d_in is not None
    return Projection(io.d_in, width, bias=False)


def make_head(io: IO, width: int) -> nn.Linear:
    """Return the linear map from a model's last vectors to logits, or to the target vectors."""
    size = io.vocab_out if io.vocab_out is not None else io.d_out
    assert size is not None
    return nn.Linear(width, size, bias=False)


def head_loss(hidden: Tensor, head: nn.Linear, targets: Tensor) -> Tensor:
    """Return the mean loss of hidden [B, N, D].

    For ids [B, N] this is the negative log-likelihood, without having all logits in memory; for vectors [B,
    N, d_out] the mean squared error.
    """
    if targets.dim() == 2:
        return cross_entropy(hidden.flatten(0, 1), head.weight, targets.flatten())
    return F.mse_loss(head(hidden).to(targets.dtype), targets)
