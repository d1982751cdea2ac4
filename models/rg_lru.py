"""RG-LRU: a vector whose channels fade at rates that each token sets, the layer of Hawk and Griffin."""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.dtypes import to_float32
from linbench.kernels.scan import flops_per_token, scan
from linbench.models.base import Out, Rule
from linbench.models.blocks.convolution import InputConvolution
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.starting_gates import NO_STRATA, GateSettings, draw, logit
from linbench.models.blocks.vector_mixer import VectorMixer, VectorSettings, VectorState
from linbench.models.learner import Learner

POWER = 8
"""The power of a decay whose gate is fully open, c in the paper."""

LEAST = 1e-30
"""The least 1 - a^2 that is told from zero, where the root has no derivative."""


class RGLRUSettings(GateSettings, VectorSettings):
    """Settings of the RG-LRU.

    Published: a convolution with biases and no activation on x, and a gate; no norm.
    """

    strata: bool = NO_STRATA
    blocks: int = Field(2, ge=1, description="number of blocks on the diagonal of the gates' maps")
    conv: int = Field(4, ge=0, le=4, description="kernel of the short convolution on x; 0 is none")
    conv_bias: bool = Field(True, description="whether the convolution, where there is one, has biases")
    conv_activation: Literal["none", "silu"] = Field("none", description="what follows the convolution")
    output_gate: Literal["none", "gelu"] = Field(
        "gelu", description="gate computed from the layer's input, after the norm"
    )


class BlockGate(nn.Module):
    """sigmoid(W u + b), where W has `blocks` blocks on its diagonal and zeros elsewhere.

    W starts with N(0, blocks / width), b with zero.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        if width % blocks:
            raise UserError(f"model.blocks = {blocks} does not divide the {width} channels of the RG-LRU.")
        block = width // blocks
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(blocks, block, block), std=block**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        """Return the gate [B, T, W] of u [B, T, W], in at least float32."""
        blocks = u.reshape(*u.shape[:-1], len(self.weight), -1)
        logits = torch.einsum("btnc,ncd->btnd", blocks, self.weight.to(u.dtype)).flatten(2)
        return torch.sigmoid(to_float32(logits) + self.bias)


class RGLRU(VectorMixer):
    """RG-LRU: a vector whose channels fade at rates that each token sets, the layer of Hawk and Griffin.

        h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t
        log a_t = 8 r_t log sigmoid(L)   for each channel
        r_t = sigmoid(W_r u_t + b_r),  i_t = sigmoid(W_i u_t + b_i)
        y_t = W_o (h_t gelu(W_g x_t))

    u is the layer's input x after a linear map and the short convolution; L is learned. De et al. 2024,
    arXiv:2402.19427.

    State: W, as wide as the model by default, constant in length; the convolution keeps 3 inputs per channel.

    Known for: Hawk is this layer alone; Griffin puts local attention after every two of them. A token decides
    how long each channel remembers, and the root keeps the size of h whatever that is. Its memory is a
    vector, which limits recall. Decays are positive, so parity is impossible.

    Differences: L starts as in the authors' code, with sigmoid(L)^2 uniform in (0.9^2, 0.999^2); the paper
    says that sigmoid(L)^8 is uniform in (0.9, 0.999), which fades later. The code writes the first token of a
    sequence without the root; here, as in the paper, all tokens are written alike. The code also bounds the
    derivative of the root, which is not needed: with those of the gates it stays small. Linear maps have no
    biases, and the maps of the gates have 2 blocks by default, for small widths. The output projection starts
    at zero (docs/decisions/0002). In the controlled form the convolution has SiLU and no biases.
    """

    name = "rg_lru"
    generation = "gates and decay"
    learner = Learner(
        loss="none: every input is written, as far as its gate lets it",
        memory="a vector",
        optimiser="none: inputs are summed",
        retention="decay per channel and token",
    )
    Settings = RGLRUSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(VectorMixer.controlled or {}),
        "conv_bias": False,
        "conv_activation": "silu",
        "output_gate": "none",
    }

    def make_convolution(self) -> InputConvolution:
        """Return the convolution on u."""
        settings = self.settings
        activation = None if settings.conv_activation == "none" else settings.conv_activation
        return InputConvolution(self.width, settings.conv, bias=settings.conv_bias, activation=activation)

    def add_maps(self) -> None:
        """Add the maps to u and to the output gate, both gates and L."""
        settings, width = self.settings, self.width
        self.inner = Linear(self.layer.d_model, width)
        self.gate = Linear(self.layer.d_model, width) if settings.output_gate == "gelu" else None
        self.recurrence = BlockGate(width, settings.blocks)
        self.input = BlockGate(width, settings.blocks)
        rate = draw(0.9**2, 0.999**2, width, strata=settings.strata).sqrt()
        published = rate.log() - torch.log1p(
            -rate
        )  # torch.logit would load a compiler on a device without data
        # where r is one half, a is sigmoid(L)^4
        self.decay = nn.Parameter(settings.start(published, lambda rate: logit(2 * rate / POWER)))

    def forward(self, x: Tensor, state: VectorState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = SharedInput(x, [self.inner, *([] if self.gate is None else [self.gate])])
        y, state = self.remember(self.inner(given), state)
        if self.gate is not None:
            y = y * F.gelu(self.gate(given))
        return Out(self.linear(y), state, cross_layer)

    def recur(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay = self.log_decay(u)
        scale = (-torch.expm1(2 * log_decay)).clamp(min=LEAST).sqrt()
        h, last = scan(log_decay.exp(), scale * self.input(u) * u, memory[:, 0])
        return h, last[:, None]

    def log_decay(self, u: Tensor) -> Tensor:
        """Return log a [B, T, W] of u [B, T, W], in at least float32."""
        r: Tensor = self.recurrence(u)
        return POWER * r * F.logsigmoid(to_float32(self.decay))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the scan and of the gates' blocks."""
        return flops_per_token(self.width) + 4.0 * self.recurrence.weight.numel()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for L."""
        return {"decay": Rule(decay=False)}
