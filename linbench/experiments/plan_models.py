"""From a model's name and settings to its specification."""

from collections.abc import Mapping, Sequence
from typing import Any

from linbench.common.errors import UserError, unknown
from linbench.common.numbers import whole
from linbench.common.quotes import unquoted
from linbench.common.task_io import IO
from linbench.experiments.model_spec import Form, LayerSpec, ModelSpec
from linbench.experiments.pattern import Term, parse_pattern, tidy
from linbench.experiments.registry import registry
from linbench.experiments.sizing import sensible, sized, widened
from linbench.models.backbone import BackboneSettings
from linbench.models.base import Mixer
from linbench.tasks.base import Task

STATE_FLOATS = "state_floats"
"""Stands among a model's settings for the head dimension with so many floats of state, in all, at the length
of the task."""

PARAMETERS = "parameters"
"""Stands among a model's settings for the width of the channel mixer with so many parameters in all."""


def _sized(
    text: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any], task: Task
) -> ModelSpec:
    """One model of a run; with `state_floats` given, in the head dimension that has these, and with
    `parameters`, with a channel mixer as wide as it takes."""
    settings = {name: value for name, value in given.items() if name not in _CHOSEN_BY}
    sizes = {name: _count(name, given[name]) for name in _CHOSEN_BY if name in given}
    for name in sizes:
        if _CHOSEN_BY[name] in settings:
            raise UserError(f"model.{name} chooses model.{_CHOSEN_BY[name]}; give one of the two.")

    def make(**chosen: int) -> ModelSpec:
        return _model(text, form, from_preset, {**settings, **chosen})

    if STATE_FLOATS in sizes:
        if not has_heads(text):
            raise UserError(
                f"{text} has no heads to be sized by model.{STATE_FLOATS}; run it without that setting."
            )
        if (
            head_dim := sized(lambda head_dim: make(head_dim=head_dim), task, sizes[STATE_FLOATS])
        ) is not None:
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
    """Whether a layer of the pattern has heads of a dimension of their own, by which `model.state_floats` can
    size it."""
    mixers = [registry("model").find(term.name).cls for term in parse_pattern(pattern)]
    return any(
        {"heads", "head_dim"} <= mixer.Settings.model_fields.keys() or _open_ended(mixer) for mixer in mixers
    )


def _open_ended(mixer: type[Mixer]) -> bool:
    """Whether it takes settings that it does not name."""
    return mixer.Settings.model_config.get("extra") == "allow"


def _model(text: str, form: Form, from_preset: Mapping[str, Any], given: Mapping[str, Any]) -> ModelSpec:
    """One model of a run: the backbone's settings by their names, all others to the mixers that have them."""
    pattern = parse_pattern(text)
    of_backbone = BackboneSettings.model_fields
    backbone = BackboneSettings.parse(
        {k: v for k, v in {**from_preset, **given}.items() if k in of_backbone}, where="model"
    )
    if form == "controlled" and backbone.channel_mixer == "own":
        raise UserError(
            "the controlled form has one channel mixer for all models; model.channel_mixer = own is for"
            " --form native."
        )
    period = len(pattern)
    count = backbone.layers if "layers" in given else max(period, backbone.layers)
    if count % period:
        raise UserError(
            f"model.layers = {count} does not hold the {period} layers of '{text}' a whole number of times;"
            f" {period}, {2 * period}, ... would do."
        )
    layers = []
    for term in pattern * (count // period):
        entry = registry("model").find(term.name)
        mixer: type[Mixer] = entry.cls
        if form == "controlled" and mixer.controlled is None:
            raise UserError(
                f"{term.name} has no controlled form: it does not declare what surrounds its recurrence; run"
                " it with --form native."
            )
        values: dict[str, Any] = dict(mixer.controlled or {}) if form == "controlled" else {}
        for source in (given,) if mixer.opaque else (from_preset, given):
            values |= {
                k: v
                for k, v in source.items()
                if k in mixer.Settings.model_fields
                or (_open_ended(mixer) and k not in of_backbone and "." not in k)
            }
            for name in (term.name, entry.name):
                values |= {
                    k.removeprefix(f"{name}."): v for k, v in source.items() if k.startswith(f"{name}.")
                }
        layers.append(
            LayerSpec(
                entry, sensible(mixer, mixer.Settings.parse(values | _beside(term, mixer), where="model"))
            )
        )
    return ModelSpec(tidy(text), form, backbone.model_copy(update={"layers": count}), tuple(layers))


def _beside(term: Term, mixer: type[Mixer]) -> dict[str, str]:
    """Settings that stand beside a name; a module from elsewhere makes something of their quotes itself."""
    return {name: value if mixer.opaque else unquoted(value) for name, value in term.settings}


def _refuse_narrow(io: IO, spec: ModelSpec) -> None:
    """Vectors that differ in more directions than the model has are not learned by any memory, and that would
    be told of its memory."""
    if io.d_out is not None and io.d_out > (width := spec.backbone.d_model):
        raise UserError(
            f"vectors of {io.d_out} numbers do not come out of {spec.label} with model.d_model = {width}; let"
            f" it be {io.d_out} or more."
        )


def _refuse_unused(given: Mapping[str, Any], specs: Sequence[ModelSpec]) -> None:
    """A setting that no model of the run has is a mistake."""
    layers = [layer for spec in specs for layer in spec.layers]
    known = set(BackboneSettings.model_fields)
    for layer in layers:
        known |= set(layer.settings.model_fields_set) | set(type(layer.settings).model_fields)
        known |= {
            f"{prefix}{layer.entry.name}.{name}"
            for name in type(layer.settings).model_fields
            for prefix in ("", "./")
        }
    for name in given:
        if name not in known and name not in _CHOSEN_BY:
            raise unknown(
                "setting", f"model.{name}", (f"model.{n}" for n in known if "." not in n or "." in name)
            )
