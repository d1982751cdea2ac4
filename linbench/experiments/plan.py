"""Cells made from the names and settings that a user gives."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from linbench.common.errors import UserError, unknown
from linbench.experiments.cell import Cell
from linbench.experiments.curriculum import Segment
from linbench.experiments.device import pick_device
from linbench.experiments.model_spec import FORMS, Form, ModelSpec
from linbench.experiments.plan_models import make_model, refuse_narrow_model, refuse_unused_settings
from linbench.experiments.plan_tasks import make_segments, make_task, make_tests, settings_by_room
from linbench.experiments.presets import layer_settings, matching_preset
from linbench.experiments.protocol import Protocol, default_protocol, published
from linbench.experiments.run_spec import RunSpec
from linbench.tasks.base import Preset, Task

Rooms = Mapping[str, Mapping[str, Any]]


class _Settings(NamedTuple):
    """The settings of a run, sorted into `task`, `protocol` and `model`."""

    shared: Rooms
    of_models: Sequence[Rooms]

    @property
    def all(self) -> list[Rooms]:
        return [self.shared, *self.of_models]


def plan(run: RunSpec) -> list[Cell]:
    """Return the cells of a run: one for each model and seed, model by model.

    Raises UserError: a name or value that is not allowed.
    """
    if not run.models:
        raise UserError("no model given; name one with --model (see `linbench list models`).")
    task, entry, preset = make_task(run.task, preset=run.preset, settings=run.settings)
    settings = _sort_settings(run, type(task))
    segments = make_segments(task, run.train)
    tests = make_tests(task, run.test, run.test_lengths)
    protocols = _make_protocols(run, settings, preset, segments)
    models = _make_models(run, settings, preset, task)
    device = pick_device(run.device)
    cells = []
    for model, protocol in zip(models, protocols, strict=True):
        plain_task = not segments and not tests
        name = _matching_preset(task, model, protocol) if plain_task else None
        for seed in run.seeds:
            cells.append(Cell(task, entry, model, protocol, seed, device, segments, tests, name))
    return cells


def _sort_settings(run: RunSpec, task: type[Task]) -> _Settings:
    shared = settings_by_room(run.settings, task)
    of_models = [settings_by_room(own, task) for own in run.settings_of_each_model]
    if any(own["task"] for own in of_models):
        raise UserError(
            "a model cannot have task settings of its own: it would then run another task. Give them to the"
            " task."
        )
    return _Settings(shared, of_models)


def _make_protocols(
    run: RunSpec, settings: _Settings, preset: Preset, segments: Sequence[Segment]
) -> list[Protocol]:
    """Return the protocol of each model; a training mixture decides the number of examples."""
    size: dict[str, int] = {}
    if segments:
        _refuse_two_sizes(settings.all)
        size["examples"] = sum(segment.examples or 0 for segment in segments)
    shared = {
        **default_protocol(),
        **preset.protocol,
        **published(run.protocol),
        **settings.shared["protocol"],
    }
    protocols = [
        Protocol.parse({**shared, **own["protocol"], **size}, where="protocol") for own in settings.of_models
    ]
    if segments and any(protocol.epochs is None for protocol in protocols):
        raise UserError(
            "a training mixture (train) needs a number of epochs; a token budget does not give one. Set"
            " protocol.epochs."
        )
    return protocols


def _refuse_two_sizes(rooms: Sequence[Rooms]) -> None:
    if any(room["protocol"].get("examples") not in (None, "null") for room in rooms):
        raise UserError("protocol.examples and train both give the number of examples; keep one of the two.")


def _make_models(run: RunSpec, settings: _Settings, preset: Preset, task: Task) -> list[ModelSpec]:
    form = pick_form(run.form, preset)
    from_preset = {name: value for name, value in preset.model.items() if name != "form"}
    shared = settings.shared["model"]
    models = [
        make_model(pattern, form, from_preset, {**shared, **own["model"]}, task)
        for pattern, own in zip(run.models, settings.of_models, strict=True)
    ]
    refuse_unused_settings(shared, models)
    for model, own in zip(models, settings.of_models, strict=True):
        refuse_unused_settings(own["model"], [model])
    for model in models:
        refuse_narrow_model(task.io, model)
        model.rehearse(task)
    return models


def pick_form(form: str | None, preset: Preset) -> Form:
    """Return a form by its name; without one that of the preset, else native. Raises UserError: unknown."""
    chosen = form or preset.model.get("form", "native")
    if chosen not in FORMS:
        raise unknown("form", chosen, FORMS)
    return cast("Form", chosen)


def _matching_preset(task: Task, model: ModelSpec, protocol: Protocol) -> str | None:
    """Return the preset that task, model and protocol still equal, if there is one."""
    backbone = model.backbone.model_dump()
    layers = [
        layer_settings(model.form, backbone, layer.entry.name, layer.settings.model_dump())
        for layer in model.layers
        if not layer.entry.cls.is_plain_module
    ]
    settings = task.settings.identity()
    return matching_preset(type(task), settings, protocol.identity(), layers)
