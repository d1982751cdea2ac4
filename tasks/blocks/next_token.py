"""Labels at every token, each with the token that comes next."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.tasks.base import IGNORE, Batch, Split

__all__ = ["ALL_LABELLED", "Labels", "label_next_tokens"]

Labels = Annotated[
    Literal["answer", "all"],
    Field(
        description="what training labels: the answer, or all tokens, each with the next; tests ask for the"
        " answer alone",
        json_schema_extra={ABSENT: "answer"},
    ),
]

ALL_LABELLED = "In training all other tokens have labels, too: the next token."
"""Sentence that `explain` adds where training labels all tokens."""


def label_next_tokens(batch: Batch, *, split: Split) -> Batch:
    """Return examples with a place at every token, [B, T], from examples with one answer, at the last.

    In training the label of a token is the next one, and that of the last token is the answer. In tests the
    other places are unused. Slices are 0 there.
    """
    tokens = batch.inputs[:, 1:]
    before = tokens if split == "train" else torch.full_like(tokens, IGNORE)

    def widen(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (tokens.shape[1], 0))

    return Batch(
        batch.inputs,
        torch.arange(batch.inputs.shape[1], device=tokens.device).expand_as(batch.inputs),
        torch.cat([before, batch.targets], dim=1),
        {name: widen(x) for name, x in batch.slices.items()},
    )
