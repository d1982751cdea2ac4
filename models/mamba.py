"""Mamba: a small vector of states per channel; each token selects what to write, forget and read."""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.kernels.selective_scan import flops_per_token, selective_scan
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import InputConvolution
from linbench.models.blocks.heads import FAMILIES, inner_width
from linbench.models.blocks.init import BranchSettings, indices, keep, zero_init
from linbench.models.blocks.linear import Linear, LowRank, SharedInput, linear
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.starting_gates import DrawnGateSettings, draw_dt_bias


class MambaSettings(DrawnGateSettings, BranchSettings):
    """Settings of Mamba.

    Published: twice as wide inside, 16 states per channel, a convolution with biases, a skip and a gate, no
    norm.
    """

    expand: float = Field(2.0, gt=0, description="how many channels there are inside, over d_model")
    states: int = Field(16, ge=1, description="how many numbers each channel remembers")
    step_rank: int | None = Field(
        None,
        ge=1,
        description=(
            "rank of the map from a token to the steps of all channels; null is d_model / 16, rounded up"
        ),
    )
    conv: int = Field(4, ge=0, le=4, description="kernel of the short convolution on x, with SiLU; 0 is none")
    conv_bias: bool = Field(True, description="whether the convolution, where there is one, has biases")
    neg_eigval: bool = Field(
        False, description="decays in (-1, 1) instead of (0, 1), which parity needs (2411.12537)"
    )
    skip: bool = Field(True, description="whether D x goes past the memory")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output_gate: Literal["none", "swish"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class MambaState(NamedTuple):
    """State of Mamba.

    memory: [B, W, N] in at least float32. conv: what the short convolution remembers [B, kernel-1, W], None
    without one.
    """

    memory: Tensor
    conv: Tensor | None


class Mamba(Mixer):
    """Mamba: a small vector of states per channel; each token selects what to write, forget and read.

        h_t = exp(d_t A) h_{t-1} + d_t x_t B_t
        y_t = C_t . h_t + D x_t
        d_t = softplus(W_2 W_1 x_t + b)   for each channel

    x is the layer's input after a linear map and the short convolution; B and C are computed from it and are
    the same for all channels. Gu & Dao 2023, arXiv:2312.00752.

    State: W N, 16 times the 2 D channels as published, constant in length; the convolution keeps 3 inputs per
    channel.

    Known for: selection, which copies what matters and skips the rest, and induction over far more tokens
    than it was trained on. Every channel remembers 16 numbers that fade at rates of their own, and no
    association can be erased alone. Decays are positive, so parity is impossible unless `neg_eigval` makes
    them 2 exp(d A) - 1 (arXiv:2411.12537).

    Differences: published models have no channel mixer between their layers (`channel_mixer=own`). Steps are
    drawn in strata (docs/decisions/0003); the output projection starts at zero (docs/decisions/0002). In the
    controlled form there are as many channels as the model is wide, and no skip, as in Mamba-2's. On a GPU,
    with 16 states or fewer, only one token's states in sixteen leave the chip; on a CPU all are written out,
    which is slow.
    """

    name = "mamba"
    channel_mixer = "none"
    kernel_families: ClassVar[tuple[str, ...]] = ("selective_scan", "scan", *FAMILIES)
    generation = "gates and decay"
    Settings = MambaSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        "expand": 1.0,
        "conv": 4,
        "conv_bias": False,
        "skip": False,
        "output_norm": "rms",
        "output_gate": "none",
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, states = inner_width(settings.expand, layer.d_model), settings.states
        self.inner = Linear(layer.d_model, width)
        self.gate = Linear(layer.d_model, width) if settings.output_gate == "swish" else None
        self.conv = InputConvolution(width, settings.conv, bias=settings.conv_bias)
        self.step = LowRank(width, settings.step_rank or math.ceil(layer.d_model / 16), width, bias=True)
        self.step.up.bias = nn.Parameter(draw_dt_bias(width, strata=settings.strata))
        keep(self.step.up)
        self.write, self.read = Linear(width, states), Linear(width, states)
        step = F.softplus(self.step.up.bias.detach())[:, None]
        published = (indices(states) + 1).log().repeat(width, 1)
        # steps scale writes, so they stay as drawn and A follows
        self.A_log = nn.Parameter(settings.start(published, lambda rate: (rate / step).log()))
        self.skip = nn.Parameter(torch.ones(width)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Linear(width, layer.d_model), silent=settings.silent)

    def forward(self, x: Tensor, state: MambaState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = SharedInput(x, [self.inner, *([] if self.gate is None else [self.gate])])
        u, conv = self.conv(self.inner(given), state and state.conv)
        o, memory = self.recur(u, state and state.memory)
        if self.skip is not None:
            o = o + self.skip.to(u.dtype) * u
        if self.norm is not None:
            o = self.norm(o)
        if self.gate is not None:
            o = o * F.silu(self.gate(given))
        return Out(self.linear(o), MambaState(memory, conv), cross_layer)

    def recur(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return C_t . h_t [B, T, W], without the skip, and the memory.

        Args:
            u: [B, T, W], x of the equation.
            memory: [B, W, N]; None stands for zeros.
        """
        shared = SharedInput(u, [self.step.down, self.write, self.read])
        low, up = self.step.down(shared), self.step.up
        # the bias is added in float32: it has digits that 16 bits do not hold
        step = F.softplus(to_float32(linear(low, [up.weight])[0]) + up.bias)
        A = -self.A_log.to(step.dtype).exp()
        B, C = self.write(shared), self.read(shared)
        o, memory = selective_scan(u, step, A, B, C, memory, signed=self.settings.neg_eigval)
        return o.to(u.dtype), memory

    def init_state(self, batch: int, *, capacity: int) -> MambaState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.linear.weight
        return MambaState(
            weight.new_zeros(batch, *self.A_log.shape, dtype=at_least_float32(weight.dtype)),
            self.conv.init_state(batch),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return W N for the memory and (kernel - 1) W for the convolution."""
        return StateSize(recurrent=self.A_log.numel(), convolution=self.conv.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the scan, the skip and the gate."""
        width, states = self.A_log.shape
        return (
            flops_per_token(width, states) + (2 * (self.skip is not None) + (self.gate is not None)) * width
        )

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters and the skip."""
        return {
            name: Rule(decay=False)
            for name in ("A_log", "step.up.bias", *([] if self.skip is None else ["skip"]))
        }
