"""TTT-Linear: a memory that is a linear model, trained by gradient steps while it reads."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.fast_weight import Network, Step
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.fast_weight import FastWeightMixer
from linbench.models.blocks.heads import CONTROLLED, NO_CONVOLUTION, NO_QK_NORM, QKNorm
from linbench.models.blocks.init import PUBLISHED_STD
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.trained_memory import (
    FastWeightSettings,
    Gates,
    NormedMemory,
    NormedMemorySettings,
)
from linbench.models.learner import Learner


class TTTSettings(NormedMemorySettings, FastWeightSettings):
    """Settings of TTT layers. Published: rotary positions in a mini-batch of 16, layer norm over all heads.

    No convolution, no norm of q and k, no gate: the layer of the paper's transformer backbone.
    """

    conv: int = NO_CONVOLUTION
    qk_norm: QKNorm = NO_QK_NORM
    output_norm: Literal["none", "rms", "rms_all", "layer", "layer_all"] = Field(  # type: ignore[assignment]
        "layer_all", description="norm of the output, over the channels of each head or over all"
    )
    positions: Literal["rope", "none"] = Field(
        "rope", description="whether q and k are rotated by their place in the mini-batch"
    )
    initial: Literal["learned", "zero"] = Field(
        "learned", description="the memory's weights before the first token"
    )


class TTTLinear(NormedMemory, FastWeightMixer):
    """TTT-Linear: a memory that is a linear model, trained by gradient steps while it reads.

        W_t = W_0 - tau_t sum_{s <= t} lambda_s d/dW |f(k_s; W_0) - v_s|^2 / 2
        o_t = f(q_t; W_t),  f(x; W) = x + LN(x W + b)

    W_0 are the weights at the start of the mini-batch, whose last W_t starts the next; sums run over one
    mini-batch. lambda_s = inner_rate sigmoid(w . x_s + b) / K per head; tau_t = max(0, 1/i + c_i) for the
    i-th token of a mini-batch, with c learned from zero. Sun et al. 2024, arXiv:2407.04620.

    State: H (K + 1) V for weights and bias, and as much for the gradients of an unfinished mini-batch, unless
    it has one token.

    Known for: a memory that generalises what it writes, since a step also changes what similar keys recall.
    Gradients of a mini-batch do not see each other, so that only in the next one a value is overwritten
    exactly. With a mini-batch of one and neither norm nor residual it is the delta rule.

    Differences: the paper's other backbone, Mamba's, shares one map by q and k, each with a convolution with
    bias, and gates the output by GELU; here `conv` has SiLU and covers v, too, and `output_gate` takes swish.
    In the controlled form W_0, its norm, residual and rates stay, without positions. The output projection
    starts at zero (docs/decisions/0002).
    """

    name = "ttt_linear"
    learner = Learner(
        loss="squared error after a layer norm and a residual",
        memory="linear map with a bias",
        optimiser="gradient steps, those of a mini-batch from the same weights",
        retention="no decay: similar keys overwrite",
    )
    Settings = TTTSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none"}
    kind: ClassVar[Literal["linear", "mlp"]] = "linear"

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.rate = Affine(layer.d_model, settings.heads)
        nn.init.normal_(self.rate.weight, std=PUBLISHED_STD)
        nn.init.zeros_(self.rate.bias)
        self.token_scale = nn.Parameter(torch.zeros(settings.mini_batch))

    @property
    def turns(self) -> bool:
        """True if q and k are rotated by their place in the mini-batch."""
        return bool(self.settings.positions == "rope")

    def make_network(self) -> Network:
        """Return the network with biases."""
        return Network(self.kind, bias=True, residual=self.settings.inner_residual)

    def make_step(self) -> Step:
        """Return plain steps, which a token reads with its own."""
        return Step(self.settings.mini_batch)

    def gates(self, x: SharedInput) -> Gates:
        """Return the learning rates [B, T, H]."""
        return Gates(self.settings.inner_rate / self.project.key_dim * torch.sigmoid(self.rate(x.x)))

    def scales(self) -> Tensor:
        """Return tau [mini_batch]."""
        scale = to_float32(self.token_scale)
        places = torch.arange(1, len(scale) + 1, device=scale.device, dtype=scale.dtype)
        return (1 / places + scale).clamp(min=0)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the initial memory, its norm and the scales of tokens."""
        return super().parameter_rules() | {"token_scale": Rule(decay=False)}
