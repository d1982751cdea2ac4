"""The specification of a model, made from its name and settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from linbench.common.errors import UserError, unknown
from linbench.common.numbers import whole_number
from linbench.common.quotes import strip_quotes
from linbench.common.task_io import IO
from linbench.experiments.model_spec import Form, LayerSpec, ModelSpec
from linbench.experiments.pattern import Term, tidy
from linbench.experiments.registry import Entry, registry
from linbench.experiments.sizing import (
    StatePart,
    channel_width_for_parameters,
    check_layer_settings,
    head_dim_for_state,
)
from linbench.experiments.system import native_around, parse_layers, systems_in
from linbench.models.backbone import BackboneSettings
from linbench.models.base import Mixer
from linbench.tasks.base import Task

STATE_FLOATS = "state_floats"
"""The setting of a model that asks for a total number of state floats at the task's length.

It is met by choosing the head dimension.
"""

RECURRENT_FLOATS = "recurrent_floats"
"""The setting of a model that asks for the floats that its recurrences alone carry, without convolutions.

It is met by choosing the head dimension, too.
"""

PARAMETERS = "parameters"
"""The setting of a model that asks for a total number of parameters.

It is met by choosing the width of the channel mixer.
"""

_STATES: dict[str, StatePart] = {STATE_FLOATS: "total", RECURRENT_FLOATS: "recurrent"}
"""The sizes of a state that can be asked for, each with the part of a `StateSize` that it counts."""

_CHOOSES = {**dict.fromkeys(_STATES, "head_dim"), PARAMETERS: "channel_width"}
"""The sizes that can be asked for, each with the setting that is chosen to meet it."""


def make_model(
    pattern: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any], task: Task
) -> ModelSpec:
    """Return the specification of one model of a run.

    Args:
        pattern: the layer pattern.
        form: native or controlled.
        from_preset: model settings of the task's preset.
        given: model settings of the user, which override the preset's; `state_floats` or `recurrent_floats`
            chooses a head dimension, and `parameters` a channel mixer's width.
        task: the task the sizes are counted for.

    Raises UserError: a setting that is not allowed, or a size that no model has.
    """
    settings = {name: value for name, value in given.items() if name not in _CHOOSES}
    sizes = {name: _parse_size(name, given[name]) for name in _CHOOSES if name in given}
    for name in sizes:
        if _CHOOSES[name] in settings:
            raise UserError(f"model.{name} chooses model.{_CHOOSES[name]} for you; give one of the two.")

    def make(**chosen: int) -> ModelSpec:
        return _specify(pattern, form, from_preset, {**settings, **chosen})

    asked = [name for name in _STATES if name in sizes]
    if len(asked) > 1:
        raise UserError(
            f"model.{asked[0]} and model.{asked[1]} both choose model.head_dim; give one of the two."
        )
    for name in asked:
        if not has_heads(pattern):
            raise UserError(
                f"{pattern} has no heads, so model.{name} cannot choose its size; run it without that"
                " setting."
            )
        head_dim = head_dim_for_state(
            lambda head_dim: make(head_dim=head_dim), task, sizes[name], setting=name, part=_STATES[name]
        )
        if head_dim is not None:
            settings["head_dim"] = head_dim
    if PARAMETERS in sizes:
        settings["channel_width"] = channel_width_for_parameters(
            lambda width: make(channel_width=width), task, sizes[PARAMETERS]
        )
    return make()


def _parse_size(name: str, value: Any) -> int:
    count = whole_number(value, 1)
    if count is None:
        raise UserError(f"model.{name} must be a whole number of at least 1, not '{value}'.")
    return count


def sized_by_state(*rooms: Collection[str]) -> str | None:
    """Return the name of the size of a state that settings by dotted names ask for; None if there is none."""
    return next((name for name in _STATES if any(f"model.{name}" in settings for settings in rooms)), None)


def has_heads(pattern: str) -> bool:
    """Return whether a layer of the pattern has heads with a dimension, for the size of a state to choose."""
    mixers = [registry("model").find(term.name).cls for term in parse_layers(pattern)]
    return any(
        {"heads", "head_dim"} <= mixer.Settings.model_fields.keys() or _takes_any_setting(mixer)
        for mixer in mixers
    )


def has_setting(pattern: str, name: str) -> bool:
    """Return whether a model has a setting: its backbone, or a mixer of the pattern.

    With the name of a mixer before it, such as `rwkv7.heads`, that mixer must have it.
    """
    if name in BackboneSettings.model_fields or name in _CHOOSES:
        return True
    of, _, own = name.rpartition(".")
    entries = [registry("model").find(term.name) for term in parse_layers(pattern)]
    named = [entry for entry in entries if of in ("", entry.name, f"./{entry.name}")]
    return any(_has_setting(entry.cls, own) for entry in named)


def _takes_any_setting(mixer: type[Mixer]) -> bool:
    return mixer.Settings.model_config.get("extra") == "allow"


def _specify(pattern: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any]) -> ModelSpec:
    """Return the specification: the backbone takes settings by their names, the mixers all others."""
    terms = parse_layers(pattern)
    fields = BackboneSettings.model_fields
    around = native_around(pattern, given) if form == "native" else {}
    backbone = BackboneSettings.parse(
        {name: value for name, value in {**from_preset, **around, **given}.items() if name in fields},
        where="model",
    )
    if form == "controlled" and backbone.channel_mixer == "own":
        raise UserError(
            "model.channel_mixer = own needs --form native: in the controlled form all models have the same"
            " channel mixer."
        )
    count = backbone.layers if "layers" in given else max(len(terms), backbone.layers)
    if systems_in(pattern):
        count += -count % len(terms)  # a system is whole, whatever a suite's models have
    if count % len(terms):
        raise UserError(
            f"model.layers = {count} is not a multiple of the {len(terms)} layers in '{pattern}'; use"
            f" {len(terms)}, {2 * len(terms)}, ..."
        )
    layers = [_specify_layer(term, form, from_preset, given) for term in terms * (count // len(terms))]
    backbone = backbone.model_copy(update={"layers": count})
    return ModelSpec(tidy(pattern), form, backbone, tuple(layers))


def _specify_layer(
    term: Term, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any]
) -> LayerSpec:
    entry = registry("model").find(term.name)
    mixer: type[Mixer] = entry.cls
    values: dict[str, Any] = {}
    if form == "controlled":
        if mixer.controlled is None:
            declare = ", or declare `controlled` in its class (docs/your-layer.md)"
            raise UserError(
                f"{term.name} has no controlled form, since it does not declare what surrounds its"
                f" recurrence; run it with --form native{declare if mixer.is_plain_module else ''}."
            )
        values |= mixer.controlled
    # the settings of a preset are meant for mixers of linbench
    if not mixer.is_plain_module:
        values |= _settings_for(term, entry, from_preset)
    if form == "native":
        values |= dict(term.native)
    values |= _settings_for(term, entry, given)
    values |= _settings_in_pattern(term, mixer)
    return LayerSpec(entry, check_layer_settings(mixer, mixer.Settings.parse(values, where="model")))


def _settings_for(term: Term, entry: Entry, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings that this layer has; `MIXER.NAME` overrides a bare NAME."""
    mixer: type[Mixer] = entry.cls
    settings = {mixer.own_names[name]: given[name] for name in mixer.own_names if name in given}
    settings |= {name: value for name, value in given.items() if _has_setting(mixer, name)}
    for prefix in (f"{term.name}.", f"{entry.name}."):
        for name, value in given.items():
            if name.startswith(prefix):
                settings[name.removeprefix(prefix)] = value
    return settings


