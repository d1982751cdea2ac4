"""The contract of a task: a pure function from settings, seed, split and example index to an example."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO

__all__ = ["IGNORE", "IO", "Batch", "Prediction", "Preset", "Skill", "Split", "Task", "WeightedMean"]

IGNORE = -100
"""Target of an unused place. It fills up rows, so that all rows of a batch have equally many places."""

Split = Literal["train", "validation", "test"]

Skill = Literal["remember", "overwrite", "filter", "track", "reason", "learn"]
"""Skill that a task tests.

remember: hold what was told. overwrite: replace it. filter: leave out what does not matter. track: follow a
state that every token changes. reason: go from one stored item to another. learn: learn a rule from the
context.
"""


class Batch(NamedTuple):
    """Examples with their labels.

    inputs: token ids [B, T]; ids [B, T, F], whose embeddings are summed; or float32 vectors [B, T, d_in].
    positions: where answers are due [B, N]. targets: ids [B, N], `IGNORE` at unused places, or float32
    vectors [B, N, d_out], all of them used. slices: name -> integers [B, N], by which scores are reported.
    facts: name -> [B, N, ...], which scores use and no model sees.
    """

    inputs: Tensor
    positions: Tensor
    targets: Tensor
    slices: dict[str, Tensor]
    facts: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def is_answer(self) -> Tensor:
        """True at places that are used [B, N]."""
        return (
            self.targets != IGNORE
            if self.targets.dim() == 2
            else torch.ones_like(self.positions, dtype=torch.bool)
        )


class Prediction(NamedTuple):
    """Predictions for a batch.

    answers: the likeliest ids [B, N], or vectors [B, N, d_out]. loss: [B, N], negative log-likelihood of the
    target in nats, or mean squared error of vectors. logits: [B, N, vocab_out], for ids only.
    """

    answers: Tensor
    loss: Tensor
    logits: Tensor | None = None


class WeightedMean(NamedTuple):
    """A weighted mean over all used places; the sums of value and weight [B, N] are kept.

    Without a weight every place counts 1.
    """

    value: Tensor
    weight: Tensor | None = None


@dataclass(frozen=True)
class Preset:
    """Named settings of a task and, where they belong to it, of the model and the protocol."""

    about: str
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)


class Writing(NamedTuple):
    """Rows that a trained model goes on with by itself, each token after its own ones.

    tokens: how many it writes at most. end: the token after which it is done. drawn: whether its tokens are
    drawn by their probability; else the likeliest is taken.
    """

    tokens: int
    end: int
    drawn: bool


class Task(ABC):
    """A task: a generator of examples with an exact solver, a chance level and slices.

    Its docstring is its card: a question, two sentences on what it tests and does not test, then details.
    """

    name: ClassVar[str]
    """Name on the command line and in results."""
    version: ClassVar[int] = 1
    """Raise it with every change to the file that changes examples; part of the identity of every cell."""
    scoring: ClassVar[int] = 1
    """Raise it when `chance` changes while examples stay the same.

    It is stored with every result and is not part of any identity. `linbench/results/rescore.py` gives older
    results today's chance.
    """
    skill: ClassVar[Skill]
    """Skill that the task tests."""
    Settings: ClassVar[type[Settings]]
    presets: ClassVar[dict[str, Preset]] = {}
    """Presets by name; the first is the default."""
    optimum_kind: ClassVar[Literal["optimum", "upper bound"]] = "optimum"
    """Meaning of `optimum`.

    "optimum": attained from what a model sees. "upper bound": the exact solver knows more than a model sees.
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def io(self) -> IO:
        """Vocabularies and dimensions, from which a backbone builds its embedding and head.

        The default is one vocabulary of `vocab_size` for inputs and answers.
        """
        return IO(self.settings.vocab_size, self.settings.vocab_size)

    @property
    def one_vocabulary(self) -> bool:
        """True if an answer's id means what it means in the inputs, so that one token stands for both.

        The default: both vocabularies have one size.
        """
        return self.io.vocab_in is not None and self.io.vocab_in == self.io.vocab_out

    @property
    def solved_by(self) -> tuple[str, ...]:
        """Shallow baselines that do what the task asks for, such as finding what stood beside a key.

        They are those of `linbench/verify/shallow.py`, and no other may score well (docs/tasks.md).
        """
        return ()

    @property
    def loss(self) -> Literal["nll", "mse"]:
        """Name of the mean that training minimises."""
        return "nll" if self.io.vocab_out is not None else "mse"

    @property
    def seq_len(self) -> int:
        """T, the length of every example."""
        return int(self.settings.seq_len)

    @property
    @abstractmethod
    def answers(self) -> int:
        """N, the number of places at which an answer may be due."""

    @abstractmethod
    def chance(self) -> float:
        """Return the accuracy of the best blind guess, by which scores are scaled.

        Diverged runs count as this. A blind guesser knows how examples are drawn and where an answer is due.
        It is blind either to what is asked (a key, a name, one of two roles) while it reads the rest of the
        sequence up to there, including earlier tokens of the answer; or to the sequence while it knows the
        question. The better of the two counts. Where a sequence has a single answer, because all of it is
        asked for or it holds one fact, it is the latter. A task whose published scores are scaled by another
        level keeps that level and says so. This must be cheap: it is called for every cell.
        """

    def optimum(self) -> float:
        """Return the expected accuracy of the exact solver."""
        return 1.0

    @property
    def optimum_places(self) -> int:
        """Decimal places in which `optimum` is shown; fewer than four where it is an estimate."""
        return 4

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings that make sequences `times` as long with the same tokens.

        What a longer sequence holds is up to the task; with `seq_len` alone, mostly the same facts further
        apart.
        """
        return {"seq_len": times * self.seq_len}

    @abstractmethod
    def slice_sizes(self) -> dict[str, int]:
        """Return every slice with the number that its integers stay below."""

    @abstractmethod
    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples of a stream.

        Each row depends on its own index only, and nothing waits for the device.

        Args:
            index: numbers of the examples, int64 [B], on any device.
            seed: seed of the stream.
            split: split of the stream.
        """

    @abstractmethod
    def solve(self, batch: Batch) -> Tensor:
        """Return the exact solver's answers, shaped as `Prediction.answers`.

        The solver may use what a model sees: for each place, the inputs up to its position.
        """

    def baselines(self, batch: Batch) -> dict[str, Prediction]:
        """Return predictions of simple untrained predictors by name, from what a model may see."""
        return {}

    @property
    def writing(self) -> Writing | None:
        """Way in which a model writes by itself in tests, for the score "generated"; None: it does not.

        A task with that has `prompts` and `judge`.
        """
        return None

    def prompts(self, batch: Batch) -> Tensor:
        """Return how many tokens of each row are given to a model that writes [B]."""
        raise NotImplementedError

    def judge(self, batch: Batch, written: Tensor) -> Tensor:
        """Tell which of the rows that a model has written are right, bool [B].

        Args:
            batch: the examples.
            written: their rows up to the prompt, and what the model wrote, then zeros [B, T].
        """
        raise NotImplementedError

    @abstractmethod
    def explain(self, batch: Batch, row: int) -> str:
        """Return one example in words, with its labels."""

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return what is reported, by name.

        "accuracy" is how often the answer is right; for vectors, the share of the targets' squares that is
        explained.
        """
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
        """Return sums and weights of all `means`, so that batches can be added up.

        With `slices`, every mean except "nll" is also given as "<mean>/<slice>", vectors over the slice's
        integers. A task with its own `score` is given a multiple of 256 examples at a time, except for the
        last batch.
        """
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
