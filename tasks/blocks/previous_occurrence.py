"""Earlier places of a row that hold the same id, for each place."""

import torch
from torch import Tensor


def previous_occurrence(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last earlier place with the same id, and how many there are: both [B, P].

    Without an earlier place it is the place itself. A stable sort puts equal ids side by side in their order.
    """
    ordered, place = ids.sort(dim=1, stable=True)
    rank = torch.arange(ids.shape[1], device=ids.device)
    begins = torch.ones_like(ordered[:, :1], dtype=torch.bool)
    first = torch.cat([begins, ordered[:, 1:] != ordered[:, :-1]], dim=1)
    before = torch.where(first, place, place.roll(1, dims=1))
    count = rank - torch.where(first, rank, 0).cummax(dim=1).values
    empty = torch.empty_like(place)
    return empty.scatter(1, place, before), empty.scatter(1, place, count)


def token_after_previous(inputs: Tensor, positions: Tensor) -> Tensor:
    """Return, for each position, the token that followed the last earlier place of the token there [B, N].

    Without an earlier place it is the token at the position itself.
    """
    place, _ = previous_occurrence(inputs)
    return inputs.gather(1, (place.gather(1, positions) + 1).minimum(positions))
