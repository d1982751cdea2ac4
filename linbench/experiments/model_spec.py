"""A model as names and settings, its identity, and how it is built."""

import importlib
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from linbench.common.errors import UserError
from linbench.common.hashing import stable_key
from linbench.common.settings import Settings
from linbench.experiments import generators
from linbench.experiments.registry import SHIPPED, Entry
from linbench.models import backbone as backbones
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import Mixer
from linbench.tasks.base import Task

Form = Literal["native", "controlled"]
FORMS = ("native", "controlled")


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
        return {
            "form": self.form,
            "backbone": backbone,
            "layers": [layer.identity() for layer in self.layers],
        }

    def build(self, task: Task, *, seed: int) -> Backbone:
        """The model with its weights for that seed, whatever generator its layers draw with; all are given
        back as they were."""
        with generators.kept():
            generators.seed_all(stable_key("model", seed))
            return Backbone(
                self.backbone,
                [Layer(layer.entry.cls, layer.settings) for layer in self.layers],
                task.io,
                seed=seed,
            )

    def sketch(self, task: Task) -> Backbone:
        """The model without memory: what it is, not what it computes."""
        with torch.device("meta"), _Undrawn():
            return self.build(task, seed=0)

    def rehearse(self, task: Task) -> None:
        """Sketch the model, so that settings which no model can have are refused before anything runs.

        A constructor that is not shipped may end the process that it runs in, and is left to the process that
        trains it. Raises UserError.
        """
        if any(layer.entry.source != SHIPPED for layer in self.layers):
            return
        try:
            self.sketch(task)
        except UserError:
            raise
        except Exception:  # a constructor that cannot work without memory is not thereby wrong
            pass


class _Undrawn(TorchFunctionMode):
    """Initial values are not drawn: without memory nothing comes of it, and torch would load its compiler for
    it, which takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


_DRAWS = {
    "normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "bernoulli_", "exponential_",
    "log_normal_", "random_",
}  # fmt: skip


def _layer(entry: Entry, settings: dict[str, Any]) -> LayerSpec:
    """Validated once: to read what a module from elsewhere was given as YAML again would change what looks
    like a number."""
    made = entry.cls.Settings
    return LayerSpec(
        entry, made.model_construct(**settings) if entry.cls.opaque else made.model_validate(settings)
    )


def _kernel_versions(families: tuple[str, ...]) -> dict[str, int]:
    return {
        family: version
        for family in families
        if (version := importlib.import_module(f"linbench.kernels.{family}").VERSION)
    }
