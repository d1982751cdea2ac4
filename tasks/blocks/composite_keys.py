"""Keys of several tokens, alike within clusters: which there can be, and how they are drawn."""

from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.tasks.random import Stream, inverse

__all__ = ["Cluster", "CompositeKeys", "Parts", "Shared"]

Parts = Annotated[
    int,
    Field(
        ge=1,
        le=64,
        description="tokens of a key, its parts; with more than one, keys form clusters",
        json_schema_extra={ABSENT: 1},
    ),
]

Shared = Annotated[
    int,
    Field(
        ge=0,
        description=(
            "first parts of a key that all keys of its cluster have; the others come again in every cluster."
            " 0 is the control, in which each token is part of one key"
        ),
        json_schema_extra={ABSENT: 0},
    ),
]

Cluster = Annotated[
    int, Field(ge=2, description="keys of a cluster, where parts > 1", json_schema_extra={ABSENT: 4})
]


class CompositeKeys(NamedTuple):
    """The law of a sequence's keys: their number, and the three settings.

    Keys are the cells of a grid whose rows are clusters. A cell's first parts belong to its row, and the
    others, its own parts, to its column. All these tokens differ, so a part names a row or a column, and only
    both name a key. If nothing is shared, every part belongs to its cell.
    """

    keys: int
    parts: int
    shared: int
    cluster: int

    @property
    def tokens(self) -> int:
        """Number of different tokens that are parts of keys."""
        if not self.shared:
            return self.keys * self.parts
        return self.shared * (self.keys // self.cluster) + (self.parts - self.shared) * self.cluster

    def refuse_impossible(self, setting: str) -> None:
        """Raise ValueError, in one sentence, unless there are such keys.

        Args:
            setting: name of the one that says how many keys there are.
        """
        if self.shared >= self.parts:
            raise ValueError(
                "keys of a cluster differ in at least one part, so shared must be below parts ="
                f" {self.parts}, not {self.shared}"
            )
        if self.parts > 1 and (self.keys % self.cluster or self.keys < 2 * self.cluster):
            raise ValueError(
                f"with parts = {self.parts} keys form two or more clusters of {self.cluster}, so {setting}"
                f" must be a multiple of cluster from {2 * self.cluster} on, not {self.keys}"
            )

    def cells(self, stream: Stream) -> Tensor:
        """Return the cell of each key [B, V], numbered row by row, in uniform order.

        Keys of one part are in the order of their cells.
        """
        if self.parts == 1:
            return torch.arange(self.keys, device=stream.key.device).expand(len(stream.key), -1)
        return stream.shuffle(self.keys)

    def spell(self, cells: Tensor, tokens: Tensor) -> Tensor:
        """Return the parts of each key [B, V, parts].

        Args:
            cells: of the keys, from `cells`.
            tokens: all that are parts, each once [B, self.tokens].
        """
        row, column = (cells // self.cluster)[:, :, None], (cells % self.cluster)[:, :, None]
        part, rows = torch.arange(self.parts, device=cells.device), self.keys // self.cluster
        if self.shared:
            of_rows, of_columns = part[: self.shared] * rows, part[: self.parts - self.shared] * self.cluster
            numbers = torch.cat([of_rows + row, self.shared * rows + of_columns + column], dim=2)
        else:
            numbers = self.parts * cells[:, :, None] + part
        return tokens.gather(1, numbers.flatten(1)).view_as(numbers)

    def near(self, cells: Tensor) -> Tensor:
        """Return the other keys of each key's cluster [B, V, cluster - 1]."""
        row, column = (cells // self.cluster)[:, :, None], (cells % self.cluster)[:, :, None]
        others = (column + torch.arange(1, self.cluster, device=cells.device)) % self.cluster
        return inverse(cells).gather(1, (self.cluster * row + others).flatten(1)).view_as(others)
