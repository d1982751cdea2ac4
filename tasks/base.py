"""What every task is: a pure function from (settings, seed, split, example index) to an example with labelled positions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from linbench.common.io import IO
from linbench.common.settings import Settings

__all__ = ["IGNORE", "IO", "Batch", "Prediction", "Preset", "Split", "Task"]

IGNORE = -100
"""The target of a place that is not due, so that every row of a batch has the same number of places."""

Split = Literal["train", "validation", "test"]


class Batch(NamedTuple):
    """Examples with their labels.

    inputs: [B, T] token ids, or [B, T, F] ids whose embeddings are summed.
    positions: [B, N], where an answer is due. targets: [B, N], `IGNORE` where a place is unused.
    slices: name -> [B, N] integers, by which the score is reported.
    """

    inputs: Tensor
    positions: Tensor
    targets: Tensor
    slices: dict[str, Tensor]


class Prediction(NamedTuple):
    """argmax [B, N] and nll [B, N], the negative log-likelihood of the target in nats."""

    argmax: Tensor
    nll: Tensor


@dataclass(frozen=True)
class Preset:
    """Named settings of a task and, where they belong to it, of the model and the protocol."""

    about: str
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)


class Task(ABC):
    """The docstring explains the task to a reader; the first line says what is asked."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raised whenever a change to the file changes the distribution; part of the identity of every cell."""
    Settings: ClassVar[type[Settings]]
    presets: ClassVar[dict[str, Preset]] = {}
    """The first is the default."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    @abstractmethod
    def io(self) -> IO:
        """From this a backbone builds its embedding and head."""

    @property
    @abstractmethod
    def seq_len(self) -> int:
        """T, the length of every example."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """N, the number of places at which an answer is due."""

    @abstractmethod
    def chance(self) -> float:
        """The accuracy of the best guess that does not use what is asked for; diverged runs count as this."""

    @abstractmethod
    def slice_sizes(self) -> dict[str, int]:
        """Every slice, and the number its integers stay below."""

    @abstractmethod
    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Examples number `index` (int64 [B], any device) of a stream. Each row depends on its own index only."""

    @abstractmethod
    def solve(self, batch: Batch) -> Tensor:
        """The exact solver's answers [B, N], from what a model may see: inputs and positions."""

    @abstractmethod
    def explain(self, batch: Batch, row: int) -> str:
        """One example in words."""

    def score(self, batch: Batch, prediction: Prediction) -> dict[str, tuple[Tensor, Tensor]]:
        """Sums and counts, so that batches add up: "accuracy", "nll", and "accuracy/<slice>" as vectors over the slice's integers."""
        due = batch.targets != IGNORE
        right = ((prediction.argmax == batch.targets) & due).double()
        counted = due.double()
        scores = {
            "accuracy": (right.sum(), counted.sum()),
            "nll": (prediction.nll.double().masked_fill(~due, 0).sum(), counted.sum()),
        }
        for name, size in self.slice_sizes().items():
            where = batch.slices[name].flatten()
            zeros = torch.zeros(size, dtype=torch.float64, device=where.device)
            scores[f"accuracy/{name}"] = (
                zeros.index_add(0, where, right.flatten()),
                zeros.index_add(0, where, counted.flatten()),
            )
        return scores
