"""S4D: a filter for each channel, made of modes that oscillate and fade, the same at all times."""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.settings import Settings
from linbench.kernels.operators import without_autocast
from linbench.kernels.wide import at_least_float32
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.initialise import CPU, indices, silent
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm

CHUNK = 64
"""Tokens whose outputs are one product with a matrix of the filter's taps."""


class S4DSettings(Settings):
    """Published: 64 states for each channel, a skip, GELU and a gated linear unit; no convolution, no norm."""

    states: int = Field(64, ge=2, multiple_of=2, description="how many numbers each channel remembers, two for a mode")
    modes: Literal["lin", "inv"] = Field("lin", description="frequencies at first: lin is pi n; inv N / pi (N / (2 n + 1) - 1)")
    conv: int = INPUT_CONVOLUTION
    skip: bool = Field(True, description="whether D x goes past the memory")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output: Literal["glu", "linear"] = Field("glu", description="what follows: GELU and a gated linear unit, or a linear map alone")


class S4DState(NamedTuple):
    """memory [B, D, N] in at least float32, of each mode its real and its imaginary part; what the short convolution remembers [B, kernel-1, D], None
    without one."""

    memory: Tensor
    conv: Tensor | None


class Filter(NamedTuple):
    """What `length` tokens do, for each of D channels and M modes: `powers` [D, length + 1, M] of exp(step lambda), and what a token writes [D, M] and a
    state is read with [D, M]; all complex."""

    powers: Tensor
    write: Tensor
    read: Tensor


