"""One experiment: task x model x protocol x seed. Its identity is a hash of exactly these and of the code
versions that decide it."""

from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from linbench.common.hashing import digest
from linbench.experiments import protocol as protocols
from linbench.experiments.curriculum import Curriculum, Segment
from linbench.experiments.device import device_class
from linbench.experiments.model_spec import ModelSpec
from linbench.experiments.protocol import Protocol
from linbench.experiments.registry import Entry
from linbench.tasks import random
from linbench.tasks.base import Task

SCHEMA = 3
"""Of identities and result files alike."""

Purpose = Literal["report", "tuning"]
"""What a cell is run for: to be reported, or to choose a learning rate by."""


@dataclass(frozen=True)
class Cell:
    """What is run, and what its result is filed under. Neither `preset`, the task's preset that these
    settings are, if any, nor `purpose` is part of that.

    A cell with `segments` trains on a mixture of them, one with `tests` is judged by these; else by the task
    itself. All are the task with other settings, with the same inputs and outputs.
    """

    task: Task
    task_entry: Entry
    model: ModelSpec
    protocol: Protocol
    seed: int
    device: str
    segments: tuple[Segment, ...] = ()
    tests: tuple[Task, ...] = ()
    preset: str | None = field(compare=False, default=None)
    purpose: Purpose = field(compare=False, default="report")

    def __reduce__(self) -> Any:
        """Tasks travel as their settings."""
        segments = [(_settings(segment.task), segment.examples) for segment in self.segments]
        tasks = _settings(self.task), segments, [_settings(test) for test in self.tests]
        return _cell, (
            self.task_entry,
            *tasks,
            self.model,
            self.protocol,
            self.seed,
            self.device,
            self.preset,
            self.purpose,
        )

    @property
    def trained_on(self) -> tuple[Segment, ...]:
        """The segments, or the task itself."""
        return self.segments or (Segment(self.task, self.protocol.examples),)

    @property
    def tested_on(self) -> tuple[Task, ...]:
        """The tests, or the task itself."""
        return self.tests or (self.task,)

    @property
    def longest_test(self) -> Task:
        """What sizes are told at."""
        return max(self.tested_on, key=lambda test: (test.seq_len, test.answers))

    @property
    def chance(self) -> float:
        """The mean over what it is tested on."""
        return fmean(test.chance() for test in self.tested_on)

    @cached_property
    def curriculum(self) -> Curriculum:
        """What each step trains on."""
        size = self.protocol.batch_size
        return (
            Curriculum.of(self.segments, size)
            if self.segments
            else Curriculum((1,), (size * self.task.seq_len,))
        )

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        if not self.segments:
            return self.protocol.steps(self.task.seq_len)
        assert self.protocol.epochs is not None, "a mixture is trained on for epochs"
        return self.protocol.epochs * self.curriculum.epoch

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the result, as plain JSON values."""
        return {
            "schema": SCHEMA,
            "task": {
                "name": self.task_entry.name,
                "version": self.task.version,
                "draws": random.VERSION,
                "settings": self.task.settings.model_dump(mode="json"),
                "source": self.task_entry.digest,
                **self._mixture(),
            },
            "model": self.model.identity(),
            "protocol": {"version": protocols.VERSION, "settings": self.protocol.model_dump(mode="json")},
            "seed": self.seed,
            "backend": "torch",
            "device": device_class(self.device),
        }

    def _mixture(self) -> dict[str, Any]:
        """Segments and tests as plain JSON values, where there are any."""
        train = [
            {"settings": segment.task.settings.model_dump(mode="json"), "examples": segment.examples}
            for segment in self.segments
        ]
        test = [{"settings": test.settings.model_dump(mode="json")} for test in self.tests]
        return {name: values for name, values in (("train", train), ("test", test)) if values}

    @cached_property
    def id(self) -> str:
        """SHA-256 of the identity in canonical form."""
        return digest(self.identity)


def _settings(task: Task) -> dict[str, Any]:
    values: dict[str, Any] = task.settings.model_dump(exclude_unset=True)
    return values


def _cell(
    entry: Entry,
    settings: dict[str, Any],
    segments: list[tuple[dict[str, Any], int]],
    tests: list[dict[str, Any]],
    model: ModelSpec,
    protocol: Protocol,
    seed: int,
    device: str,
    *rest: Any,
) -> Cell:
    def task(values: dict[str, Any]) -> Task:
        made: Task = entry.cls(entry.cls.Settings.model_validate(values))
        return made

    mixture = tuple(Segment(task(values), examples) for values, examples in segments)
    return Cell(
        task(settings),
        entry,
        model,
        protocol,
        seed,
        device,
        mixture,
        tuple(task(values) for values in tests),
        *rest,
    )
