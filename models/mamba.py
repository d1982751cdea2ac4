"""Mamba: a small vector of states per channel; each token selects what to write, forget and read."""

from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.selective_scan import flops_per_token, selective_scan
from linbench.models.base import Rule
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import indices
from linbench.models.blocks.selective import SelectiveMixer, SelectiveSettings
from linbench.models.blocks.starting_gates import DrawnGateSettings, draw_dt_bias
from linbench.models.learner import Learner


class MambaSettings(DrawnGateSettings, SelectiveSettings):
    """Settings of Mamba.

    Published: twice as wide inside, 16 states per channel, a convolution with biases, a skip and a gate, no
    norm.
    """

    neg_eigval: bool = Field(
        False, description="decays in (-1, 1) instead of (0, 1), which parity needs (2411.12537)"
    )


class Mamba(SelectiveMixer):
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
    kernel_families: ClassVar[tuple[str, ...]] = ("selective_scan", "scan", *FAMILIES)
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix of channels by states",
        optimiser="one gradient step of length d",
        retention="decay per entry and token, tied to d",
    )
    Settings = MambaSettings

    def start_steps(self, width: int) -> Tensor:
        """Return biases whose softplus is log-uniform in (0.001, 0.1)."""
        return draw_dt_bias(width, strata=self.settings.strata)

    def start_decays(self) -> None:
        """Add A_log, which starts at the logarithms of 1 to N in each channel."""
        width, states = self.memory_shape
        step = F.softplus(self.step.up.bias.detach())[:, None]
        published = (indices(states) + 1).log().repeat(width, 1)
        # steps scale writes, so they stay as drawn and A follows
        self.A_log = nn.Parameter(self.settings.start(published, lambda rate: (rate / step).log()))

    def recur(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        logits, B, C = self.select(u)
        step = F.softplus(logits)
        A = -self.A_log.to(step.dtype).exp()
        o, memory = selective_scan(u, step, A, B, C, memory, signed=self.settings.neg_eigval)
        return o.to(u.dtype), memory

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the scan, the skip and the gate."""
        return flops_per_token(*self.memory_shape) + self.around_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters and the skip."""
        return {
            name: Rule(decay=False)
            for name in ("A_log", "step.up.bias", *([] if self.skip is None else ["skip"]))
        }
