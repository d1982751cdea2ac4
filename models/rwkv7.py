"""RWKV-7, Goose: erases what one key recalls and writes under another, while every row decays."""

import math
from typing import Any, ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.erasure import erasure
from linbench.kernels.gated_product import scale_rows
from linbench.kernels.matrix_state import LowRank as Transition
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.models.base import LayerInfo, Out, Rule
from linbench.models.blocks.init import keep, orthogonal, zero_init
from linbench.models.blocks.linear import LowRank
from linbench.models.blocks.shift_mixer import ShiftMixer, ShiftSettings, ShiftState, Streams
from linbench.models.blocks.token_shift import TokenShift, channel_positions, layer_depth, own_token_share
from linbench.models.learner import Learner

FASTEST = math.exp(-0.5)
"""The most that the logarithm of a decay loses per token."""


class RWKV7Settings(ShiftSettings):
    """Settings of RWKV-7. Published: all of these; the gate of low rank replaces `output_gate`."""

    low_rank_gate: bool = Field(True, description="output gate G_2 sigmoid(G_1 x), in place of output_gate")
    bonus: bool = Field(True, description="each token adds its own value to what it reads, after the norm")
    value_residual: bool = Field(True, description="later layers mix the first layer's values into their own")

    @model_validator(mode="after")
    def _above_the_bound(self) -> Self:
        if self.rate is not None and self.rate >= FASTEST:
            raise ValueError(
                f"forget_bias = {self.forget_bias} starts decays at {math.exp(-self.rate):.3g}, and RWKV-7's"
                f" are above {math.exp(-FASTEST):.3f}"
            )
        return self


class FirstValue(NamedTuple):
    """Values for later layers.

    v: the first such layer's values [B, T, H, V]. cross_layer: what that layer itself was given.
    """

    v: Tensor
    cross_layer: Any


