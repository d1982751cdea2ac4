"""Gates computed from a token: how much the memory forgets, and how strongly the token writes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.dtypes import to_float32
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine, Linear, LowRank, SharedInput
from linbench.models.blocks.starting_gates import (
    AS_PUBLISHED,
    ONE_BY_ONE,
    DrawnGateSettings,
    draw,
    draw_a_log,
    draw_dt_bias,
    inverse_softplus,
    logit,
)


class ScalarDecay(nn.Module):
    """One decay per head: log a_t = -exp(A_log) softplus(W x_t + dt_bias), as in Mamba-2. arXiv:2405.21060.

    A ~ U(1, 16), and dt_bias is such that softplus(dt_bias) is log-uniform in (0.001, 0.1), at least 1e-4:
    with W x = 0 the median half-life is about ten tokens. Both are drawn in strata, one per head, in random
    order: every head has the published distribution, yet no layer of few heads gets only short memories
    (docs/decisions/0003). With a `forget_bias` the step follows from A, which stays large enough for a gate
    to close within a token.

    Args:
        d_model: width of x.
        heads: number of heads.
        settings: the settings that say how it starts.
        copies: decays that each head has, with A and dt_bias of the head and maps of their own; None: one.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        settings: DrawnGateSettings = AS_PUBLISHED,
        *,
        copies: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = (heads,) if copies is None else (copies, heads)
        self.project = Linear(d_model, math.prod(self.shape))
        self.A_log = nn.Parameter(draw_a_log(heads, strata=settings.strata))
        self.dt_bias = nn.Parameter(
            settings.start(
                draw_dt_bias(heads, strata=settings.strata),
                lambda rate: inverse_softplus(rate / self.A_log.detach().exp()),
            )
        )

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H], or [B, T, copies, H], <= 0 of x [B, T, D], in at least float32."""
        step = self.project(x)
        if len(self.shape) > 1:
            step = step.unflatten(-1, self.shape)
        return decay_gate(step, self.A_log, self.dt_bias)


class WriteStrength(nn.Module):
    """One strength per head, or per channel of the heads: beta_t = sigmoid(W x_t) in (0, 1).

    With `neg_eigval` it is doubled to (0, 2), which allows negative eigenvalues. arXiv:2411.12537.
    """

    def __init__(self, d_model: int, count: int, *, neg_eigval: bool) -> None:
        """Make `count` strengths, for x of width d_model."""
        super().__init__()
        self.project = Linear(d_model, count)
        self.largest = 2.0 if neg_eigval else 1.0

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return beta [B, T, count] of x [B, T, D]."""
        return self.largest * torch.sigmoid(self.project(x))


class ConstantDecay(nn.Module):
    """One constant decay per head, neither learned nor dependent on the token.

    RetNet, arXiv:2307.08621; TransNormerLLM, arXiv:2307.14995.
    """

    def __init__(self, log_decay: Tensor) -> None:
        """Keep log_decay [H] <= 0."""
        super().__init__()
        self.log_decay: Tensor
        self.register_buffer("log_decay", log_decay)

    def forward(self) -> Tensor:
        """Return the log decay [H], in at least float32."""
        return to_float32(self.log_decay)


class LowRankDecay(nn.Module):
    """One decay per key channel of a head: log a_t = logsigmoid(W_up W_down x_t + b) / divisor.

    GLA, arXiv:2312.06635. With W_down x = 0 every channel starts at a decay of sigmoid(bias)^(1 / divisor):
    with a bias of zero and a divisor of 16 this is a half-life of 16 tokens.
    """

    def __init__(
        self, d_model: int, heads: int, key_dim: int, *, rank: int, bias: float, divisor: float
    ) -> None:
        super().__init__()
        self.heads, self.divisor = heads, divisor
        self.project = LowRank(d_model, rank, heads * key_dim, bias=True)
        set_bias(self.project.up, bias)

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H, K] <= 0 of x [B, T, D], in at least float32."""
        logits = self.project(x).unflatten(-1, (self.heads, -1))
        return F.logsigmoid(to_float32(logits)) / self.divisor


class StepDecay(ScalarDecay):
    """`ScalarDecay` that also returns its step softplus(W x_t + dt_bias), which scales Mamba-2's writes.

    With a `forget_bias` A follows from the step, so that writes start as large as published.
    """

    def __init__(self, d_model: int, heads: int, settings: DrawnGateSettings = AS_PUBLISHED) -> None:
        super().__init__(d_model, heads, DrawnGateSettings(strata=settings.strata))
        step = F.softplus(self.dt_bias.detach())
        self.A_log = nn.Parameter(settings.start(self.A_log.detach(), lambda rate: (rate / step).log()))

    def with_step(self, x: Tensor | SharedInput) -> tuple[Tensor, Tensor]:
        """Return log decay and step [B, T, H] of x [B, T, D], in at least float32."""
        step = self.project(x)
        step = F.softplus(to_float32(step) + self.dt_bias)
        return -self.A_log.exp() * step, step


class UniformDecay(nn.Module):
    """One decay per channel of a head: log a_t = logsigmoid(W x_t + b). arXiv:2210.04243.

    b is such that with W x = 0 decays are uniform in (1/n, 1 - 1/n), for n channels in all heads.

    Args:
        d_model: width of x.
        heads: number of heads.
        dim: channels of a head.
        settings: the settings that say how it starts.
        share: share of this gate in the decay that `forget_bias` names, on a logarithmic scale.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        dim: int,
        settings: DrawnGateSettings = ONE_BY_ONE,
        *,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.project = Affine(d_model, heads * dim)
        edge = 1 / max(heads * dim, 3)
        uniform = draw(edge, 1 - edge, heads * dim, strata=settings.strata).logit()
        set_bias(self.project, settings.start(uniform, lambda rate: logit(share * rate)))

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H, dim] <= 0 of x [B, T, D], in at least float32."""
        logits = self.project(x.x if isinstance(x, SharedInput) else x).unflatten(-1, (self.heads, -1))
        return F.logsigmoid(to_float32(logits))
