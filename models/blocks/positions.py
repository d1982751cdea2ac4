"""Positions of tokens: rotary angles and linear biases."""

import math

import torch
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.rotary import frequencies, rotate
from linbench.models.blocks.init import CPU, zero_init
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.prefix_scan import running_sum


class SelectiveRotation(nn.Module):
    """Rotates q and k by angles that tokens choose. Selective RoPE, arXiv:2511.17388.

    At token t, from 0 on, pair i of a head is turned by f_i (t b_i + sum over tokens s <= t of (W x_s)_i),
    with the frequencies f of rotary positions. With W = 0 and b = 1, where it starts, these are the rotary
    positions; with W = 0 and b = 0 nothing turns.

    Args:
        d_model: width of x.
        heads: heads of q and k, each with angles of its own.
        dim: their dimension K, even.
    """

    def __init__(self, d_model: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.turn = zero_init(Linear(d_model, heads * dim // 2))
        self.bias = nn.Parameter(torch.ones(heads * dim // 2, device=CPU))

    def forward(
        self, x: SharedInput, q: Tensor, k: Tensor, seen: Tensor | None, sums: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rotate q and k [B, T, H, K]; return how many tokens there are now and the sums, too.

        Args:
            x: the layer's input [B, T, D].
            q, k: by head.
            seen: number of tokens before [B]; None stands for zeros.
            sums: of f W x over these [B, H K/2] in float64, modulo 2 pi; None stands for zeros.
        """
        each = self.turn(x).double()  # of a sum of thousands float32 keeps too few digits
        frequency = frequencies(self.dim, each.device, each.dtype).repeat(self.heads)
        chosen = running_sum(frequency * each)
        chosen = (chosen if sums is None else chosen + sums[:, None]).remainder(2 * math.pi)
        positions = positions_after(seen, q)
        angle = chosen + frequency * self.bias * positions[:, :, None]
        # every head of a token has angles of its own: heads stand as tokens
        by_head = angle.reshape(len(q), -1, self.dim // 2)
        cosine, sine = (part.to(at_least_float32(q.dtype)) for part in (by_head.cos(), by_head.sin()))
        q, k = (
            rotate(part.reshape(len(q), -1, 1, self.dim), cosine, sine).view(part.shape) for part in (q, k)
        )
        return q, k, (positions[:, -1] + 1).expand(len(q)), chosen[:, -1].clone()

    def start(self, batch: int) -> Tensor:
        """Return sums of zero [B, H K/2]."""
        return self.bias.new_zeros(batch, len(self.bias), dtype=torch.float64)


def require_places(positions: Tensor, places: int) -> None:
    """Require that a cache of so many places has one for every position [B, T].

    A GPU is not waited for.

    Raises RuntimeError: it is full.
    """
    require_all_fit((positions[:, -1] < places).all(), places)


def require_all_fit(fits: Tensor, places: int) -> None:
    """Require that a cache of so many places had one for every token: `fits` is one truth value.

    A GPU is not waited for.

    Raises RuntimeError: it is full.
    """
    torch._assert_async(fits, f"the cache holds {places} tokens and is full")


def turned_dims(dim: int, fraction: float, *, setting: str = "model.positions = rope") -> int:
    """Return how many of a head's `dim` dimensions are rotated: a share, rounded up to an even number.

    An error names the setting that asks for it.

    Raises:
        UserError: if the head is not wide enough for that.
    """
    turned = 2 * math.ceil(round(fraction * dim, 9) / 2)
    if turned > dim:
        raise UserError(f"{setting} needs an even head dimension, not {dim}; choose other heads or head_dim.")
    return turned


def require_even(key_dim: int, positions: str = "rope") -> None:
    """Require keys whose dimensions can all be rotated in pairs.

    Raises:
        UserError: their dimension is odd.
    """
    if key_dim % 2:
        raise UserError(
            f"model.positions = {positions} needs an even key dimension, not {key_dim}; choose other heads or"
            " head_dim."
        )


def positions_after(seen: Tensor | None, x: Tensor) -> Tensor:
    """Return positions of the tokens of x [B, T, ...] after `seen` others [B], None for none: [B or 1, T]."""
    positions = torch.arange(x.shape[1], device=x.device)[None]
    return positions if seen is None else positions + seen[:, None]


def alibi_slopes(heads: int) -> Tensor:
    """Return ALiBi's slopes [H]. arXiv:2108.12409.

    For a power of two these are 2^(-8h/H); otherwise those of the next lower power, then every other one of
    twice that power.
    """
    lower_power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / lower_power) for h in range(lower_power)]
    between = [2.0 ** (-4 * (2 * h + 1) / lower_power) for h in range(heads - lower_power)]
    return torch.tensor(slopes + between, device=CPU)
