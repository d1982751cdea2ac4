"""Positions of tokens: rotary angles and linear biases."""

import math

import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.rotary import rotate
from linbench.models.blocks.init import CPU


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


def require_even(key_dim: int) -> None:
    """Require keys whose dimensions can all be rotated in pairs.

    Raises:
        UserError: their dimension is odd.
    """
    if key_dim % 2:
        raise UserError(
            f"model.positions = rope needs an even key dimension, not {key_dim}; choose other heads or"
            " head_dim."
        )


def positions_after(seen: Tensor | None, x: Tensor) -> Tensor:
    """Return positions of the tokens of x [B, T, ...] after `seen` others [B], None for none: [B or 1, T]."""
    positions = torch.arange(x.shape[1], device=x.device)[None]
    return positions if seen is None else positions + seen[:, None]


def rotate_first(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the first dimensions of heads x [B, T, H, K], as many as there are angles for."""
    turned = 2 * cosine.shape[-1]
    if turned == x.shape[-1]:
        return rotate(x, cosine, sine)
    return torch.cat([rotate(x[..., :turned], cosine, sine), x[..., turned:]], dim=-1)


def alibi_slopes(heads: int) -> Tensor:
    """Return ALiBi's slopes [H]. arXiv:2108.12409.

    For a power of two these are 2^(-8h/H); otherwise those of the next lower power, then every other one of
    twice that power.
    """
    lower_power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / lower_power) for h in range(lower_power)]
    between = [2.0 ** (-4 * (2 * h + 1) / lower_power) for h in range(heads - lower_power)]
    return torch.tensor(slopes + between, device=CPU)
