"""Statements written over filler. A statement is a text of words; a point stands for a place that stays
filler."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["statement_length", "word_position", "write_statement"]


def statement_length(text: str, *, width: int = 1) -> int:
    """Positions that it takes, of `width` ids each."""
    return len(text.split()) // width


def word_position(text: str, word: str, *, width: int = 1) -> int:
    """At which of its positions a word stands."""
    return text.split().index(word) // width


def write_statement(
    ids: Tensor, text: str, starts: Tensor, words: Mapping[str, int | Tensor], *, width: int = 1
) -> None:
    """Write a statement into ids [B, T * width] at each of the positions `starts` [B, M]; each word is one id
    or an id for each of them, [B, M]."""
    for offset, word in enumerate(text.split()):
        if word != ".":
            at, token = width * starts + offset, words[word]
            ids.scatter_(1, at, token if isinstance(token, Tensor) else torch.full_like(at, token))
