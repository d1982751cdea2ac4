"""H3: two time-invariant state spaces with products between them, which bind keys to values."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.settings import ABSENT
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.diagonal_ssm import Discretisation, Frequencies, Modes
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.starting_gates import NO_STRATA
from linbench.models.learner import Learner


class H3Settings(BranchSettings):
    """Settings of H3.

    Published: 64 states, heads of one channel, a bilinear memory, skips around both state spaces; no
    convolution before, no norm.
    """

    states: int = Field(
        64,
        ge=2,
        multiple_of=2,
        description=(
            "how many tokens a key is made of, and how many numbers each channel of the memory remembers"
        ),
    )
    head_dim: int = Field(1, ge=1, description="channels of a head, of which every key meets every value")
    modes: Frequencies = Field("lin", description="frequencies of the memory at first, as S4D's")
    discretisation: Discretisation = Field(
        "bilinear",
        description=(
            "how the memory's continuous modes take steps: bilinear, as published, or with a zero-order hold"
            " (zoh), as S4D's do"
        ),
        json_schema_extra={ABSENT: "zoh"},
    )
    strata: bool = NO_STRATA
    conv: int = INPUT_CONVOLUTION
    skip: bool = Field(
        True, description="whether keys go past the shift, and products of keys and values past the memory"
    )
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")


class H3State(NamedTuple):
    """State of H3.

    memory: [B, C, N] in at least float32, for C = D head_dim products. taps: the last N - 1 keys [B, N-1, D].
    conv: what the short convolution remembers [B, kernel-1, D], None without one.
    """

    memory: Tensor
    taps: Tensor
    conv: Tensor | None


class H3(Mixer):
    """H3: two time-invariant state spaces with products between them, which bind keys to values.

        k~_t = sum_{i<N} w_i * k_{t-i} + D_k * k_t
        y_t = W (q_t * (S4D(k~ * v)_t + D * (k~ * v)_t))   for heads of one channel

    In wider heads every channel of a key meets every channel of a value; a query's channel multiplies what
    was kept of the same channel of the key, and these products are summed. Fu et al. 2022, arXiv:2212.14052.
    The memory is S4D's, 2022, arXiv:2206.11893, with the source's bilinear rule; `discretisation=zoh` is a
    zero-order hold, which this model had before there was a choice.

    State: D head_dim N, constant in length; the shift keeps N - 1 keys.

    Known for: recall by time-invariant state spaces. The shift brings a key to the token after it, and its
    product with the value there is what the memory holds.

    Differences: a head has one filter, whose modes start as S4D's do. The taps of the shift, which the source
    makes of two vectors, start uniform within 1 / sqrt(N). Only maps and the short convolution have weight
    decay. Maps have biases; the output's starts at zero (docs/decisions/0002). In the controlled form there
    are no skips.
    """

    name = "h3"
    kernel_families = FAMILIES
    generation = "gates and decay"
    learner = Learner(
        loss="inner product, with keys from a short filter",
        memory="a matrix per mode of a fixed filter",
        optimiser="one gradient step",
        retention="constant decay and rotation per mode",
    )
    Settings = H3Settings
    controlled: ClassVar[dict[str, Any] | None] = {"conv": 4, "skip": False, "output_norm": "rms"}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, heads = layer.d_model, layer.d_model // settings.head_dim
        if width % settings.head_dim:
            raise UserError(f"model.head_dim = {settings.head_dim} does not divide d_model = {width}.")
        bound = settings.states**-0.5
        self.conv = InputConvolution(width, settings.conv)
        self.project = Affine(width, 3 * width)
        self.taps = nn.Parameter(torch.empty(width, settings.states).uniform_(-bound, bound))
        self.memory = Modes(
            heads, settings.states, settings.modes, settings.discretisation, strata=settings.strata
        )
        self.key_skip = nn.Parameter(torch.randn(width)) if settings.skip else None
        self.skip = nn.Parameter(torch.randn(heads)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Affine(width, width), silent=settings.silent)

    def forward(self, x: Tensor, state: H3State | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        read, conv = self.conv(x, state and state.conv)
        q, k, v = self.project(read).chunk(3, dim=-1)
        k, taps = self.shift_keys(k, None if state is None else state.taps)
        q, k, v = (each.unflatten(-1, (-1, self.settings.head_dim)) for each in (q, k, v))
        kv = k[..., :, None] * v[..., None, :]  # [B, T, H, V, V]
        kept, memory = self.recall(kv, state and state.memory)
        if self.skip is not None:
            kept = kept + self.skip[:, None, None] * kv
        o = (q[..., None] * kept.to(q.dtype)).sum(dim=-2).flatten(2)
        if self.norm is not None:
            o = self.norm(o)
        return Out(self.linear(o), H3State(memory, taps, conv), cross_layer)

    def recall(self, kv: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what each head's modes make of kv [B, T, H, V, V], and the memory [B, H V V, N].

        A head has one filter, so its products are computed as if they were separate sequences.
        """
        batch, heads = len(kv), kv.shape[2]
        sequences = kv.flatten(3).permute(0, 3, 1, 2).flatten(0, 1)  # [B V V, T, H]
        before = None
        if memory is not None:
            before = memory.view(batch, heads, -1, memory.shape[2]).transpose(1, 2).flatten(0, 1)
        y, after = self.memory(sequences, before)
        y = y.unflatten(0, (batch, -1)).permute(0, 2, 3, 1).view(kv.shape)
        return y, after.unflatten(0, (batch, -1)).transpose(1, 2).flatten(1, 2)

    def shift_keys(self, k: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return k~ [B, T, D] and the last N - 1 keys.

        Args:
            k: [B, T, D].
            before: the N - 1 keys before k; None stands for zeros.
        """
        reach = self.settings.states - 1
        all_keys = F.pad(k, (0, 0, reach, 0)) if before is None else torch.cat([before.to(k.dtype), k], dim=1)
        taps = self.taps.to(k.dtype).flip(1)[:, None]
        shifted = F.conv1d(all_keys.mT, taps, groups=k.shape[-1]).mT
        if self.key_skip is not None:
            shifted = shifted + (self.key_skip * k).to(k.dtype)
        return shifted, all_keys[:, k.shape[1] :].clone()

    def init_state(self, batch: int, *, capacity: int) -> H3State:
        """Return zeros; the size does not depend on `capacity`."""
        taps = self.taps.new_zeros(batch, self.settings.states - 1, self.layer.d_model)
        return H3State(
            self.memory.init_state(batch).repeat(1, self.settings.head_dim**2, 1),
            taps,
            self.conv.init_state(batch),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return D head_dim N for the memory, (N - 1) D for the shift, (kernel - 1) D for the convolution."""
        width, states = self.layer.d_model, self.settings.states
        return StateSize(
            recurrent=width * self.settings.head_dim * states,
            convolution=(states - 1) * width + self.conv.state_floats(),
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of modes and taps, of key, value and query products, and of the skips."""
        width, wide = self.layer.d_model, int(self.settings.head_dim)
        skips = 2.0 * width * (1 + wide) * (self.skip is not None)
        return self.memory.flops_per_token() * wide**2 + 2 * self.taps.numel() + 3 * width * wide + skips

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for both state spaces."""
        no_decay = ("memory.", "taps", "key_skip", "skip")
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name.startswith(no_decay)}
