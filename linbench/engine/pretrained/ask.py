"""Asks a language model a task, and makes the result."""

import math
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.hashing import digest
from linbench.engine.evaluate import (
    EXAMPLES,
    Scores,
    TestMetrics,
    add_scores,
    collect_metrics,
    prediction_of,
)
from linbench.engine.pretrained.language_model import LanguageModel
from linbench.engine.pretrained.prompt import Answers, Prompt, build_prompt, tells_answers
from linbench.engine.pretrained.state_bytes import measure_state
from linbench.engine.pretrained.vocabulary import Vocabulary, refuse_task
from linbench.experiments.cell import SCHEMA
from linbench.experiments.device import device_class
from linbench.experiments.registry import Entry
from linbench.results.environment import environment
from linbench.results.schema.pretrained import PretrainedIdentity, PretrainedResult, PretrainedState
from linbench.tasks import random
from linbench.tasks.base import Batch, Task

VERSION = 1
"""Raise it with every change that changes prompts, tokens or scores; part of the identity of every result."""

LOOKED_AT = 256
"""Training examples from which `tells_answers` is read off."""


@dataclass(frozen=True)
class Question:
    """A task as a language model is asked it.

    Args:
        task: the task.
        entry: its entry in the registry.
        preset: the preset that its settings are those of, if they are.
        shots: number of training examples, with their answers, before the one that is asked.
        answers: whether the asked example holds its own answers.
        seed: seed of all examples.
        examples: number of test examples.
    """

    task: Task
    entry: Entry
    preset: str | None
    shots: int
    answers: Answers
    seed: int
    examples: int

    def __post_init__(self) -> None:
        """Check that a language model can be asked the task. Raises UserError: it cannot."""
        refuse_task(self.task)

    def draw(self, index: Tensor) -> tuple[Batch, list[Batch]]:
        """Return test examples, and for each of them `shots` training examples of its own."""
        shown = [
            self.task.sample(index * self.shots + shot, seed=self.seed, split="train")
            for shot in range(self.shots)
        ]
        return self.task.sample(index, seed=self.seed, split="test"), shown


class PretrainedCase:
    """A language model with a question that it can be asked."""

    def __init__(self, model: LanguageModel, question: Question) -> None:
        """Choose the tokens.

        Raises UserError: the model cannot be asked this task in this way.
        """
        if model.is_exported and (question.shots or question.answers == "written"):
            raise UserError(
                f"{model.folder.name} was trained by linbench on single examples whose answers are hidden;"
                " ask it with --shots 0 and --answers hidden."
            )
        self.model, self.question = model, question
        self.vocabulary: Vocabulary = model.vocabulary(question.task)

    @property
    def identity(self) -> PretrainedIdentity:
        """All that decides the result."""
        question, task = self.question, self.question.task
        settings: Any = task.settings.model_dump(mode="json")
        return {
            "version": VERSION,
            "task": {
                "name": question.entry.name,
                "version": task.version,
                "draws": random.VERSION,
                "settings": settings,
                "source": question.entry.digest,
            },
            "model": {"digest": self.model.digest},
            "tokens": self.vocabulary.digest,
            "shots": question.shots,
            "answers": question.answers,
            "seed": question.seed,
            "examples": question.examples,
            "precision": self.model.precision,
            "device": device_class(self.model.device),
        }

    @property
    def id(self) -> str:
        """The SHA-256 of the identity in canonical form."""
        return digest(self.identity)

    def measure(self) -> TestMetrics:
        """Ask all examples and return the scores.

        Raises UserError: the model cannot be loaded, does not fit into memory, reads no prompt so long, or
        gives likelihoods that are not finite.
        """
        totals: Scores = {}
        allowed = torch.tensor(self.vocabulary.answers, device=self.model.device)
        for index in torch.split(torch.arange(self.question.examples, device=self.model.device), EXAMPLES):
            asked, prompt = self.draw(index)
            prediction = prediction_of(self.model.answer_logits(prompt, allowed), asked.targets)
            add_scores(totals, self.question.task.score(asked, prediction))
        measured = collect_metrics([totals])[0]
        if not math.isfinite(measured.metrics["nll"]):
            raise UserError(
                f"{self.model.folder.name} gives answers of {self.question.task.name} likelihoods that are no"
                f" numbers in {self.model.precision}."
            )
        return measured

    def result(self) -> PretrainedResult:
        """Ask all examples and return the result. Raises UserError: as `measure` does."""
        question, task, model = self.question, self.question.task, self.model
        began = time.perf_counter()
        measured = self.measure()
        seconds = time.perf_counter() - began
        where = environment(model.device)
        where["packages"]["transformers"] = version("transformers")
        return {
            "schema": SCHEMA,
            "kind": "probe",
            "id": self.id,
            "label": model.folder.name,
            "preset": question.preset,
            "probe": self.identity,
            "chance": task.chance(),
            "optimum": task.optimum(),
            "scoring": task.scoring,
            "status": "ok",
            "reason": None,
            "marks": [],
            "metrics": measured.metrics,
            "slices": measured.slices,
            "choices": len(self.vocabulary.answers),
            "parameters": model.parameters,
            "state": self._state(),
            "seconds": seconds,
            "environment": where,
        }

    def draw(self, index: Tensor) -> tuple[Batch, Prompt]:
        """Return examples, and what the model reads of each."""
        asked, shown = self.question.draw(index)
        answers, told = self.question.answers, self._tells_answers
        return asked, build_prompt(asked, shown, self.vocabulary, answers=answers, told=told)

    @cached_property
    def _tells_answers(self) -> bool:
        first = torch.arange(LOOKED_AT)
        return tells_answers(self.question.task.sample(first, seed=0, split="train"))

    def _state(self) -> PretrainedState | None:
        """Return the bytes of the state after the first prompt."""
        _, prompt = self.draw(torch.arange(1, device=self.model.device))
        size = measure_state(self.model.module, prompt.tokens[0])
        if size is None:
            return None
        return {"recurrent": size.recurrent, "cache": size.cache, "tokens": size.tokens}
