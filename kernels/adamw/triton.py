"""AdamW on a GPU: one launch, and one more for parameters whose rows begin at no multiple of four numbers.

A program takes a piece: numbers of one parameter of one replica, for which all else is the same. Norms take
as many launches again, and a sum.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.adamw.eager import EPSILON

if TYPE_CHECKING:
    from linbench.kernels.adamw import Layout, Moments, Now

BLOCK = 1024
"""Numbers of a program, eight for each of its 128 threads: chosen, not measured."""

_UNIT = 4
"""Numbers that a thread loads at once, where every row of a parameter begins at a multiple of them."""


class _Pieces(NamedTuple):
    """Pieces [P] of parameters whose rows begin at multiples of `unit` numbers.

    `starts` and `counts` are in these units: start 3 with unit 4 is number 12. slots: place of a piece's sum
    of squares among those of all pieces, replica by replica.
    """

    unit: int
    starts: Tensor
    counts: Tensor
    replicas: Tensor
    slots: Tensor
    scales: Tensor
    decaying: Tensor


@triton.jit
def _piece(starts, counts, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    """Return the places of the numbers of a program's piece, and which of them there are."""
    column = tl.arange(0, BLOCK)
    start = tl.load(starts + tl.program_id(0)) * UNIT
    return start + column, column < tl.load(counts + tl.program_id(0)) * UNIT


@triton.jit
def _step(
    weights, gradients, means, squares, numbers, rates, decays, norms,
    starts, counts, replicas, scales, decaying, clip, beta1, beta2, epsilon,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CLIPS: tl.constexpr,
):  # fmt: skip
    """Update weights and moments. Grid (pieces,)."""
    piece = tl.program_id(0)
    replica = tl.load(replicas + piece)
    place, mask = _piece(starts, counts, UNIT, BLOCK)
    rate = tl.load(rates + replica) * tl.load(numbers)
    scale = tl.load(scales + piece)
    pull = (rate * tl.load(decays + replica)).to(tl.float32) * scale * tl.load(decaying + piece)
    push = (rate / tl.load(numbers + 1)).to(tl.float32) * scale
    square_bias = tl.load(numbers + 2).to(tl.float32)
    g = tl.load(gradients + place, mask=mask, other=0.0).to(tl.float32)
    if CLIPS:
        g *= tl.minimum(clip / (tl.load(norms + replica) + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    mean = tl.load(means + place, mask=mask, other=0.0).to(tl.float32)
    square = tl.load(squares + place, mask=mask, other=0.0).to(tl.float32)
    mean += (1 - beta1) * (g - mean)
    square = beta2 * square + (1 - beta2) * g * g
    tl.store(means + place, mean, mask=mask)
    tl.store(squares + place, square, mask=mask)
    w = tl.load(weights + place, mask=mask, other=0.0).to(tl.float32)
    w -= w * pull
    w -= push * mean / (tl.sqrt(square / square_bias) + epsilon)
    tl.store(weights + place, w, mask=mask)


@triton.jit
def _square_sums(gradients, sums, starts, counts, slots, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    """Store the sum of squares of each piece in its slot. Grid (pieces,)."""
    place, mask = _piece(starts, counts, UNIT, BLOCK)
    g = tl.load(gradients + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(sums + tl.load(slots + tl.program_id(0)), tl.sum(g * g))


class Update:
    """Steps of AdamW for tensors of one layout; methods are those of `linbench.kernels.adamw.Update`."""

    def __init__(
        self, weights: Tensor, layout: "Layout", scales: Sequence[float], decaying: Sequence[float]
    ) -> None:
        self.replicas = layout.replicas
        self.pieces_of_replica = sum(-(-width // BLOCK) for width in layout.widths)
        self.pieces = [
            _cut(layout, unit, self.pieces_of_replica, scales, decaying, weights.device)
            for unit in dict.fromkeys(_unit(width) for width in layout.widths if width)
        ]

    def norms(self, gradients: Tensor) -> Tensor:
        """Return the norm [R] of each replica's gradient."""
        sums = torch.empty(
            self.replicas, self.pieces_of_replica, device=gradients.device, dtype=torch.float32
        )
        for unit, starts, counts, _, slots, _, _ in self.pieces:
            _square_sums[(len(starts),)](
                gradients, sums, starts, counts, slots, UNIT=unit, BLOCK=BLOCK, num_warps=4
            )
        return sums.sum(dim=1).sqrt_()

    def step(self, weights: Tensor, gradients: Tensor, moments: "Moments", now: "Now") -> None:
        """Update weights and moments in place."""
        norms = weights if now.norms is None else now.norms
        for unit, starts, counts, replicas, _, scales, decaying in self.pieces:
            _step[(len(starts),)](
                weights, gradients, *moments, now.numbers, now.rates, now.decays, norms,
                starts, counts, replicas, scales, decaying, now.clip, *now.betas, EPSILON,
                UNIT=unit, BLOCK=BLOCK, CLIPS=now.norms is not None, num_warps=4,
            )  # fmt: skip


def _unit(width: int) -> int:
    return _UNIT if width % _UNIT == 0 else 1


def _cut(
    layout: "Layout",
    unit: int,
    of_replica: int,
    scales: Sequence[float],
    decaying: Sequence[float],
    device: torch.device,
) -> _Pieces:
    """Return the pieces of all parameters with this unit, given how many pieces a replica has in all."""
    starts, counts, replicas, slots, own_scales, own_decaying = ([] for _ in range(6))
    slot = 0
    for place, width, scale, decays in zip(layout.starts, layout.widths, scales, decaying, strict=False):
        firsts = torch.arange(0, width, BLOCK)
        if _unit(width) == unit:
            replica = torch.arange(layout.replicas).repeat_interleave(len(firsts))
            first = firsts.repeat(layout.replicas)
            starts.append((place + replica * width + first) // unit)
            counts.append((width - first).clamp(max=BLOCK) // unit)
            replicas.append(replica)
            slots.append(replica * of_replica + slot + first // BLOCK)
            own_scales.append(torch.full(first.shape, scale))
            own_decaying.append(torch.full(first.shape, decays))
        slot += len(firsts)
    whole = [torch.cat(parts).to(device) for parts in (starts, counts, replicas, slots)]
    factors = [torch.cat(parts).to(device, torch.float32) for parts in (own_scales, own_decaying)]
    return _Pieces(unit, *whole, *factors)
