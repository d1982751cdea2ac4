"""S5: a state space of modes that all channels write and read together."""

import math
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.models.blocks.diagonal_ssm import zero_order_hold
from linbench.models.blocks.filter_mixer import FilterMixer, FilterSettings
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.hippo import hippo_modes
from linbench.models.blocks.init import CPU
from linbench.models.blocks.shared_modes import SharedModes, Transition
from linbench.models.blocks.starting_gates import NO_STRATA, draw
from linbench.models.lru import LRU


class S5Settings(FilterSettings):
    """Settings of S5.

    Published: a skip, GELU and a gate; no convolution, no norm.
    """

    states: int | None = Field(
        None,
        ge=2,
        multiple_of=2,
        description="how many numbers the layer remembers, two for a mode; null is d_model, made even",
    )
    blocks: int = Field(1, ge=1, description="number of blocks of the matrix whose modes are the first ones")
    strata: bool = NO_STRATA


class StateSpace(SharedModes):
    """l = e^{d m} with modes m = -e^a + i b, and B scaled by (e^{d m} - 1) / m, a zero-order hold.

    The step d, a, b, B and C are learned; d, a and b are per mode.
    """

    def __init__(self, width: int, states: int, settings: Any) -> None:
        modes, blocks = states // 2, settings.blocks
        super().__init__(width, modes)
        if modes % blocks:
            raise UserError(f"model.blocks = {blocks} does not divide the {modes} modes of S5.")
        frequency, vectors = hippo_modes(states // blocks)
        self.log_step = nn.Parameter(draw(math.log(0.001), math.log(0.1), modes, strata=settings.strata))
        self.log_decay = nn.Parameter(torch.full((modes,), 0.5, device=CPU).log())
        self.frequency = nn.Parameter(frequency.repeat(blocks).float())
        # real matrices, brought to the basis of the modes
        write = torch.randn(blocks, states // blocks, width, device=CPU) * width**-0.5
        read = torch.randn(width, blocks, states // blocks, device=CPU) * states**-0.5
        self.write = nn.Parameter(_parts((vectors.mH @ write.to(vectors.dtype)).flatten(0, 1)).float())
        self.read = nn.Parameter(_parts((read.to(vectors.dtype) @ vectors).flatten(1)).float())

    def transition(self, dtype: torch.dtype) -> Transition:
        """Return l, B and C; the conjugate of each mode doubles what is read."""
        step, decay = self.log_step.to(dtype).exp(), self.log_decay.to(dtype).exp()
        angle = self.log_step.double().exp() * self.frequency.double()
        size, turned = (-step * decay).exp(), angle.to(dtype)
        kept = torch.complex(size * turned.cos(), size * turned.sin())
        held = zero_order_hold(step, decay, self.frequency.to(dtype), kept)
        write = held[:, None] * torch.complex(*self.write.to(dtype).unbind())
        return Transition(-step * decay, angle, _parts(write), 2 * self.read.to(dtype))


def _parts(x: Tensor) -> Tensor:
    """Return real and imaginary part of x [...] as [2, ...]."""
    return torch.stack([x.real, x.imag])


class S5(FilterMixer):
    """S5: a state space of modes that all channels write and read together.

        h_t = e^{d m} h_{t-1} + (e^{d m} - 1) / m (B x_t)
        y_t = 2 Re(C h_t) + D x_t

    with a step d for each mode m = -e^a + i b, complex matrices B and C, and D for each channel. Smith,
    Warrington & Linderman 2022, arXiv:2208.04933.

    State: P, two numbers for each of P / 2 modes, as many as channels by default, constant in length.

    Known for: one state space with many inputs and outputs, where S4 and S4D have one for each channel, so
    that its state is 64 times smaller than that of S4D as published. It starts with the modes of HiPPO-LegS.
    It is the same at all times: no token decides what is written or kept, so selection is left to what stands
    between layers (arXiv:2312.00752).

    Differences: GELU and a gated linear unit follow, as in S4D, whose map starts at zero
    (docs/decisions/0002); the source's gate, g sigmoid(W g) with g = GELU(y), cannot start silent. The source
    learns the real part of m itself, which may then grow above zero. It trains d, m and B at a lower rate and
    without weight decay; here they, C and D have no decay, and the common rate. In the controlled form there
    is no skip, and a linear map follows the norm.
    """

    name = "s5"
    kernel_families: ClassVar[tuple[str, ...]] = ("scan", *FAMILIES)
    learner = LRU.learner
    Settings = S5Settings

    def make_memory(self) -> StateSpace:
        """Return the modes."""
        width = self.layer.d_model
        return StateSpace(width, self.settings.states or width + width % 2, self.settings)
