"""Sequences of equally long statements in any order, with room between them."""

import torch
from torch import Tensor


def statement_slots(length: int, width: int) -> int:
    """Return how many statements fit."""
    return length // width


def lay_out(statements: Tensor, slots: Tensor, *, length: int) -> Tensor:
    """Return sequences [B, length] with each statement in its slot, and zeros elsewhere.

    Zeros at the front fill up what is less than a statement.

    Args:
        statements: [B, M, W].
        slots: [B, M], distinct, below `statement_slots(length, W)`.
        length: of the result.
    """
    width = statements.shape[2]
    places = length % width + width * slots[:, :, None] + torch.arange(width, device=slots.device)
    return torch.zeros(len(slots), length, dtype=torch.int64, device=slots.device).scatter(
        1, places.flatten(1), statements.flatten(1)
    )


def read_statements(tokens: Tensor, width: int) -> Tensor:
    """Return the slots [B, slots, W] of sequences that `lay_out` made, zeros where a slot is empty."""
    return tokens[:, tokens.shape[1] % width :].reshape(len(tokens), -1, width)
