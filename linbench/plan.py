"""From the names and settings that a user gives to cells."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from linbench.cell import FORMS, Cell, Form, LayerSpec, ModelSpec
from linbench.common.errors import PluginError, UserError, unknown
from linbench.common.io import IO
from linbench.common.numbers import whole
from linbench.common.quotes import unquoted
from linbench.common.settings import Settings
from linbench.curriculum import Segment
from linbench.device import pick_device
from linbench.loading import theirs
from linbench.models.backbone import BackboneSettings
from linbench.models.base import Mixer
from linbench.pattern import Term, parse_pattern, split_task, tidy
from linbench.presets import preset_with, within
from linbench.protocol import Protocol, default_protocol, published
from linbench.registry import SHIPPED, Entry, registry
from linbench.sizes import sensible, sized, widened
from linbench.tasks.base import Preset, Task
from linbench.tasks.random import MOST_IDS

STATE_FLOATS = "state_floats"
"""Stands among a model's settings for the head dimension with so many floats of state, in all, at the length of the task."""

PARAMETERS = "parameters"
"""Stands among a model's settings for the width of the channel mixer with so many parameters in all."""


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

    `settings` holds dotted names: `task.NAME`, `protocol.NAME`, `model.NAME` for the backbone or any mixer that has it, and
    `model.MIXER.NAME` for one mixer; `model.state_floats` sizes every model whose state does not grow with the length, and `model.parameters`
    every model. `own` holds more of them for each model alone, of its protocol and itself. `protocol` is the name of a published one. What the
    user sets overrides it, it overrides the preset, which overrides the defaults.

    `train` makes a mixture of segments: each has settings of the task by their bare names, over those that it has, and how many `examples`; their
    sum is the protocol's. `test` has such settings for every test, of as many examples as the protocol says for each; `test_lengths` adds a test
    for each of these multiples of the task's length.

    Raises UserError: a name or value that is not allowed, in one sentence.
    """
    if not models:
        raise UserError("name at least one model with --model; `linbench list models` has them.")
    built, task_entry, chosen = make_task(task, preset=preset, settings=settings)
    given, *alone = (_by_room(more, type(built)) for more in (settings or {}, *(own or [{}] * len(models))))
    if any(more["task"] for more in alone):
        raise UserError("a model cannot have task settings of its own: then it would be another task; give them to the task.")
    segments, tests = _segments(built, train), _tests(built, test, test_lengths)
    base = {**default_protocol(), **chosen.protocol, **published(protocol), **given["protocol"]}
    size: dict[str, int] = {}
    if segments:
        _refuse_two_sizes([given, *alone])
        size["examples"] = sum(segment.examples or 0 for segment in segments)
    protocols = [Protocol.parse({**base, **more["protocol"], **size}, where="protocol") for more in alone]
    if segments and any(its.epochs is None for its in protocols):
        raise UserError("train is gone through in epochs, and a token budget does not say how many; give protocol.epochs.")
    wanted_form: Form = form or chosen.model.get("form", "native")  # type: ignore[assignment]
    if wanted_form not in FORMS:
        raise unknown("form", wanted_form, FORMS)
    from_preset = {name: value for name, value in chosen.model.items() if name != "form"}
    specs = [_sized(text, wanted_form, from_preset, {**given["model"], **more["model"]}, built) for text, more in zip(models, alone, strict=True)]
    _refuse_unused(given["model"], specs)
    for spec, more in zip(specs, alone, strict=True):
        _refuse_unused(more["model"], [spec])
    for spec in specs:
        _refuse_narrow(built.io, spec)
        spec.rehearse(built)
    where, numbers = pick_device(device), [int(seed) for seed in seeds]
    names = [None if segments or tests else _matching_preset(built, spec, its) for spec, its in zip(specs, protocols, strict=True)]
    each = list(zip(specs, protocols, names, strict=True))
    return [Cell(built, task_entry, spec, its, seed, where, segments, tests, name) for spec, its, name in each for seed in numbers]


def make_task(task: str, *, preset: str | None, settings: Mapping[str, Any] | None = None) -> tuple[Task, Entry, Preset]:
    """A task by name, alone or as TASK/PRESET, with its entry and the preset it was made from; only `task.NAME` of the settings matter here.

    Raises UserError: as `plan`.
    """
    name, its = split_task(task)
    if None not in (its, preset) and its != preset:
        raise UserError(f"'{task}' and --preset {preset} name two presets; give one of the two.")
    entry = registry("task").find(name)
    cls: type[Task] = entry.cls
    chosen = _preset(cls, name, preset or its)
    try:
        return _sensible(cls, {**chosen.task, **_by_room(settings or {}, cls)["task"]}, where="task"), entry, chosen
    except UserError:
        raise
    except Exception as error:
        if entry.source == SHIPPED:
            raise
        raise PluginError(f"task {task} cannot be used: {theirs(error)}.") from error


MOST_TOKENS = 1 << 18
"""Of a sequence: sixteen times the longest that is shipped. Draws of slots are exact in 64 bits up to there, and chance is worked out in seconds."""


def _sensible(cls: type[Task], values: Mapping[str, Any], *, where: str) -> Task:
    """The task with these settings. Raises UserError: one that is not allowed, longer sequences or more ids than can be drawn, or but one thing to answer."""
    settings = cls.Settings.parse(values, where=where)
    for name, value in settings:
        if isinstance(value, int) and value > MOST_IDS and not name.endswith("seed"):
            raise UserError(f"{where}.{name} = {value}: it may be {MOST_IDS:,} at most.")
    task = cls(settings)
    if task.seq_len > MOST_TOKENS:
        raise UserError(f"with these settings a sequence of {task.name} has {task.seq_len:,} tokens; it may have {MOST_TOKENS:,} at most.")
    if (ids := max(task.io.vocab_in or 0, task.io.vocab_out or 0)) > MOST_IDS:
        raise UserError(f"with these settings {task.name} has {ids:,} different tokens; it may have {MOST_IDS:,} at most.")
    if _chance(type(task), task.settings) >= 1:
        raise UserError(f"with these settings {task.name} has but one answer to choose from, so that a guess is always right; let there be more.")
    return task


@cache
def _chance(task: type[Task], settings: Settings) -> float:
    """Once for all the cells of a grid: of long sequences it takes some tenths of a second."""
    return task(settings).chance()


def _segments(task: Task, train: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Of a mixture."""
    found = []
    for i, values in enumerate(train):
        examples = values.get("examples")
        if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
            given = "says nothing of examples" if examples is None else f"has examples {examples}"
            raise UserError(f"train.{i} {given}; it needs how many there are, a whole number of at least 1.")
        found.append(Segment(_varied(task, {name: value for name, value in values.items() if name != "examples"}, where=f"train.{i}"), examples))
    return tuple(found)


