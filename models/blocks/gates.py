"""Gates computed from a token: how much the memory forgets, and how strongly the token writes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.dtypes import to_float32
from linbench.models.blocks.init import CPU
from linbench.models.blocks.linear import Affine, Linear, LowRank, SharedInput


class ScalarDecay(nn.Module):
    """One decay per head: log a_t = -exp(A_log) softplus(W x_t + dt_bias), as in Mamba-2. arXiv:2405.21060.

    A ~ U(1, 16), and dt_bias is such that softplus(dt_bias) is log-uniform in (0.001, 0.1), at least 1e-4:
    with W x = 0 the median half-life is about ten tokens. Both are drawn in strata, one per head, in random
    order: every head has the published distribution, yet no layer of few heads gets only short memories
    (docs/decisions/0003).
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.project = Linear(d_model, heads)
        self.A_log = nn.Parameter(init_a_log(heads))
        self.dt_bias = nn.Parameter(init_dt_bias(heads))

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H] <= 0 of x [B, T, D], in at least float32."""
        return decay_gate(self.project(x), self.A_log, self.dt_bias)


def init_a_log(count: int) -> Tensor:
    """Draw A_log [count] with A ~ U(1, 16), in strata."""
    return (1 + 15 * _stratified(count)).log()


def init_dt_bias(count: int) -> Tensor:
    """Draw dt_bias [count] with softplus(dt_bias) log-uniform in (0.001, 0.1), at least 1e-4, in strata."""
    low, high = math.log(0.001), math.log(0.1)
    dt = (low + (high - low) * _stratified(count)).exp().clamp(min=1e-4)
    return dt + (-torch.expm1(-dt)).log()  # the inverse of softplus


def _stratified(count: int) -> Tensor:
    """Draw [count] numbers from U(0, 1), one in each of `count` equal parts, in random order."""
    return (torch.randperm(count, device=CPU) + torch.rand(count, device=CPU)) / count


class WriteStrength(nn.Module):
    """One write strength per head: beta_t = sigmoid(W x_t) in (0, 1).

    With `neg_eigval` it is doubled to (0, 2), which allows negative eigenvalues. arXiv:2411.12537.
    """

    def __init__(self, d_model: int, heads: int, *, neg_eigval: bool) -> None:
        super().__init__()
        self.project = Linear(d_model, heads)
        self.largest = 2.0 if neg_eigval else 1.0

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return beta [B, T, H] of x [B, T, D]."""
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
        nn.init.constant_(self.project.up.bias, bias)

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H, K] <= 0 of x [B, T, D], in at least float32."""
        logits = self.project(x).unflatten(-1, (self.heads, -1))
        return F.logsigmoid(to_float32(logits)) / self.divisor


class StepDecay(ScalarDecay):
    """`ScalarDecay` that also returns its step softplus(W x_t + dt_bias), which scales Mamba-2's writes."""

    def with_step(self, x: Tensor | SharedInput) -> tuple[Tensor, Tensor]:
        """Return log decay and step [B, T, H] of x [B, T, D], in at least float32."""
        step = self.project(x)
        step = F.softplus(to_float32(step) + self.dt_bias)
        return -self.A_log.exp() * step, step


class UniformDecay(nn.Module):
    """One decay per channel of a head: log a_t = logsigmoid(W x_t + b). arXiv:2210.04243.

    b is such that with W x = 0 decays are uniform in (1/n, 1 - 1/n), for n channels in all heads.
    """

    def __init__(self, d_model: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = Affine(d_model, heads * dim)
        edge = 1 / max(heads * dim, 3)
        with torch.no_grad():
            self.project.bias.copy_(torch.empty(heads * dim, device=CPU).uniform_(edge, 1 - edge).logit())

    def forward(self, x: Tensor | SharedInput) -> Tensor:
        """Return the log decay [B, T, H, dim] <= 0 of x [B, T, D], in at least float32."""
        logits = self.project(x.x if isinstance(x, SharedInput) else x).unflatten(-1, (self.heads, -1))
        return F.logsigmoid(to_float32(logits))
