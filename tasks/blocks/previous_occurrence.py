"""What came back: for each place of a row, the places before it that hold the same."""

import torch
from torch import Tensor


def previous_occurrence(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids [B, P] -> the last place before each that holds the same, or itself where there is none, and how
    many there are: both [B, P].

    A stable sort puts equal ids side by side in their order.
    """
    ordered, place = ids.sort(dim=1, stable=True)
    rank = torch.arange(ids.shape[1], device=ids.device)
    first = torch.cat(
        [torch.ones_like(ordered[:, :1], dtype=torch.bool), ordered[:, 1:] != ordered[:, :-1]], dim=1
    )
    before = torch.where(first, place, place.roll(1, dims=1))
    count = rank - torch.where(first, rank, 0).cummax(dim=1).values
    return torch.empty_like(place).scatter_(1, place, before), torch.empty_like(place).scatter_(
        1, place, count
    )