def _tests(task: Task, test: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> tuple[Task, ...]:
    longer = (_varied(task, {} if times == 1 else task.longer(times), where=f"test length {times}x") for times in lengths)
    return *(_varied(task, values, where=f"test.{i}") for i, values in enumerate(test)), *longer


def _varied(task: Task, values: Mapping[str, Any], *, where: str) -> Task:
    """The task with some settings changed."""
    changed = _sensible(type(task), {**task.settings.model_dump(exclude_unset=True), **values}, where=where)
    if changed.io != task.io:
        raise UserError(f"{where} has {_words(changed.io)} where the task has {_words(task.io)}; one model must be able to read and answer both.")
    return changed


def _words(io: IO) -> str:
    return ", ".join(f"{name} {value}" for name, value in io._asdict().items() if value not in (None, "place"))


def _refuse_two_sizes(rooms: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    if any(room["protocol"].get("examples") not in (None, "null") for room in rooms):
        raise UserError("protocol.examples and train both say how many examples are trained on; give one of the two.")


def _by_room(settings: Mapping[str, Any], task: type[Task]) -> dict[str, dict[str, Any]]:
    rooms: dict[str, dict[str, Any]] = {"protocol": {}, "model": {}, "task": {}}
    for name, value in settings.items():
        room, _, rest = name.partition(".")
        if room not in rooms or not rest:
            of_models = [BackboneSettings, *(entry.cls.Settings for entry in registry("model").entries.values())]
            fields = {
                "protocol": [*Protocol.model_fields],
                "model": [field for each in of_models for field in each.model_fields],
                "task": [*task.Settings.model_fields],
            }
            bare = {field: f"{room}.{field}" for room in rooms for field in fields[room]}
            raise unknown("setting", name, [f"{room}.NAME" for room in rooms], short=bare)
        rooms[room][rest] = value
    return rooms


def _preset(cls: type[Task], task: str, preset: str | None) -> Preset:
    if preset is None:
        return next(iter(cls.presets.values()), Preset("defaults"))
    if preset not in cls.presets:
        raise unknown(f"preset of {task}", preset, cls.presets)
    return cls.presets[preset]


def _matching_preset(task: Task, spec: ModelSpec, protocol: Protocol) -> str | None:
    """The preset that task, model and protocol still are, if any."""
    backbone, layers = spec.backbone.model_dump(), [layer for layer in spec.layers if not layer.entry.cls.opaque]
    found = [within(spec.form, backbone, layer.entry.name, layer.settings.model_dump()) for layer in layers]
    return preset_with(type(task), task.settings.model_dump(mode="json"), protocol.model_dump(mode="json"), found)


def _sized(text: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any], task: Task) -> ModelSpec:
    """One model of a run; with `state_floats` given, in the head dimension that has these, and with `parameters`, with a channel mixer as wide as it takes."""
    settings = {name: value for name, value in given.items() if name not in _CHOSEN_BY}
    sizes = {name: _count(name, given[name]) for name in _CHOSEN_BY if name in given}
    for name in sizes:
        if _CHOSEN_BY[name] in settings:
            raise UserError(f"model.{name} chooses model.{_CHOSEN_BY[name]}; give one of the two.")

    def make(**chosen: int) -> ModelSpec:
        return _model(text, form, from_preset, {**settings, **chosen})

    if STATE_FLOATS in sizes:
        if not has_heads(text):
            raise UserError(f"{text} has no heads to be sized by model.{STATE_FLOATS}; run it without that setting.")
        if (head_dim := sized(lambda head_dim: make(head_dim=head_dim), task, sizes[STATE_FLOATS])) is not None:
            settings["head_dim"] = head_dim
    if PARAMETERS in sizes:
        settings["channel_width"] = widened(lambda width: make(channel_width=width), task, sizes[PARAMETERS])
    return make()


_CHOSEN_BY = {STATE_FLOATS: "head_dim", PARAMETERS: "channel_width"}
"""Sizes that can be asked for, each with the setting that meets it."""


def _count(name: str, value: Any) -> int:
    if (count := whole(value, 1)) is None:
        raise UserError(f"model.{name} = {value}: a whole number of at least 1 would do.")
    return count


def has_heads(pattern: str) -> bool:
    """Whether a layer of the pattern has heads of a dimension of their own, by which `model.state_floats` can size it."""
    mixers = [registry("model").find(term.name).cls for term in parse_pattern(pattern)]
    return any({"heads", "head_dim"} <= mixer.Settings.model_fields.keys() or _open_ended(mixer) for mixer in mixers)


def _open_ended(mixer: type[Mixer]) -> bool:
    """Whether it takes settings that it does not name."""
    return mixer.Settings.model_config.get("extra") == "allow"


def _model(text: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any]) -> ModelSpec:
    """One model of a run: the backbone's settings by their names, all others to the mixers that have them."""
    pattern = parse_pattern(text)
    of_backbone = BackboneSettings.model_fields
    backbone = BackboneSettings.parse({k: v for k, v in {**from_preset, **given}.items() if k in of_backbone}, where="model")
    if form == "controlled" and backbone.channel_mixer == "own":
        raise UserError("the controlled form has one channel mixer for all models; model.channel_mixer = own is for --form native.")
    period = len(pattern)
    count = backbone.layers if "layers" in given else max(period, backbone.layers)
    if count % period:
        raise UserError(f"model.layers = {count} does not hold the {period} layers of '{text}' a whole number of times; {period}, {2 * period}, ... would do.")
    layers = []
    for term in pattern * (count // period):
        entry = registry("model").find(term.name)
        mixer: type[Mixer] = entry.cls
        if form == "controlled" and mixer.controlled is None:
            raise UserError(f"{term.name} has no controlled form: it does not declare what surrounds its recurrence; run it with --form native.")
        values: dict[str, Any] = dict(mixer.controlled or {}) if form == "controlled" else {}
        for source in (given,) if mixer.opaque else (from_preset, given):
            values |= {k: v for k, v in source.items() if k in mixer.Settings.model_fields or (_open_ended(mixer) and k not in of_backbone and "." not in k)}
            for name in (term.name, entry.name):
                values |= {k.removeprefix(f"{name}."): v for k, v in source.items() if k.startswith(f"{name}.")}
        layers.append(LayerSpec(entry, sensible(mixer, mixer.Settings.parse(values | _beside(term, mixer), where="model"))))
    return ModelSpec(tidy(text), form, backbone.model_copy(update={"layers": count}), tuple(layers))


def _beside(term: Term, mixer: type[Mixer]) -> dict[str, str]:
    """Settings that stand beside a name; a module from elsewhere makes something of their quotes itself."""
    return {name: value if mixer.opaque else unquoted(value) for name, value in term.settings}


def _refuse_narrow(io: IO, spec: ModelSpec) -> None:
    """Vectors that differ in more directions than the model has are not learned by any memory, and that would be told of its memory."""
    if io.d_out is not None and io.d_out > (width := spec.backbone.d_model):
        raise UserError(f"vectors of {io.d_out} numbers do not come out of {spec.label} with model.d_model = {width}; let it be {io.d_out} or more.")


def _refuse_unused(given: Mapping[str, Any], specs: Sequence[ModelSpec]) -> None:
    """A setting that no model of the run has is a mistake."""
    layers = [layer for spec in specs for layer in spec.layers]
    known = set(BackboneSettings.model_fields)
    for layer in layers:
        known |= set(layer.settings.model_fields_set) | set(type(layer.settings).model_fields)
        known |= {f"{prefix}{layer.entry.name}.{name}" for name in type(layer.settings).model_fields for prefix in ("", "./")}
    for name in given:
        if name not in known and name not in _CHOSEN_BY:
            raise unknown("setting", f"model.{name}", (f"model.{n}" for n in known if "." not in n or "." in name))
