"""Tied layers: one layer with one set of weights that stands in several places of a model."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from linbench.common.errors import UserError, unknown


def homes(tied: str, layers: Sequence[Any]) -> list[int]:
    """Return for each layer the index of the one whose weights it has: its own, unless it is tied.

    Args:
        tied: a model's name, whose layers share the weights of the first of them, or "none".
        layers: each with a class `mixer` and `settings`.

    Raises UserError: no layer is of the tied model, or its layers have different settings.
    """
    if tied == "none":
        return [*range(len(layers))]
    names = [str(getattr(layer.mixer, "name", layer.mixer.__name__)) for layer in layers]
    if tied not in names:
        raise unknown("value of model.tied", tied, {"none", *names})
    first = names.index(tied)
    alike = [layer.settings.model_dump() for layer, name in zip(layers, names, strict=True) if name == tied]
    if any(settings != alike[0] for settings in alike):
        raise UserError(f"model.tied = {tied}: its layers have different settings; give all the same.")
    return [first if name == tied else index for index, name in enumerate(names)]


def use_again(parts: dict[str, nn.Module], home: int, index: int) -> None:
    """Give a layer the parts of another.

    Args:
        parts: by the index of their layer, which may follow a letter.
        home: index of the layer that has the parts.
        index: index of the layer that gets them.
    """
    for name in [name for name in parts if name.lstrip("AC") == str(home)]:
        parts[name.removesuffix(str(home)) + str(index)] = parts[name]