def _has_setting(mixer: type[Mixer], name: str) -> bool:
    if name in mixer.Settings.model_fields:
        return True
    return _takes_any_setting(mixer) and name not in BackboneSettings.model_fields and "." not in name


def _settings_in_pattern(term: Term, mixer: type[Mixer]) -> dict[str, str]:
    """Return the settings in brackets behind a name. A module from elsewhere reads quotes itself."""
    return {name: value if mixer.is_plain_module else strip_quotes(value) for name, value in term.settings}


def refuse_narrow_model(io: IO, model: ModelSpec) -> None:
    """Raise UserError if the task's vectors have more dimensions than the model.

    No memory could learn these, and the score would be read as a fact about the memory.
    """
    width = model.backbone.d_model
    if io.d_out is not None and io.d_out > width:
        raise UserError(
            f"the task's vectors have {io.d_out} dimensions, but {model.label} has model.d_model = {width};"
            f" set model.d_model to at least {io.d_out}."
        )


def refuse_unused_settings(given: Mapping[str, Any], models: Sequence[ModelSpec]) -> None:
    """Raise UserError if one of these settings is a setting of none of the models."""
    known = {*BackboneSettings.model_fields, *_CHOOSES}
    for layer in (layer for model in models for layer in model.layers):
        fields = type(layer.settings).model_fields
        known |= {*layer.settings.model_fields_set, *fields, *layer.entry.cls.own_names}
        for prefix in (layer.entry.name, f"./{layer.entry.name}"):
            known |= {f"{prefix}.{name}" for name in fields}
    for name in given:
        if name not in known:
            # dotted names are offered only to who wrote one; a size is no answer to a misspelt setting
            near = [each for each in known - _CHOOSES.keys() if "." not in each or "." in name]
            raise unknown("setting", f"model.{name}", (f"model.{each}" for each in near))
