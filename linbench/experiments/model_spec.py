"""The specification of a model: names and settings, its identity, and how it is built."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from linbench.common.errors import UserError
from linbench.common.hashing import digest, stable_key
from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.experiments import generators
from linbench.experiments.registry import Entry
from linbench.models import backbone as backbones
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import Mixer
from linbench.tasks.base import Task

Form = Literal["native", "controlled"]
FORMS = ("native", "controlled")


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a model: a mixer and its settings."""

    entry: Entry
    settings: Settings

    def __reduce__(self) -> Any:
        """Pickle settings as values, since their class may be a plugin's."""
        return _layer, (self.entry, self.settings.model_dump(exclude_unset=True))

    def identity(self) -> dict[str, Any]:
        """Return all that decides this layer's numbers, as plain JSON values."""
        mixer: type[Mixer] = self.entry.cls
        return {
            "mixer": self.entry.name,
            "version": mixer.version,
            "settings": self.settings.identity(exclude_unset=mixer.is_plain_module),
            "kernel": _kernel_versions(mixer.kernel_families),
            "source": self.entry.digest,
        }


@dataclass(frozen=True)
class ModelSpec:
    """A whole model.

    `label` is the pattern as the user wrote it, without extra spaces. It is not part of the identity.
    """

    label: str
    form: Form
    backbone: BackboneSettings
    layers: tuple[LayerSpec, ...]

    @property
    def depth(self) -> int:
        """The number of layers that a token passes, each as often as it is run."""
        return self.backbone.loops * len(self.layers)

    def identity(self) -> dict[str, Any]:
        """Return all that decides this model's numbers, as plain JSON values."""
        return dict(self._identity)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        settings = self.backbone.identity()
        families = backbones.kernel_families(self.backbone, (layer.entry.cls for layer in self.layers))
        backbone = {
            "version": backbones.VERSION,
            "settings": {name: value for name, value in settings.items() if value is not None},
            "kernel": _kernel_versions(families),
        }
        return {
            "form": self.form,
            "backbone": backbone,
            "layers": [layer.identity() for layer in self.layers],
        }

    def build(self, task: Task, *, seed: int) -> Backbone:
        """Build the model for a task with the initial weights of a seed, and restore global generators."""
        return self.build_for(task.io, seed=seed)

    def build_for(self, io: IO, *, seed: int) -> Backbone:
        """Build the model for inputs and outputs of some sizes, otherwise as `build` does."""
        with generators.preserve():
            generators.seed_all(stable_key("model", seed))
            return Backbone(
                self.backbone,
                [Layer(layer.entry.cls, layer.settings) for layer in self.layers],
                io,
                seed=seed,
            )

    def sketch(self, task: Task) -> Backbone:
        """Build the model on the meta device, without memory or initial weights, to read its sizes."""
        with torch.device("meta"), _Undrawn():
            return self.build(task, seed=0)

    def sketch_or_build(self, task: Task) -> Backbone:
        """Sketch the model; build it where a constructor from elsewhere needs memory or initial values."""
        try:
            return self.sketch(task)
        except UserError:
            raise
        except Exception:
            return self.build(task, seed=0)

    def rehearse(self, task: Task) -> None:
        """Sketch the model, so that impossible settings are refused before anything runs.

        A constructor from outside linbench is not called, since it may end the process; the process that
        trains the model finds out.

        Raises UserError: a model cannot have these settings.
        """
        if any(not layer.entry.shipped for layer in self.layers):
            return
        key = digest({"model": self.identity(), "io": task.io._asdict()})
        if key in _REHEARSED:
            return
        try:
            self.sketch(task)
        except UserError:
            raise
        except Exception:  # a constructor may fail on the meta device and still be right
            pass
        _REHEARSED.add(key)


_REHEARSED: set[str] = set()
"""Models and sizes that were rehearsed: cells of a suite often differ in training alone."""


class _Undrawn(TorchFunctionMode):
    """A mode in which initial values are not drawn.

    On the meta device torch would load its compiler to draw them, which takes seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


_DRAWS = {
    "normal_",
    "uniform_",
    "trunc_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "bernoulli_",
    "exponential_",
    "log_normal_",
    "random_",
}


def _layer(entry: Entry, settings: dict[str, Any]) -> LayerSpec:
    """Return the specification of a layer.

    Settings of a module from elsewhere are not read again: text that looks like a number would become one.
    """
    cls = entry.cls.Settings
    if entry.cls.is_plain_module:
        return LayerSpec(entry, cls.model_construct(**settings))
    return LayerSpec(entry, cls.model_validate(settings))


def _kernel_versions(families: tuple[str, ...]) -> dict[str, int]:
    versions = {family: import_module(f"linbench.kernels.{family}").VERSION for family in families}
    return {family: version for family, version in versions.items() if version}
