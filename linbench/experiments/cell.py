"""One experiment: a task, a model, a protocol and a seed.

Its identity is a hash of exactly these and of the versions of the code that decides its numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
"""The version of the format of identities and result files."""

Purpose = Literal["report", "tuning", "rung"]
"""The purpose of a cell: to be reported, to choose a learning rate, or to be trained longer."""


@dataclass(frozen=True)
class Cell:
    """The unit that is run, and the identity that its result is filed under.

    A cell with `segments` trains on a mixture of them; one with `tests` is tested on these. Otherwise it
    trains and is tested on the task itself. Segments and tests are the task with other settings, and have the
    same inputs and outputs.

    Neither `preset`, the preset of the task that the settings equal, nor `purpose` is part of the identity.
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

    def rung(self, number: int) -> "Cell":
        """Return this cell alone with its budget doubled so many times more (fewer if negative)."""
        doublings = self.protocol.doublings + number
        protocol = self.protocol.model_copy(update={"rungs": 1, "doublings": doublings})
        return replace(self, protocol=protocol)

    def __reduce__(self) -> Any:
        """Pickle tasks as their settings, since their classes may be a plugin's."""
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
        """The segments of the training mixture, or the task itself as the only one."""
        return self.segments or (Segment(self.task, self.protocol.examples),)

    @property
    def tested_on(self) -> tuple[Task, ...]:
        """The tasks that are tested on, or the task itself as the only one."""
        return self.tests or (self.task,)

    @property
    def validated_on(self) -> tuple[Task, ...]:
        """The tests that are validated on: all, or those no longer than the sequences of training."""
        longest = max(segment.task.seq_len for segment in self.trained_on)
        trained = tuple(test for test in self.tested_on if test.seq_len <= longest)
        return trained if trained and self.protocol.validate_on == "trained" else self.tested_on

    @property
    def longest_test(self) -> Task:
        """The test with the longest sequences, at which sizes are reported."""
        return max(self.tested_on, key=lambda test: (test.seq_len, test.answers))

    @property
    def chance(self) -> float:
        """The chance level, as the mean over the tests."""
        return mean_chance(self.tested_on)

    @property
    def optimum(self) -> float:
        """The expected accuracy of the exact solver, as the mean over the tests."""
        return mean_optimum(self.tested_on)

    @cached_property
    def curriculum(self) -> Curriculum:
        """The order in which training takes its batches."""
        size = self.protocol.batch_size
        if self.segments:
            return Curriculum.of(self.segments, size)
        return Curriculum((1,), (size * self.task.seq_len,))

    @property
    def steps(self) -> int:
        """The number of optimizer steps."""
        return self.base_steps << self.protocol.doublings

    @property
    def base_steps(self) -> int:
        """The number of optimizer steps before the budget is doubled."""
        if not self.segments:
            return self.protocol.steps(self.task.seq_len)
        assert self.protocol.epochs is not None, "a mixture has a number of epochs"
        return self.protocol.epochs * self.curriculum.epoch

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the result, as plain JSON values."""
        return {
            "schema": SCHEMA,
            "task": {
                "name": self.task_entry.name,
                "version": self.task.version,
                "draws": random.VERSION,
                "settings": self.task.settings.identity(),
                "source": self.task_entry.digest,
                **self._mixture(),
            },
            "model": self.model.identity(),
            "protocol": {"version": protocols.VERSION, "settings": self._protocol().identity()},
            "seed": self.seed,
            "backend": "torch",
            "device": device_class(self.device),
        }

    def _protocol(self) -> Protocol:
        """Return the protocol without a choice of tests to validate on that leaves none out."""
        whole = self.validated_on == self.tested_on
        return self.protocol.model_copy(update={"validate_on": "all"}) if whole else self.protocol

    def _mixture(self) -> dict[str, Any]:
        train = [
            {"settings": segment.task.settings.identity(), "examples": segment.examples}
            for segment in self.segments
        ]
        test = [{"settings": test.settings.identity()} for test in self.tests]
        return {name: values for name, values in (("train", train), ("test", test)) if values}

    @cached_property
    def search_key(self) -> str:
        """A digest of what cells that share a search have in common: all but seed and learning rate."""
        settings = self.identity["protocol"]["settings"]
        return digest(
            {**self.identity, "seed": None, "protocol": {**settings, "lr": None}, "label": self.model.label}
        )

    @cached_property
    def id(self) -> str:
        """The SHA-256 of the identity in canonical form."""
        return digest(self.identity)


def mean_chance(tests: Sequence[Task]) -> float:
    """Return the mean chance level of tests."""
    return fmean(test.chance() for test in tests)


def mean_optimum(tests: Sequence[Task]) -> float:
    """Return the mean of what can be expected of the exact solver on tests."""
    return fmean(test.optimum() for test in tests)


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
