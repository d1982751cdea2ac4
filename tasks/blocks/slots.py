"""Sequences of statements of one width, in any order, with room between them."""

import torch
from torch import Tensor


def statement_slots(length: int, width: int) -> int:
    """How many statements fit."""
    return length // width


def lay_out(statements: Tensor, slots: Tensor, *, length: int) -> Tensor:
    """Each statement in its slot, zeros elsewhere and in front, where the slots leave less than a statement's
    room.

    statements: [B, M, W]. slots: [B, M], distinct, below `statement_slots(length, W)`. Returns [B,
        length].
    """
    width = statements.shape[2]
    places = length % width + width * slots[:, :, None] + torch.arange(width, device=slots.device)
    return torch.zeros(len(slots), length, dtype=torch.int64, device=slots.device).scatter(
        1, places.flatten(1), statements.flatten(1)
    )


def read_statements(tokens: Tensor, width: int) -> Tensor:
    """[B, length] as `lay_out` made it -> [B, slots, W], zeros where nothing is said."""
    return tokens[:, tokens.shape[1] % width :].reshape(len(tokens), -1, width)
