"""Mamba-3: a state space that a token turns by an angle, and that it writes with the token before it."""

import math
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.kernels.rotary import rotate_first
from linbench.models.base import LayerInfo, Out, Rule, StateSize
from linbench.models.blocks.heads import NO_CONVOLUTION, OUTPUT_NORM, HeadProjection, Readout, share_input
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.positions import turned_dims
from linbench.models.blocks.shared_keys import shared_heads
from linbench.models.blocks.starting_gates import DrawnGateSettings, draw_dt_bias, inverse_softplus
from linbench.models.learner import Learner
from linbench.models.mamba2 import StateSpaceSettings

LEAST = 1e-4
"""The least size of A. arXiv:2603.15569, code."""


class Mamba3Settings(StateSpaceSettings):
    """Settings of Mamba-3.

    Published: as Mamba-2, with norms and biases of B and C in the place of the convolution, and no norm of
    the output.
    """

    conv: int = NO_CONVOLUTION
    conv_bias: bool = Field(False, description="whether the convolution has biases")
    positions: Literal["none"] = Field("none", description="rotation says how q and k are turned")
    qk_norm: Literal["none", "l2", "rms"] = Field("rms", description="norm of C and B (q and k)")
    qk_bias: bool = Field(
        True,
        description="whether C and B (q and k) of each head have biases, added after their norm, at first 1",
    )
    rank: int = Field(
        1, ge=1, description="inputs and outputs of each head: B and C for each; published models have 1 or 4"
    )
    trapezoid: bool = Field(
        True, description="whether a token also writes the one before it, by a share that it chooses"
    )
    rotation: Literal["token", "fixed", "none"] = Field(
        "token",
        description=(
            "angle by which a token turns the state: token is computed from it; fixed is that of rotary"
            " positions (2104.09864)"
        ),
    )
    rope_fraction: float = Field(
        0.5, gt=0, le=1, description="share of a key's channels that is turned, in pairs, rounded up"
    )
    output_norm: Literal["none", "rms", "rms_all", "layer"] = Field(
        "none", description=OUTPUT_NORM.description
    )
    output_gate: Literal["none", "swish"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )

    @model_validator(mode="after")
    def _one_key_for_a_value(self) -> Self:
        if self.share_kv and self.rank > 1:
            raise ValueError(f"share_kv = true needs rank = 1, not {self.rank}: it makes a value of each key")
        return self


class Mamba3State(NamedTuple):
    """State of Mamba-3.

    memory: [B, H, K, V]. key: the last token's keys [B, H, R, K], turned. value: its x [B, H, V]; both None
    without a trapezoid. angle: the sum of all angles [B, H, F] in float64, modulo 2 pi, None without a
    rotation. conv: what the short convolution remembers [B, kernel-1, C], None without one. All but the last
    are in at least float32. None stands for zeros, too.
    """

    memory: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    angle: Tensor | None = None
    conv: Tensor | None = None


