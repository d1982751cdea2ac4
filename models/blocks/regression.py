"""Mixers that read the best linear map from the keys to the values of all tokens so far."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.least_squares import flops_per_token, least_squares
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings


class RegressionSettings(MatrixSettings):
    """Settings of a layer that solves least squares for every token."""

    method: Literal["cg", "chebyshev", "exact"] = Field(
        "cg",
        description=(
            "how least squares are solved: steps of conjugate gradients or of Chebyshev's iteration, or"
            " exactly, which takes long"
        ),
    )
    steps: int = Field(30, ge=1, description="steps of an iteration, each a product with the Gram matrix")
    gradient: Literal["implicit", "unrolled"] = Field(
        "implicit",
        description=(
            "gradient of the solution, by solving once more, which is exact once steps have converged; or"
            " through all steps, which keeps each in memory"
        ),
    )


class RegressionMixer(MatrixMixer):
    """A mixer whose memory is two matrices per head: a Gram matrix of keys, and sums of keys times values.

    They lie side by side, [B, H, K, K + V].
    """

    kernel_families: ClassVar[tuple[str, ...]] = (*MatrixMixer.kernel_families, "least_squares", "scan")

    settings: Any

    @property
    def extra_columns(self) -> int:
        """K, for the Gram matrix."""
        return self.project.key_dim

    def regress(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        memory: Tensor | None,
        *,
        ridge: Tensor,
        log_decay: Tensor | None = None,
        strength: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return o [B, T, H, V] and the memory, as the settings say.

        Arguments are those of `least_squares`.
        """
        settings, keys = self.settings, self.project.key_dim
        o, state = least_squares(
            q,
            k,
            v,
            log_decay=log_decay,
            strength=strength,
            ridge=ridge,
            steps=settings.steps,
            method=settings.method,
            gradient=settings.gradient,
            state=None if memory is None else (memory[..., :keys], memory[..., keys:]),
        )
        return o, torch.cat(state, dim=-1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of least squares, token by token, and of the feature map."""
        settings = self.settings
        heads, key_dim, _ = self.memory_shape
        recurrence = flops_per_token(
            heads=heads,
            key_dim=key_dim,
            value_dim=self.project.value_dim,
            steps=settings.steps,
            method=settings.method,
            decay=self.decays,
        )
        return recurrence + self.project.feature_flops()
