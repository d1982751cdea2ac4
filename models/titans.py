"""Titans' neural memory: a network trained by gradient steps with momentum and forgetting."""

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.fast_weight import Network, Step
from linbench.models.blocks.fast_weight import FastWeightMixer
from linbench.models.blocks.heads import CONTROLLED
from linbench.models.blocks.init import PUBLISHED_STD, set_bias
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.trained_memory import (
    FastWeightSettings,
    Gates,
    NormedMemory,
    NormedMemorySettings,
)
from linbench.models.learner import Learner


class TitansSettings(NormedMemorySettings, FastWeightSettings):
    """Settings of Titans. Published: convolution with SiLU, l2 norm of q and k, an MLP, norm and gate."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )
    network: Literal["linear", "mlp"] = Field("mlp", description="the memory: one matrix, or an MLP of two")
    initial: Literal["learned", "zero"] = Field(
        "learned", description="the memory's weights before the first token; from zero no MLP learns"
    )
    inner_expand: int = Field(2, ge=1, description="hidden width of the MLP over a head's key dimension")
    inner_rate: float = Field(0.1, gt=0, description="largest learning rate of the memory")
    momentum: bool = Field(True, description="whether a part of the last change is made again")
    decay: bool = Field(True, description="whether the memory forgets")
    keep_bias: float = Field(4.0, description="logit of what is kept of the memory per token, at the start")

    @model_validator(mode="after")
    def _learns(self) -> Self:
        if self.network == "mlp" and self.initial == "zero":
            raise ValueError("initial = zero needs network = linear, since an MLP of zeros has no gradient")
        return self


class TitansMemory(NormedMemory):
    """The memory of Titans: its network, step and gates."""

    def start_memory(self) -> None:
        """Make the initial memory and the gates."""
        super().start_memory()
        s, width = self.settings, self.gate_inputs
        self.rate = Affine(width, s.heads)
        self.momentum = Affine(width, s.heads) if s.momentum else None
        self.keep = Affine(width, s.heads) if s.decay else None
        for gate, bias in ((self.rate, 0.0), (self.momentum, 0.0), (self.keep, s.keep_bias)):
            if gate is not None:
                nn.init.normal_(gate.weight, std=PUBLISHED_STD)
                set_bias(gate, bias)

    @property
    def gate_inputs(self) -> int:
        """Width of what the gates are computed from."""
        return self.layer.d_model

    @property
    def hidden(self) -> int:
        """Width of the network's hidden layer."""
        return int(self.settings.inner_expand * self.project.key_dim)

    def initial_stds(self) -> list[float]:
        """Return Xavier's standard deviations, sqrt(2 / (inputs + outputs))."""
        return [float((2 / (rows + columns)) ** 0.5) for rows, columns in self.shapes]

    def make_network(self) -> Network:
        """Return the network without biases."""
        return Network(self.settings.network, residual=self.settings.inner_residual)

    def make_step(self) -> Step:
        """Return steps with momentum and decay, which a token reads with its own."""
        return Step(self.settings.mini_batch, momentum=self.settings.momentum, decay=self.settings.decay)

    def gates(self, x: SharedInput) -> Gates:
        """Return theta and the logarithms of eta and alpha [B, T, H]."""
        momentum, keep = (
            None if gate is None else F.logsigmoid(to_float32(gate(x.x)))
            for gate in (self.momentum, self.keep)
        )
        return Gates(self.settings.inner_rate * torch.sigmoid(self.rate(x.x)), momentum, keep)


class Titans(TitansMemory, FastWeightMixer):
    """Titans' neural memory: a network trained by gradient steps with momentum and forgetting.

        S_t = eta_t S_{t-1} - theta_t d/dM |f(k_t; M_0) - v_t|^2 / 2
        M_t = alpha_t M_{t-1} + S_t,  o_t = f(q_t; M_t),  f(x; M) = x + LN(gelu(x M_1) M_2)

    M_0 are the weights at the start of the mini-batch, so that its gradients are computed together. eta,
    theta over inner_rate, and alpha are sigmoids of W x + b, one per head and token. Behrouz, Zhong &
    Mirrokni 2024, arXiv:2501.00663. It is the memory as a layer, MAL: `titans+attention` puts it before
    attention.

    State: H times three copies of the network, of 2 inner_expand K^2 floats as an MLP: its weights, what an
    unfinished mini-batch has gathered, and the momentum.

    Known for: surprise that lasts, since momentum goes on writing after a surprising token; forgetting by
    weight decay. A linear network without norm, residual and momentum, and a mini-batch of one, is a gated
    delta rule that predicts from what it has not yet forgotten.

    Differences: the paper leaves widths, starts and sizes of mini-batches open, and its code is unpublished.
    Norm and residual of the memory are those of a well-known reimplementation; gates start at one half, but
    for what is kept, 0.98 (`keep_bias`), since half a memory would be gone with every token. The paper's loss
    has no 1/2. No learned tokens precede the sequence. MAG is `titans_mag`, MAC is `titans_mac`. The output
    projection starts at zero (docs/decisions/0002).
    """

    name = "titans"
    learner = Learner(
        loss="squared error after a layer norm and a residual",
        memory="MLP of two layers",
        optimiser="gradient steps with momentum, those of a mini-batch from the same weights",
        retention="decay per head and token",
    )
    Settings = TitansSettings
    controlled: ClassVar[dict[str, Any] | None] = dict(CONTROLLED)