class TokenDecay(nn.Module):
    """One decay per head: log a_t = A_t d_t with A_t = -softplus(U x_t), d_t = softplus(W x_t + dt_bias).

    dt_bias is drawn as in `ScalarDecay`. With a `forget_bias` A has a bias, which follows from the step, so
    that writes start as large as published.
    """

    def __init__(self, d_model: int, heads: int, settings: DrawnGateSettings) -> None:
        super().__init__()
        self.project, self.rate = Linear(d_model, heads), Linear(d_model, heads)
        self.dt_bias = nn.Parameter(draw_dt_bias(heads, strata=settings.strata))
        self.rate_bias: nn.Parameter | None = None
        if settings.rate is not None:
            rate = settings.rate / F.softplus(self.dt_bias.detach())
            self.rate_bias = nn.Parameter(inverse_softplus(rate))

    def with_step(self, x: SharedInput) -> tuple[Tensor, Tensor]:
        """Return log decay and step [B, T, H] of x [B, T, D], in at least float32."""
        step = F.softplus(to_float32(self.project(x)) + self.dt_bias)
        rate = to_float32(self.rate(x))
        rate = F.softplus(rate if self.rate_bias is None else rate + self.rate_bias)
        return -rate.clamp(min=LEAST) * step, step

    def forward(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H] <= 0 of x [B, T, D], in at least float32."""
        return self.with_step(x)[0]


class RankReadout(Readout):
    """Map o [B, T, R, H, V] to y [B, T, D]: norm and gate of each rank, a weighted sum of ranks, linear."""

    def __init__(self, settings: Any, layer: LayerInfo, shape: tuple[int, int, int]) -> None:
        """Make weights of R, H, V."""
        super().__init__(settings, layer)
        self.of_ranks = nn.Parameter(torch.full(shape, 1 / shape[0]))
        self.gates = None if self.gate is None else nn.Parameter(torch.ones(shape))

    def forward(self, o: Tensor, x: Tensor | SharedInput, added: Tensor | None = None) -> Tensor:
        """Return y [B, T, D], as `Readout.forward` does."""
        gate = None
        if self.gate is not None and self.gates is not None:
            gate = (self.gate(x).unflatten(-1, self.gates.shape[1:])[:, :, None] * self.gates).to(o.dtype)
        each = self.norm_and_gate(o, gate, added) * self.of_ranks.flatten(1)
        y: Tensor = self.linear(each.sum(dim=2).to(o.dtype))
        return y


class Mamba3(MatrixMixer):
    """Mamba-3: a state space that a token turns by an angle, and that it writes with the token before it.

        S_t = a_t (S_{t-1} + (1 - l_t) d_t k_{t-1} x_{t-1}^T) + l_t d_t k_t x_t^T
        y_t = S_t^T q_t + D x_t
        q_t, k_t = C_t and B_t, turned by the sum of d_s w_s over all s <= t
        a_t = exp(A_t d_t),  l_t = sigmoid(W_l u_t),  w_t = pi tanh(W_w u_t)   for token u_t

    The step d is Mamba-2's, and A = -softplus(W_A u). C and B have an RMS norm and then a bias for each head.
    Pairs of their channels are turned, half of all channels by default. With `rank` R a head has R keys,
    queries, inputs m_r * x and outputs. All are written to one state, and each output has a gate and weights
    of its own (MIMO). arXiv:2603.15569.

    State: H K V, constant in length; H R K + H V for the last token's keys and x; H F for the angles of F
    pairs of channels.

    Known for: rotation, which makes it a state space of complex numbers, e^{(A - i w) d}. It solves parity,
    which no positive decay can. With the share l the step is a trapezoid rule; it does what a convolution of
    two tokens does, so the short convolution is left out. Ranks compute more with a state of the same size.
    Without trapezoid, rotation and ranks it is Mamba-2 with an A that depends on the token.

    Differences: which function A was computed with in the published runs is not verified;
    flash-linear-attention has the softplus, the authors' code now has another. Published code turns channels
    2i and 2i + 1 with rank 1; here the two channels of a pair are F apart, as published with higher ranks.
    D x of a rank takes that rank's input. Published models have states of 128 for heads of 64; heads here
    are few, with a state as wide as the model over the heads, and steps are drawn in strata
    (docs/decisions/0003). In the controlled form every head has a B and a C of its own, and there is no skip
    and no bias: beside keys of length one, biases of one would make all keys alike. The output projection
    starts at zero (docs/decisions/0002).
    """

    name = "mamba3"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step for a token and the one before, of lengths (1 - l) d and l d",
        retention="decay and rotation per head and token, tied to d",
    )
    Settings = Mamba3Settings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(MatrixMixer.controlled or {}),
        "groups": None,
        "qk_bias": False,
        "skip": False,
    }
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, rank = layer.d_model, settings.rank
        heads, key_dim, value_dim = self.memory_shape
        self.decay = TokenDecay(width, heads, settings)
        self.share = Linear(width, heads) if settings.trapezoid else None
        self.pairs = 0
        if settings.rotation != "none":
            rotation = f"model.rotation = {settings.rotation}"
            self.pairs = turned_dims(key_dim, settings.rope_fraction, setting=rotation) // 2
        self.turn = Linear(width, self.pairs) if settings.rotation == "token" else None
        self.biases = nn.Parameter(torch.ones(2, heads, rank, key_dim)) if settings.qk_bias else None
        self.inputs = nn.Parameter(torch.full((rank, heads, value_dim), 1 / rank)) if rank > 1 else None
        self.skip = nn.Parameter(torch.ones(heads)) if settings.skip else None

    @property
    def key_heads(self) -> int:
        """Heads of C and B (q and k): the groups."""
        return shared_heads(self.settings, "groups")

    def make_projection(self) -> HeadProjection:
        """Return a projection with C and B for each group of heads and x for each head."""
        return self.head_projection(conv_bias=self.settings.conv_bias, rank=self.settings.rank)

    def make_readout(self) -> Readout:
        """Return a readout that adds the ranks, if there are several."""
        if self.settings.rank == 1:
            return super().make_readout()
        shape = self.settings.rank, self.project.heads, self.project.value_dim
        return RankReadout(self.settings, self.layer, shape)

    def forward(self, x: Tensor, state: Any = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says, with a `Mamba3State`."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        o, after = self.recur(given, q, k, v, state)
        return Out(self.readout(o, given), after._replace(conv=conv), cross_layer)

    def recur(self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Compute the equation.

        `memory` is a `Mamba3State`, of which all but the convolution's is read and returned. With several
        ranks R, o is [B, T, R, H, V].
        """
        before = Mamba3State() if memory is None else memory
        log_decay, step = self.decay.with_step(x)
        (q, k), angle = self._turn(x, step, self._of_heads(q, k), before.angle)
        keys, values, last = [k], [step[..., None] * v], Mamba3State(angle=angle)
        if self.share is not None:
            own = torch.sigmoid(to_float32(self.share(x))) * step
            rest = (step - own) * log_decay.exp()
            keys = [_delayed(k, before.key), k]
            values = [rest[..., None] * _delayed(v, before.value), own[..., None] * v]
            wide = at_least_float32(v.dtype)
            last = last._replace(key=_last(k).to(wide), value=_last(v).to(wide))
        written = torch.cat([each.transpose(2, 3) for each in keys], dim=2)  # [B, T, writes, H, K]
        inputs = torch.cat([self._of_ranks(each.to(v.dtype)) for each in values], dim=2)
        reads = [
            matrix_state(
                queries,
                written.flatten(1, 2),
                inputs.flatten(1, 2),
                log_decay=log_decay,
                steps=written.shape[2],
                scale=1.0,
                state=before.memory,
                final=rank == 0,  # each rank reads the same memory
            )
            for rank, queries in enumerate(q.unbind(dim=3))
        ]
        o = torch.stack([read for read, _ in reads], dim=2)
        if self.skip is not None:
            o = o + self.skip[:, None].to(v.dtype) * self._of_ranks(v)
        return o.squeeze(2), last._replace(memory=reads[0][1])

    def _of_heads(self, *both: Tensor) -> Tensor:
        """Return q and k [B, T, Hk R, K] for all heads, with their biases: [2, B, T, H, R, K]."""
        shape = *both[0].shape[:2], self.key_heads, self.settings.rank, both[0].shape[-1]
        given = torch.stack([each.view(shape) for each in both])
        given = given.repeat_interleave(self.settings.heads // self.key_heads, dim=-3)
        return given if self.biases is None else given + self.biases[:, None, None].to(given.dtype)

    def _turn(
        self, x: SharedInput, step: Tensor, both: Tensor, angle: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Turn q and k [2, B, T, H, R, K] by all angles so far; return the sum of angles [B, H, F], too.

        The sum is in float64, since it grows without bound and its digits are needed.
        """
        if not self.pairs:
            return both, None
        if self.turn is None:
            place = torch.arange(self.pairs, device=step.device, dtype=torch.float64)
            each = (10_000.0 ** (-place / self.pairs)).expand(*step.shape, -1)
        else:
            each = (step[..., None] * math.pi * torch.tanh(to_float32(self.turn(x)))[:, :, None]).double()
        angles = each.cumsum(dim=1)
        angles = (angles if angle is None else angles + angle[:, None]).remainder(2 * math.pi)
        turned = angles.to(at_least_float32(both.dtype)).flatten(1, 2)
        cos, sin = turned.cos(), turned.sin()
        after = [rotate_first(part.flatten(1, 2), cos, sin).view(part.shape) for part in both]
        return torch.stack(after), _last(angles)

    def _of_ranks(self, x: Tensor) -> Tensor:
        """Return the input of each rank [B, T, R, H, V] of x [B, T, H, V]."""
        return x[:, :, None] if self.inputs is None else x[:, :, None] * self.inputs.to(x.dtype)

    def init_state(self, batch: int, *, capacity: int) -> Any:
        """Return zeros."""
        start = super().init_state(batch, capacity=capacity)
        heads, key_dim, value_dim = self.memory_shape
        key, value, angle = None, None, None
        if self.share is not None:
            key = start.memory.new_zeros(batch, heads, self.settings.rank, key_dim)
            value = start.memory.new_zeros(batch, heads, value_dim)
        if self.pairs:
            angle = start.memory.new_zeros(batch, heads, self.pairs, dtype=torch.float64)
        return Mamba3State(start.memory, key, value, angle, start.conv)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return the floats of the memory and the convolution, of the last token, and of the angles."""
        heads, key_dim, value_dim = self.memory_shape
        last_token = self.settings.rank * key_dim + value_dim if self.settings.trapezoid else 0
        return super().state_floats(seq_len).plus(StateSize(recurrent=heads * (last_token + self.pairs)))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, of turns, of what is written, and of the skip."""
        (heads, key_dim, value_dim), rank = self.memory_shape, self.settings.rank
        writes = rank * (1 + self.settings.trapezoid)
        recurrence = flops_per_token(
            heads=heads, key_dim=key_dim, value_dim=value_dim, decay=True, delta=False, steps=writes
        )
        more_reads = (rank - 1) * 2 * heads * key_dim * value_dim
        turns = 2 * rank * heads * 3 * 2 * self.pairs
        scaled = (1 + self.settings.trapezoid) + (rank > 1) * writes + self.settings.skip * 2 * rank
        scaling = scaled * heads * value_dim
        return float(recurrence + more_reads + turns + scaling + self.project.feature_flops())

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for biases of gates, of q and k, for the skip, and for weights of ranks."""
        names = ("decay.dt_bias", "decay.rate_bias", "biases", "inputs", "skip")
        of_ranks = ("readout.of_ranks", "readout.gates")
        there = {name for name, _ in self.named_parameters()}
        return {name: Rule(decay=False) for name in names + of_ranks if name in there}


def _delayed(x: Tensor, last: Tensor | None) -> Tensor:
    """Return x [B, T, ...] of the token before each, with `last` [B, ...] or zeros before the first."""
    first = torch.zeros_like(x[:, :1]) if last is None else last[:, None].to(x.dtype)
    return torch.cat([first, x[:, :-1]], dim=1)


def _last(x: Tensor) -> Tensor:
    """Return the last of x [B, T, ...], without a view of the others."""
    return x[:, -1].clone()
