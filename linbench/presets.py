"""Which preset of its task something is, by what it has of the task, the protocol and models."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from linbench.protocol import Protocol, default_protocol
from linbench.registry import registry
from linbench.tasks.base import Task

USUALLY_GIVEN = ("lr", "form")
"""What a name stands beside: the form is said of every comparison, and learning rates are searched for."""


def preset_of(cells: Sequence[Mapping[str, Any]]) -> str | None:
    """The preset that cells of one task and protocol all are, by their identities, whatever is `USUALLY_GIVEN`, if any."""
    task, protocol = cells[0]["task"], cells[0]["protocol"]["settings"]
    entry = registry("task").entries.get(task["name"])
    if entry is None or entry.digest != task["source"] or task.keys() & {"train", "test"}:
        return None
    layers = [layer for cell in cells for layer in _layers(cell["model"])]
    found = presets_with(entry.cls, task["settings"], protocol, but=USUALLY_GIVEN)
    return next((name for name, asked in found if all(has(layer, asked) for layer in layers)), None)


def presets_with(
    task: type[Task], settings: Mapping[str, Any], protocol: Mapping[str, Any], *, but: Collection[str] = ()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The presets of a task that have these settings of it and of the protocol, as JSON values, each with what it asks of models. `but`: settings of protocol
    and model that may be others."""
    trained = _without(protocol, but)
    for name, preset in task.presets.items():
        asked = Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol").model_dump(mode="json")
        if task.Settings.parse(preset.task, where="task").model_dump(mode="json") == settings and _without(asked, but) == trained:
            yield name, _without({"form": "native", **preset.model}, but)


def has(layer: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a layer, with what is around it, is as a preset asks; it cannot differ in a setting that it lacks."""
    return all(layer.get(name, value) == value for name, value in asked.items())


def _layers(model: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of a stored model, each with what is around it; its own settings also after its mixer's name."""
    for layer in model["layers"]:
        own = {f"{prefix}{name}": value for name, value in layer["settings"].items() for prefix in ("", f"{layer['mixer']}.")}
        yield {"form": model["form"], **model["backbone"]["settings"], **own}


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
