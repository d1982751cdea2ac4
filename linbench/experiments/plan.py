"""From the names and settings that a user gives to cells."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linbench.common.errors import UserError, unknown
from linbench.experiments.cell import Cell
from linbench.experiments.device import pick_device
from linbench.experiments.model_spec import FORMS, Form, ModelSpec
from linbench.experiments.plan_models import _refuse_narrow, _refuse_unused, _sized
from linbench.experiments.plan_tasks import _by_room, _segments, _tests, make_task
from linbench.experiments.presets import preset_with, within
from linbench.experiments.protocol import Protocol, default_protocol, published
from linbench.tasks.base import Task


def plan(
    task: str,
    models: Sequence[str],
    *,
    preset: str | None = None,
    form: str | None = None,
    protocol: str | None = None,
    seeds: Iterable[int] = (0,),
    settings: Mapping[str, Any] | None = None,
    own: Sequence[Mapping[str, Any]] | None = None,
    train: Sequence[Mapping[str, Any]] = (),
    test: Sequence[Mapping[str, Any]] = (),
    test_lengths: Sequence[int] = (),
    device: str = "auto",
) -> list[Cell]:
    """The cells of a run: one per model and seed.

    `settings` holds dotted names: `task.NAME`, `protocol.NAME`, `model.NAME` for the backbone or any mixer
    that has it, and `model.MIXER.NAME` for one mixer; `model.state_floats` sizes every model whose state does
    not grow with the length, and `model.parameters` every model. `own` holds more of them for each model
    alone, of its protocol and itself. `protocol` is the name of a published one. What the user sets overrides
    it, it overrides the preset, which overrides the defaults.

    `train` makes a mixture of segments: each has settings of the task by their bare names, over those that it
    has, and how many `examples`; their sum is the protocol's. `test` has such settings for every test, of as
    many examples as the protocol says for each; `test_lengths` adds a test for each of these multiples of the
    task's length.

    Raises UserError: a name or value that is not allowed, in one sentence.
    """
    if not models:
        raise UserError("name at least one model with --model; `linbench list models` has them.")
    built, task_entry, chosen = make_task(task, preset=preset, settings=settings)
    given, *alone = (_by_room(more, type(built)) for more in (settings or {}, *(own or [{}] * len(models))))
    if any(more["task"] for more in alone):
        raise UserError(
            "a model cannot have task settings of its own: then it would be another task; give them to the"
            " task."
        )
    segments, tests = _segments(built, train), _tests(built, test, test_lengths)
    base = {**default_protocol(), **chosen.protocol, **published(protocol), **given["protocol"]}
    size: dict[str, int] = {}
    if segments:
        _refuse_two_sizes([given, *alone])
        size["examples"] = sum(segment.examples or 0 for segment in segments)
    protocols = [Protocol.parse({**base, **more["protocol"], **size}, where="protocol") for more in alone]
    if segments and any(its.epochs is None for its in protocols):
        raise UserError(
            "train is gone through in epochs, and a token budget does not say how many; give protocol.epochs."
        )
    wanted_form: Form = form or chosen.model.get("form", "native")  # type: ignore[assignment]
    if wanted_form not in FORMS:
        raise unknown("form", wanted_form, FORMS)
    from_preset = {name: value for name, value in chosen.model.items() if name != "form"}
    specs = [
        _sized(text, wanted_form, from_preset, {**given["model"], **more["model"]}, built)
        for text, more in zip(models, alone, strict=True)
    ]
    _refuse_unused(given["model"], specs)
    for spec, more in zip(specs, alone, strict=True):
        _refuse_unused(more["model"], [spec])
    for spec in specs:
        _refuse_narrow(built.io, spec)
        spec.rehearse(built)
    where, numbers = pick_device(device), [int(seed) for seed in seeds]
    names = [
        None if segments or tests else _matching_preset(built, spec, its)
        for spec, its in zip(specs, protocols, strict=True)
    ]
    each = list(zip(specs, protocols, names, strict=True))
    return [
        Cell(built, task_entry, spec, its, seed, where, segments, tests, name)
        for spec, its, name in each
        for seed in numbers
    ]


def _refuse_two_sizes(rooms: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    if any(room["protocol"].get("examples") not in (None, "null") for room in rooms):
        raise UserError(
            "protocol.examples and train both say how many examples are trained on; give one of the two."
        )


def _matching_preset(task: Task, spec: ModelSpec, protocol: Protocol) -> str | None:
    """The preset that task, model and protocol still are, if any."""
    backbone, layers = (
        spec.backbone.model_dump(),
        [layer for layer in spec.layers if not layer.entry.cls.opaque],
    )
    found = [within(spec.form, backbone, layer.entry.name, layer.settings.model_dump()) for layer in layers]
    return preset_with(
        type(task), task.settings.model_dump(mode="json"), protocol.model_dump(mode="json"), found
    )
