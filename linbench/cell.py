"""One experiment: task x model x protocol x seed. Its identity is a hash of exactly these and of the code versions that decide it."""

import hashlib
import importlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from linbench import generators
from linbench import protocol as protocols
from linbench.common.errors import UserError
from linbench.common.keys import stable_key
from linbench.common.settings import Settings
from linbench.curriculum import Curriculum, Segment
from linbench.models import backbone as backbones
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import Mixer
from linbench.protocol import Protocol
from linbench.registry import SHIPPED, Entry
from linbench.tasks import random
from linbench.tasks.base import Task

SCHEMA = 3
"""Of identities and result files alike."""

Form = Literal["native", "controlled"]
FORMS = ("native", "controlled")

Purpose = Literal["report", "tuning"]
"""What a cell is run for: to be reported, or to choose a learning rate by."""


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a model: which mixer, with which settings."""

    entry: Entry
    settings: Settings

    def __reduce__(self) -> Any:
        """Settings of plugins travel as values."""
        return _layer, (self.entry, self.settings.model_dump(exclude_unset=True))

    def identity(self) -> dict[str, Any]:
        """What decides this layer's numbers."""
        mixer: type[Mixer] = self.entry.cls
        return {
            "mixer": self.entry.name,
            "version": mixer.version,
            "settings": self.settings.identity(exclude_unset=mixer.opaque),
            "kernel": _kernel_versions(mixer.families),
            "source": self.entry.digest,
        }


@dataclass(frozen=True)
class ModelSpec:
    """A whole model. `label` is the pattern as the user wrote it, tidied; the identity is in the layers."""

    label: str
    form: Form
    backbone: BackboneSettings
    layers: tuple[LayerSpec, ...]

    def identity(self) -> dict[str, Any]:
        """What decides this model's numbers."""
        backbone = {
            "version": backbones.VERSION,
            "settings": self.backbone.model_dump(mode="json", exclude_none=True),
            "kernel": _kernel_versions(backbones.families(self.backbone)),
        }
        return {"form": self.form, "backbone": backbone, "layers": [layer.identity() for layer in self.layers]}

    def build(self, task: Task, *, seed: int) -> Backbone:
        """The model with its weights for that seed, whatever generator its layers draw with; all are given back as they were."""
        with generators.kept():
            generators.seed_all(stable_key("model", seed))
            return Backbone(self.backbone, [Layer(layer.entry.cls, layer.settings) for layer in self.layers], task.io, seed=seed)

    def sketch(self, task: Task) -> Backbone:
        """The model without memory: what it is, not what it computes."""
        with torch.device("meta"), _Undrawn():
            return self.build(task, seed=0)

    def rehearse(self, task: Task) -> None:
        """Sketch the model, so that settings which no model can have are refused before anything runs.

        A constructor that is not shipped may end the process that it runs in, and is left to the process that trains it. Raises UserError.
        """
        if any(layer.entry.source != SHIPPED for layer in self.layers):
            return
        try:
            self.sketch(task)
        except UserError:
            raise
        except Exception:  # a constructor that cannot work without memory is not thereby wrong
            pass


@dataclass(frozen=True)
class Cell:
    """What is run, and what its result is filed under. Neither `preset`, the task's preset that these settings are, if any, nor `purpose`
    is part of that.

    A cell with `segments` trains on a mixture of them, one with `tests` is judged by these; else by the task itself. All are the task with other
    settings, with the same inputs and outputs.
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
        return _cell, (self.task_entry, *tasks, self.model, self.protocol, self.seed, self.device, self.preset, self.purpose)

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
        return Curriculum.of(self.segments, size) if self.segments else Curriculum((1,), (size * self.task.seq_len,))

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
        train = [{"settings": segment.task.settings.model_dump(mode="json"), "examples": segment.examples} for segment in self.segments]
        test = [{"settings": test.settings.model_dump(mode="json")} for test in self.tests]
        return {name: values for name, values in (("train", train), ("test", test)) if values}

    @cached_property
    def id(self) -> str:
        """SHA-256 of the identity in canonical form."""
        return digest(self.identity)


class _Undrawn(TorchFunctionMode):
    """Initial values are not drawn: without memory nothing comes of it, and torch would load its compiler for it, which takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


_DRAWS = {
    "normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "bernoulli_", "exponential_",
    "log_normal_", "random_",
}  # fmt: skip


def _layer(entry: Entry, settings: dict[str, Any]) -> LayerSpec:
    """Validated once: to read what a module from elsewhere was given as YAML again would change what looks like a number."""
    made = entry.cls.Settings
    return LayerSpec(entry, made.model_construct(**settings) if entry.cls.opaque else made.model_validate(settings))


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
    return Cell(task(settings), entry, model, protocol, seed, device, mixture, tuple(task(values) for values in tests), *rest)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def device_class(device: str) -> str:
    """`cpu`, or the GPU's name: what results may differ by."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _kernel_versions(families: tuple[str, ...]) -> dict[str, int]:
    return {family: version for family in families if (version := importlib.import_module(f"linbench.kernels.{family}").VERSION)}
