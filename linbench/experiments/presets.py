"""Which preset of its task something is, by what it has of the task, the protocol and models."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from linbench.experiments.protocol import Protocol, default_protocol
from linbench.experiments.registry import registry
from linbench.tasks.base import Task

USUALLY_GIVEN = ("lr", "form")
"""What a name stands beside: the form is said of every comparison, and learning rates are searched for."""


def preset_of(cells: Sequence[Mapping[str, Any]]) -> str | None:
    """The preset that cells of one task and protocol all are, by their identities, whatever is
    `USUALLY_GIVEN`, if any."""
    task, protocol = cells[0]["task"], cells[0]["protocol"]["settings"]
    entry = registry("task").entries.get(task["name"])
    if entry is None or entry.digest != task["source"] or task.keys() & {"train", "test"}:
        return None
    models = [cell["model"] for cell in cells]
    layers = [
        within(model["form"], model["backbone"]["settings"], layer["mixer"], layer["settings"])
        for model in models
        for layer in model["layers"]
    ]
    return preset_with(entry.cls, task["settings"], protocol, layers, but=USUALLY_GIVEN)


def within(form: str, backbone: Mapping[str, Any], mixer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that a preset may ask of a layer: the form, what is around it, and its own settings, also after its
    mixer's name."""
    return {
        **backbone,
        "form": form,
        **{f"{prefix}{name}": value for name, value in settings.items() for prefix in ("", f"{mixer}.")},
    }


def preset_with(
    task: type[Task],
    settings: Mapping[str, Any],
    protocol: Mapping[str, Any],
    layers: Sequence[Mapping[str, Any]],
    *,
    but: Collection[str] = (),
) -> str | None:
    """The first preset of a task with these settings of it and of the protocol, as JSON values, that asks
    nothing else of any of the layers (`within`); these cannot differ in a setting that they lack. `but`:
    settings of protocol and model that may be others."""
    trained = _without(protocol, but)
    for name, preset in task.presets.items():
        asked = Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol").model_dump(
            mode="json"
        )
        if (
            task.Settings.parse(preset.task, where="task").model_dump(mode="json") == settings
            and _without(asked, but) == trained
        ):
            wanted = _without({"form": "native", **preset.model}, but)
            if all(
                layer.get(setting, value) == value for layer in layers for setting, value in wanted.items()
            ):
                return name
    return None


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
