"""Sparse supervision: in training only one of several running answers has a label."""

from typing import Any

import torch
from pydantic import Field

from linbench.common.settings import ABSENT
from linbench.tasks.base import IGNORE, Batch, Split


def label_every_field(answers: str) -> Any:
    """Return the field of the setting `label_every`, for running answers named in the plural."""
    return Field(
        1,
        ge=1,
        description=(
            f"in training one of so many {answers} has a label, counted back from the last, which always has"
            " one; validation and test ask for all"
        ),
        json_schema_extra={ABSENT: 1},
    )


def refuse_single(label_every: int, setting: str, value: str) -> None:
    """Raise ValueError, in one sentence, if labels are to be left out where there is only one answer."""
    if label_every > 1:
        raise ValueError(
            f"{setting} = {value} has a single answer, so no label can be left out; use label_every = 1, not"
            f" {label_every}"
        )


def count_labelled(labelled: int, answers: int) -> str:
    """Return how many of a row's answers have a label, in words: "each of the 8", or "2 of the 8"."""
    return f"each of the {answers}" if labelled == answers else f"{labelled} of the {answers}"


def thin_labels(batch: Batch, every: int, split: Split) -> Batch:
    """Return the batch with one label for every so many answers [B, N], in training only.

    The answer at the last position keeps its label, and so does each that is a multiple of `every` answers
    before it. Places without a label become unused ones.
    """
    if every == 1 or split != "train":
        return batch
    due = batch.is_answer
    latest_first = torch.where(due, batch.positions, -1).argsort(dim=1, descending=True)
    later = latest_first.argsort(dim=1)  # how many answers of the row come after each
    kept = due & (later % every == 0)
    return batch._replace(
        positions=torch.where(kept, batch.positions, 0),
        targets=torch.where(kept, batch.targets, IGNORE),
        slices={name: torch.where(kept, x, 0) for name, x in batch.slices.items()},
    )