class RWKV7(ShiftMixer):
    """RWKV-7, Goose: erases what one key recalls and writes under another, while every row decays.

        S_t = diag(w_t) S_{t-1} - (c_t a_t) (S_{t-1}^T c_t)^T + k~_t v_t^T
        o_t = S_t^T r_t
        c = k k_k / |k k_k|,  k~ = k (1 + (a - 1) k_a)

    w = exp(-e^-0.5 sigmoid(w0 + W_2 tanh(W_1 x))) lies in (0.545, 1), and a = sigmoid(a0 + A_2 A_1 x). After
    a group norm the bonus (sum r r_k k~) v is added, then a gate is applied. From the second layer on v <- v
    + (v_first - v) sigmoid(v0 + V_2 V_1 x). Peng et al. 2025, arXiv:2503.14456.

    State: H K V, constant in length, and D for the token shift; the first layer's values go from layer to
    layer, not from token to token.

    Known for: state tracking, since a transition is diagonal plus rank one with a rate of its own for every
    row, and recall by overwriting. What is erased is what the memory recalled before its decay. Eigenvalues
    of the transition lie in (-0.455, 1): exact reflections are impossible.

    Differences: maps of low rank are at least 32 wide and start at zero and orthogonal; they have weight
    decay as all maps do, where published training spares all but the large ones. RWKV's own channel mixer,
    which has a token shift of its own, follows with `channel_mixer=own`. The backbone has no LayerNorm (ln0)
    after the embedding, unlike published models, whose embedding starts near zero. In the controlled form
    there is no bonus and no residual of values, and q, k, v start as in all variants.
    """

    name = "rwkv7"
    channel_mixer = "rwkv7"
    kernel_families: ClassVar[tuple[str, ...]] = (*ShiftMixer.kernel_families, "channel_decay", "erasure")
    generation = "delta rule"
    learner = Learner(
        loss="squared error",
        memory="matrix",
        optimiser="one gradient step that erases under another key than it writes",
        retention="decay per key channel and token",
    )
    Settings = RWKV7Settings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(ShiftMixer.controlled or {}),
        "low_rank_gate": False,
        "bonus": False,
        "value_residual": False,
    }
    stream_names = "rwkvag"

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, key_dim, value_dim = self.memory_shape
        rows, keys, values = heads * key_dim, self.project.key_heads * key_dim, heads * value_dim
        d_model, rising = layer.d_model, layer_depth(layer).rising
        # the published initial values depend on the channel's place among all, and within its head
        bend = _signed_square_per_head(rows, key_dim)
        published = -5.5 + 6 * channel_positions(rows) ** (1 + rising**0.3) + 2.5 * bend
        self.w0 = _split_heads(
            settings.start(published, lambda rate: math.log(rate / (FASTEST - rate))), key_dim
        )
        self.w = _make_low_rank(d_model, 2.5, rows, activation=torch.tanh)
        # what acts on keys is of their heads
        tilt, bend = channel_positions(keys) - 0.5, _signed_square_per_head(keys, key_dim)
        self.a0 = _split_heads(-0.19 + 0.3 * bend + 0.4 * tilt, key_dim)
        self.a = _make_low_rank(d_model, 2.5, keys)
        self.k_k = _split_heads(0.71 - 0.1 * tilt, key_dim)
        self.k_a = _split_heads(torch.full((keys,), 1.02), key_dim)
        self.r_k = _split_heads(torch.full((keys,), -0.04), key_dim) if settings.bonus else None
        self.v0, self.v = None, None
        if settings.value_residual and layer.index > 0:
            self.v0 = _split_heads(0.73 - 0.4 * (channel_positions(values) - 0.5), value_dim)
            self.v = _make_low_rank(d_model, 1.7, values)
        if settings.low_rank_gate:
            self.readout.gate = _make_low_rank(d_model, 5.0, values, activation=torch.sigmoid)
            self.readout.activation = None
        if settings.token_shift:
            self._start(layer)

    def _start(self, layer: LayerInfo) -> None:
        """Set projections and norm to the published initial values."""
        bound = 0.5 * layer.d_model**-0.5
        q, k, *v = torch.split(keep(self.project.linear).weight.data, self.project.mapped)
        of_keys = 0.1 * bound if v else bound  # a map that makes values, too, starts as theirs
        for part, edge in zip((q, k, *v), (bound, of_keys, bound), strict=False):
            nn.init.uniform_(part, -edge, edge)
        if self.readout.norm is not None:
            nn.init.constant_(
                self.readout.norm.get_parameter("weight"), ((layer.index + 1) / layer.count) ** 0.7
            )

    def token_shift(self) -> TokenShift:
        """Return a token shift by which early channels look back, and more channels in later layers."""
        width, falling = self.layer.d_model, layer_depth(self.layer).falling
        powers = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
        mixes = {letter: 1 - own_token_share(width, power * falling) for letter, power in powers.items()}
        return TokenShift(self.select_streams(mixes))

    def log_decay(self, streams: Streams) -> Tensor:
        """Return the log decay [B, T, H, K] in (-0.6066, 0), in at least float32."""
        return channel_decay(self.w(streams["w"]), self.w0, bound=FASTEST)

    def forward(self, x: Tensor, state: ShiftState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says. The first such layer hands on a `FirstValue`."""
        streams, r, k, v, conv, shift = self.project_tokens(x, state)
        if self.settings.value_residual and not isinstance(cross_layer, FirstValue):
            cross_layer = FirstValue(v, cross_layer)
        if self.v0 is not None and self.v is not None:
            v = (v + (cross_layer.v - v) * _gate(self.v0, self.v(streams["v"]))).to(v.dtype)
        # k~, -c and c a
        k, *erased = erasure(k, self.a(streams["a"]), self.a0, self.k_k, self.k_a, dtype=v.dtype)
        update = Transition(*erased)
        o, memory = matrix_state(
            r, k, v, log_decay=self.log_decay(streams), update=update, scale=1.0, state=state and state.memory
        )
        bonus: Tensor | None = None
        if self.r_k is not None:  # of every head of keys for all values that share it
            strength = (r * k * self.r_k).sum(dim=-1)[..., None]
            bonus = scale_rows(v, strength.expand(*k.shape[:3], v.shape[2] // k.shape[2]).flatten(2))
        return Out(self.readout(o, streams.get("g", x), bonus), ShiftState(memory, conv, shift), cross_layer)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence.

        It erases by another key than it writes by, which costs 2 K V more than the delta rule.
        """
        heads, key_dim, value_dim = self.memory_shape
        return (
            flops_per_token(heads=heads, key_dim=key_dim, value_dim=value_dim, decay=True, delta=True)
            + 2 * heads * key_dim * value_dim
        )

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for vectors, whatever their shape; the decay's own learns twice as fast."""
        vectors = {
            name: Rule(decay=False)
            for name in ("w0", "a0", "k_k", "k_a", "r_k", "v0")
            if getattr(self, name) is not None
        }
        return {**super().parameter_rules(), **vectors, "w0": Rule(decay=False, lr_scale=2.0)}


def _gate(base: Tensor, offset: Tensor) -> Tensor:
    """Return sigmoid(base + offset) [B, T, H, K], in at least float32.

    Args:
        base: [H, K].
        offset: [B, T, H K].
    """
    wide = at_least_float32(base.dtype)
    return torch.sigmoid(base.to(wide) + offset.to(wide).view(*offset.shape[:-1], *base.shape))


def _signed_square_per_head(width: int, head_dim: int) -> Tensor:
    """Return z |z| [width] for z from -1 to 1 across the channels of every head."""
    z = 2 * channel_positions(head_dim) - 1
    return (z * z.abs()).repeat(width // head_dim)


def _split_heads(vector: Tensor, head_dim: int) -> nn.Parameter:
    return nn.Parameter(vector.view(-1, head_dim).clone())


def _make_low_rank(d_model: int, factor: float, outputs: int, activation: Any = None) -> LowRank:
    """Return a map whose rank grows with the root of the width, in steps of 32; it starts as zero."""
    rank = max(32, 32 * round(factor * d_model**0.5 / 32))
    made = LowRank(d_model, rank, outputs, activation=activation)
    zero_init(made.down)
    orthogonal(made.up, gain=0.1 * max(1.0, (rank / outputs) ** 0.5))
    return made
