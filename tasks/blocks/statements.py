"""Statements written over filler.

A statement is a text of words; a point stands for a place that stays filler.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["statement_length", "word_position", "write_statement"]


def statement_length(text: str, *, width: int = 1) -> int:
    """Return the positions that a statement takes, of `width` ids each."""
    return len(text.split()) // width


def word_position(text: str, word: str, *, width: int = 1) -> int:
    """Return at which of a statement's positions a word stands."""
    return text.split().index(word) // width


def write_statement(
    ids: Tensor, text: str, starts: Tensor, words: Mapping[str, int | Tensor], *, width: int = 1
) -> None:
    """Write a statement into ids at each of the given positions.

    Args:
        ids: [B, T * width], changed in place.
        text: words of the statement.
        starts: positions [B, M].
        words: the id of each word: one, or one for each position [B, M].
        width: ids of a position.
    """
    for offset, word in enumerate(text.split()):
        if word != ".":
            at, token = width * starts + offset, words[word]
            ids.scatter_(1, at, token if isinstance(token, Tensor) else torch.full_like(at, token))
