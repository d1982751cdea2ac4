"""What every task is: a pure function from (settings, seed, split, example index) to an example with labelled
positions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO

__all__ = ["IGNORE", "IO", "Batch", "Prediction", "Preset", "Question", "Split", "Task", "WeightedMean"]

IGNORE = -100
"""The target of a place that is not due, so that every row of a batch has the same number of places."""

Split = Literal["train", "validation", "test"]

Question = Literal["remember", "overwrite", "filter", "track", "reason", "learn"]
"""What a task asks of a memory: to hold what it was told; to replace it; to leave out what does not matter;
to follow a state that every token changes; to go from one thing it holds to another; to learn a rule from its
context."""


class Batch(NamedTuple):
    """Examples with their labels.

    inputs: [B, T] token ids, [B, T, F] ids whose embeddings are summed, or float32 vectors [B, T, d_in].
    positions: [B, N], where an answer is due. targets: [B, N], `IGNORE` where a place is unused; or float32
        vectors [B, N, d_out], all of them due.
    slices: name -> [B, N] integers, by which the score is reported.
    facts: name -> [B, N, ...], what scores are made of besides and no model sees.
    """

    inputs: Tensor
    positions: Tensor
    targets: Tensor
    slices: dict[str, Tensor]
    facts: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def is_answer(self) -> Tensor:
        """[B, N], which places are used."""
        return (
            self.targets != IGNORE
            if self.targets.dim() == 2
            else torch.ones_like(self.positions, dtype=torch.bool)
        )


class Prediction(NamedTuple):
    """answers: [B, N] the likeliest ids, or [B, N, d_out] vectors. loss: [B, N], the negative log-likelihood
    of the target in nats, or of vectors the mean squared error. logits: [B, N, vocab_out], of ids."""

    answers: Tensor
    loss: Tensor
    logits: Tensor | None = None


class WeightedMean(NamedTuple):
    """A weighted mean over all places that are due: value and weight [B, N], sums of both are kept. No
    weight: each counts once."""

    value: Tensor
    weight: Tensor | None = None


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
    scoring: ClassVar[int] = 1
    """Raised whenever `chance` changes while examples stay: stored with every result, and no part of any
    identity. `linbench/results/rescore.py` gives older results today's chance."""
    asks: ClassVar[Question]
    Settings: ClassVar[type[Settings]]
    presets: ClassVar[dict[str, Preset]] = {}
    """The first is the default."""
    bound: ClassVar[Literal["optimum", "upper bound"]] = "optimum"
    """What `optimum` is: attained by one who sees what a model sees; or an upper bound, as the exact solver
    knows more than that."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def io(self) -> IO:
        """From this a backbone builds its embedding and head; unless a task says otherwise, one vocabulary
        for both, of `vocab_size`."""
        return IO(self.settings.vocab_size, self.settings.vocab_size)

    @property
    def loss(self) -> str:
        """What is minimised, by its name among the means."""
        return "nll" if self.io.vocab_out is not None else "mse"

    @property
    def seq_len(self) -> int:
        """T, the length of every example."""
        return int(self.settings.seq_len)

    @property
    @abstractmethod
    def answers(self) -> int:
        """N, the number of places at which an answer is due."""

    @abstractmethod
    def chance(self) -> float:
        """The accuracy of the best blind guess, by which scores are scaled; diverged runs count as this.

        Who guesses knows how examples are drawn and where an answer is due, and is blind either to what is
        asked for, here and elsewhere (a key, a name, one of two roles), but reads the rest of the sequence up
        to there, with what was said of the answer before; or to the sequence, but knows the question. The
        better of the two counts; where a sequence has one answer only, since it is all that is asked for or
        holds one fact, it is the latter. A task whose published scores are scaled by another level keeps that
        and says so. Cheap, for it is asked of every cell.
        """

    def optimum(self) -> float:
        """The accuracy of the exact solver, in expectation."""
        return 1.0

    @property
    def optimum_places(self) -> int:
        """Decimal places that `optimum` is shown with: fewer than four where it is an estimate that has
        fewer."""
        return 4

    def longer(self, times: int) -> dict[str, Any]:
        """The settings that make sequences so many times as long and leave tokens as they are. What a longer
        one holds is the task's: with `seq_len` alone mostly the same facts further apart."""
        return {"seq_len": times * self.seq_len}

    @abstractmethod
    def slice_sizes(self) -> dict[str, int]:
        """Every slice, and the number its integers stay below."""

    @abstractmethod
    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Examples number `index` (int64 [B], any device) of a stream. Each row depends on its own index
        only; nothing waits for the device."""

    @abstractmethod
    def solve(self, batch: Batch) -> Tensor:
        """The exact solver's answers, as `Prediction.answers`, from what a model may see: for each place, the
        inputs up to its position."""

    def baselines(self, batch: Batch) -> dict[str, Prediction]:
        """What simple predictors answer with nothing trained, by name, from what a model may see: a model's
        scores are read beside theirs."""
        return {}

    @abstractmethod
    def explain(self, batch: Batch, row: int) -> str:
        """One example in words, its labels marked."""

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """What is reported, by name. "accuracy": how often the answer is right; of vectors, which share of
        the targets' squares is explained."""
        if self.io.vocab_out is not None:
            return {
                "accuracy": WeightedMean(prediction.answers == batch.targets),
                "nll": WeightedMean(prediction.loss),
            }
        size, error = (
            x.double().square().sum(dim=-1) for x in (batch.targets, prediction.answers - batch.targets)
        )
        return {
            "accuracy": WeightedMean(size - error, size),
            "mse": WeightedMean(error / batch.targets.shape[-1]),
        }

    def score(
        self, batch: Batch, prediction: Prediction, *, slices: bool = True
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Sums and weights of all `means`, so that batches add up; and with `slices`, but for "nll", as
        "<mean>/<slice>", vectors of them over the slice's integers. One of a task's own is given a multiple
        of 256 examples at a time, but for the last."""
        scores = {}
        due = batch.is_answer
        for name, mean in self.means(batch, prediction).items():
            value = mean.value.double().masked_fill(~due, 0)
            weight = due.double() if mean.weight is None else mean.weight.double().masked_fill(~due, 0)
            scores[name] = value.sum(), weight.sum()
            for slice_, size in self.slice_sizes().items() if slices and name != "nll" else ():
                at = batch.slices[slice_].flatten()
                zeros = torch.zeros(size, dtype=torch.float64, device=at.device)
                scores[f"{name}/{slice_}"] = (
                    zeros.index_add(0, at, value.flatten()),
                    zeros.index_add(0, at, weight.flatten()),
                )
        return scores