class S4D(Mixer):
    """h_t = e^{d l} h_{t-1} + (e^{d l} - 1) / l x_t,  y_t = 2 Re(C . h_t) + D x_t,  for each channel, with a step d, modes l = -e^a + i b, and C.

    Gu et al. 2022, arXiv:2206.11893, after S4, 2021, arXiv:2111.00396.

    State: D N, two numbers for each of N / 2 modes, constant in length.
    Known for: long memories of what is smooth, and being the same at all times: no token decides what is written or kept, so that it can neither select
    nor look anything up (arXiv:2312.00752). GELU and a gated linear unit follow, as published, whose map starts at zero here (docs/decisions/0002).
    Of the source's initial modes S4D-Lin and S4D-Inv are there. It trains modes and steps at a rate of their own, 0.001, and without weight decay; here it
    is without decay, at the rate of all. In the controlled form there is no skip, and a linear map follows the norm.
    """

    name = "s4d"
    families = FAMILIES
    generation = "gates and decay"
    Settings = S4DSettings
    controlled: ClassVar[dict[str, Any] | None] = {"conv": 4, "skip": False, "output_norm": "rms", "output": "linear"}

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, modes = layer.d_model, settings.states // 2
        self.conv = InputConvolution(width, settings.conv)
        low, high = math.log(0.001), math.log(0.1)
        self.log_step = nn.Parameter(torch.empty(width).uniform_(low, high))
        self.log_decay = nn.Parameter(torch.full((width, modes), 0.5, device=CPU).log())
        n = indices(modes)
        frequency = math.pi * n if settings.modes == "lin" else settings.states / math.pi * (settings.states / (2 * n + 1) - 1)
        self.frequency = nn.Parameter(frequency.repeat(width, 1))
        self.read = nn.Parameter(torch.randn(width, modes, 2) * 0.5**0.5)
        self.skip = nn.Parameter(torch.randn(width)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.gated = settings.output == "glu"
        self.linear = silent(Affine(width, 2 * width if self.gated else width, bias=self.gated))
        if self.gated:
            nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, state: S4DState | None = None, handed: Any = None) -> Out:
        """As `Mixer.forward`."""
        u, conv = self.conv(x, state and state.conv)
        o, memory = self.filtered(u, self.init_state(len(x), capacity=0).memory if state is None else state.memory)
        o = (o if self.skip is None else o + self.skip * u).to(u.dtype)
        o = o if self.norm is None else self.norm(o)
        y = F.glu(self.linear(F.gelu(o)), dim=-1) if self.gated else self.linear(o)
        return Out(y, S4DState(memory, conv), handed)

    def filtered(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The equation without its skip: u [B, T, D] after memory [B, D, N] -> y [B, T, D] and memory, in the dtype of memory."""
        h, whole = torch.view_as_complex(memory.view(*memory.shape[:2], -1, 2)), u.shape[1] // CHUNK * CHUNK
        outputs = []
        with without_autocast(u):
            for part, length in ((u[:, :whole], CHUNK), (u[:, whole:], u.shape[1] - whole)):
                if part.shape[1]:
                    y, h = self.in_chunks(part.to(memory.dtype), h, length)
                    outputs.append(y)
        return torch.cat(outputs, dim=1), torch.view_as_real(h).flatten(-2)

    def in_chunks(self, u: Tensor, h: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """u [B, n length, D] after h [B, D, M]: inside all chunks at once, by the taps; then from chunk to chunk, by the modes."""
        powers, write, read = self.filter(length, u.dtype)
        taps = 2 * (powers[:, :length] * (write * read)[:, None]).real.sum(dim=-1)
        toeplitz = F.pad(taps, (length - 1, 0)).unfold(-1, length, 1).flip(-1)  # [D, length, length], taps[i - j], and none before its time
        batch, count = len(u), u.shape[1] // length
        chunks = u.reshape(batch, count, length, -1).permute(3, 2, 0, 1)  # [D, length, B, n]
        flat = chunks.flatten(2)
        written = torch.view_as_real(powers[:, :length].flip(1) * write[:, None]).flatten(-2).mT @ flat  # [D, N, B n]
        written = torch.view_as_complex(written.view(*h.shape[1:], 2, batch, count).permute(4, 3, 0, 1, 2).contiguous())
        starts = []
        for each in written:
            starts.append(h)
            h = powers[:, length] * h + each
        before = torch.view_as_real(torch.stack(starts, dim=-1)).movedim(-1, -2).flatten(2, 3)  # [B, D, N, n]
        reads = torch.view_as_real((2 * read[:, None] * powers[:, 1:]).conj().resolve_conj()).flatten(-2)
        y = toeplitz @ flat + reads @ before.permute(1, 2, 0, 3).flatten(2)
        return y.view(chunks.shape).permute(2, 3, 1, 0).flatten(1, 2), h

    def filter(self, length: int, dtype: torch.dtype) -> Filter:
        """What so many tokens do."""
        step, decay, frequency, read = (x.to(dtype) for x in (self.log_step.exp()[:, None], self.log_decay.exp(), self.frequency, self.read))
        times = torch.arange(length + 1, device=step.device, dtype=dtype)[:, None]
        left, angle = (-times * (step * decay)[:, None]).exp(), times * (step * frequency)[:, None]
        powers = torch.complex(left * angle.cos(), left * angle.sin())
        inverse = torch.complex(-decay, -frequency) / (decay.square() + frequency.square())  # of lambda
        return Filter(powers, (powers[:, 1] - 1) * inverse, torch.view_as_complex(read))

    def init_state(self, batch: int, *, capacity: int) -> S4DState:
        """Zeros; the size does not depend on `capacity`."""
        weight = self.linear.weight
        return S4DState(weight.new_zeros(batch, self.layer.d_model, self.settings.states, dtype=at_least_float32(weight.dtype)), self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """D N, (kernel - 1) D for the convolution."""
        return StateSize(recurrent=self.layer.d_model * self.settings.states, convolution=self.conv.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Of each mode a product of complex numbers, that of one with a real, a sum, and of one product the real part, added up: 14; and the skip."""
        return float(self.layer.d_model * (7 * self.settings.states + 2 * (self.skip is not None)))

    def parameter_rules(self) -> dict[str, Rule]:
        """Nothing decays that is not a map."""
        return {name: Rule(decay=False) for name in ("log_step", "log_decay", "frequency", "read", *([] if self.skip is None else ["skip"]))}
