"""Modes that oscillate and fade, which all channels of a layer write and read together. arXiv:2208.04933."""

from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.kernels.scan import flops_per_token, scan


class Transition(NamedTuple):
    """The effect of one token on M modes.

    log_size: log |l| [M], at most 0. angle: arg l [M] in float64. write: B [2, M, D]. read: C [2, D, M]. B
    and C have real and imaginary parts.
    """

    log_size: Tensor
    angle: Tensor
    write: Tensor
    read: Tensor


class SharedModes(nn.Module):
    """h_t = l h_{t-1} + B u_t,  y_t = Re(C h_t), with M complex numbers h.

    A variant adds its parameters, and makes l, B and C of them in `transition`.

    Args:
        width: number of channels D.
        modes: M.
    """

    write: nn.Parameter

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.width, self.state_shape = width, (2, modes)

    @abstractmethod
    def transition(self, dtype: torch.dtype) -> Transition:
        """Return l, B and C in a dtype, but for the angle."""

    def forward(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return y [B, T, D] and the memory, in at least float32.

        Args:
            u: [B, T, D].
            memory: [B, 2, M], real and imaginary part of each mode; None stands for zeros.
        """
        memory = self.init_state(len(u)) if memory is None else memory
        with without_autocast(u):
            step = self.transition(memory.dtype)
            written = F.linear(u.to(memory.dtype), step.write.flatten(0, 1))
            written = written.view(*u.shape[:2], *self.state_shape)
            h = rotating_scan(step.log_size, step.angle, written, memory)
            real, imaginary = step.read.unbind()
            y = F.linear(h.flatten(2), torch.cat([real, -imaginary], dim=-1))
        return y, h[:, -1].clone()

    def init_state(self, batch: int) -> Tensor:
        """Return zeros [B, 2, M]."""
        dtype = at_least_float32(self.write.dtype)
        return self.write.new_zeros(batch, *self.state_shape, dtype=dtype)

    def flops_per_token(self) -> int:
        """Return operations per token: of both maps, of the scan, and of two turns of each mode."""
        floats = 2 * self.state_shape[1]
        return 4 * floats * self.width + flops_per_token(floats) + 2 * 3 * floats


def rotating_scan(log_size: Tensor, angle: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h_t = e^{log_size + i angle} h_{t-1} + b_t.

    Turned back by t angles, h is a scan with real decays: g_t = e^{log_size} g_{t-1} + e^{-i t angle} b_t.

    Args:
        log_size: [M], at most 0.
        angle: [M] in float64, since t angles grow without bound and their digits are needed.
        b: [B, T, 2, M], real and imaginary part.
        state: [B, 2, M].

    Returns: h [B, T, 2, M].
    """
    times = torch.arange(1, b.shape[1] + 1, device=angle.device, dtype=angle.dtype)[:, None]
    cos, sin = ((times * angle).cos().to(b.dtype), (times * angle).sin().to(b.dtype))
    turned_back = _turn(b, cos, -sin).flatten(2)
    g, _ = scan(log_size.exp().repeat(2), turned_back, state.flatten(1))
    return _turn(g.view(b.shape), cos, sin)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [B, T, 2, M] times cos + i sin [T, M]."""
    real, imaginary = x.unbind(dim=2)
    return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=2)
