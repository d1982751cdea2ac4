"""Finding the preset that settings of a task, a protocol and models equal."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from linbench.common.settings import without
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.experiments.registry import registry
from linbench.tasks.base import Task

USUALLY_GIVEN = ("lr", "form")
"""Settings that a preset's name need not cover: forms are shown beside it, and rates are searched for."""


def preset_of(cells: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the preset that all these cells equal apart from `USUALLY_GIVEN`, or None.

    Args:
        cells: the identities of cells of one task and protocol.
    """
    task, protocol = cells[0]["task"], cells[0]["protocol"]["settings"]
    entry = registry("task").entries.get(task["name"])
    if entry is None or entry.digest != task["source"] or task.keys() & {"train", "test"}:
        return None
    layers = []
    for model in (cell["model"] for cell in cells):
        backbone = model["backbone"]["settings"]
        for layer in model["layers"]:
            layers.append(layer_settings(model["form"], backbone, layer["mixer"], layer["settings"]))
    return matching_preset(entry.cls, task["settings"], protocol, layers, but=USUALLY_GIVEN)


def layer_settings(
    form: str, backbone: Mapping[str, Any], mixer: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all settings of a layer that a preset may constrain.

    These are the form, the backbone's settings, and the mixer's settings as NAME and as MIXER.NAME.
    """
    qualified = {f"{mixer}.{name}": value for name, value in settings.items()}
    return {**backbone, "form": form, **settings, **qualified}


def matching_preset(
    task: type[Task],
    settings: Mapping[str, Any],
    protocol: Mapping[str, Any],
    layers: Sequence[Mapping[str, Any]],
    *,
    but: Collection[str] = (),
) -> str | None:
    """Return the first preset of a task that all settings equal, or None.

    Args:
        task: the task.
        settings: the task's settings, as an identity has them.
        protocol: the protocol's settings, as JSON values.
        layers: the settings of each layer, as `layer_settings` returns them. A setting that a layer lacks is
            no difference.
        but: settings of protocol and model that may differ.
    """
    for name, preset in task.presets.items():
        of_task = task.Settings.parse(preset.task, where="task")
        of_protocol = Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol")
        of_model = without({"form": "native", **preset.model}, but)
        if (
            of_task.identity() == settings
            and without(of_protocol.identity(), but) == without(protocol, but)
            and all(_agrees(layer, of_model) for layer in layers)
        ):
            return name
    return None


def _agrees(layer: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(layer.get(setting, value) == value for setting, value in wanted.items())
