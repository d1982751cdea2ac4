"""Shapes that layers are measured at, by name or as given, and the cases of layers at them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from linbench.bench import peers
from linbench.bench.layer import LayerCase
from linbench.common.errors import UserError, unknown
from linbench.common.hashing import canonical
from linbench.engine.layer_under_test import NEUTRAL_PRESET, different_layers
from linbench.experiments.cell import Cell
from linbench.experiments.plan import plan
from linbench.experiments.plan_models import has_heads, sized_by_state
from linbench.experiments.precision import pick_precision
from linbench.experiments.registry import registry
from linbench.experiments.run_spec import RunSpec
from linbench.experiments.suite import expand, load, narrow
from linbench.experiments.system import parse_layers


class Preset(NamedTuple):
    """Shapes that layers are measured at.

    Args:
        about: one line for help texts.
        d_model: width of a layer.
        heads: number of its heads.
        lengths: tokens T of a sequence.
        tokens: tokens of a batch, the same at every length.
        decode_batch: sequences that are decoded at once, beside one alone.
    """

    about: str
    d_model: int
    heads: int
    lengths: tuple[int, ...]
    tokens: int
    decode_batch: int

    def batch(self, length: int) -> int:
        """Return how many sequences of this length are in a batch."""
        return max(1, self.tokens // length)


PRESETS = {
    "tiny": Preset("seconds a layer on two CPU cores", 64, 2, (64, 256, 1024), 4096, 32),
    "benchmark": Preset(
        "the regime of recall benchmarks: narrow, many short sequences", 128, 2, (256,), 65536, 256
    ),
    "lm": Preset("a language model's layer, heads of 128", 2048, 16, (4096,), 32768, 64),
    "forms": Preset("what forms of one recurrence are compared at", 512, 8, (256, 1024, 4096), 16384, 64),
    "long": Preset(
        "how cost grows with length, heads of 128", 1024, 8, (256, 1024, 4096, 16384, 65536), 65536, 64
    ),
}


def default_preset(device: str, on_gpu: str = "benchmark") -> str:
    """Return the name of the preset for a device if none is given."""
    return "tiny" if device == "cpu" else on_gpu


def resolve_preset(
    name: str,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    lengths: Sequence[int] = (),
    tokens: int | None = None,
    decode_batch: int | None = None,
) -> Preset:
    """Return a preset with the given values in place of its own.

    Raises UserError: no such preset, or batches that do not hold one sequence.
    """
    if name not in PRESETS:
        raise unknown("preset of bench", name, PRESETS)
    given: dict[str, Any] = {
        "d_model": d_model,
        "heads": heads,
        "lengths": tuple(sorted(set(lengths))) or None,
        "tokens": tokens,
        "decode_batch": decode_batch,
    }
    preset = PRESETS[name]._replace(**{field: value for field, value in given.items() if value is not None})
    if preset.tokens < preset.lengths[-1]:
        raise UserError(
            f"a batch of {preset.tokens:,} tokens does not hold a sequence of {preset.lengths[-1]:,}; give"
            " more --tokens or shorter --lengths."
        )
    return preset


def layer_cases(
    models: Sequence[str],
    preset: Preset,
    *,
    form: str | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str,
    precision: str | None = None,
    peer: str | None = None,
    repeats: int | None = None,
    suite: str | None = None,
) -> list[LayerCase]:
    """Return a case for each model; its question and shape are placeholders, which each verb replaces.

    Args:
        models: default: every registered model that has the form and, if settings size its state, has heads.
        form: default: native, or the suite's own.
        suite: name of a suite whose cells say what layers are like, instead of `settings`, width and heads.
        repeats: calls behind a median. Default: 20 on a CPU, 30 on a GPU.

    Raises UserError: as `plan` does, and for an unknown name. A peer that
    cannot run here is a reason in every row instead.
    """
    version = peers.resolve_peer(peer, device, "layers")
    dtype = pick_precision(precision, device)
    count = repeats or (20 if device == "cpu" else 30)
    if suite:
        cells = _suite_cells(suite, models, form, device=device)
    else:
        cells = _planned_cells(models, preset, form=form or "native", settings=settings or {}, device=device)
    return [
        LayerCase("train", cell, preset.decode_batch, preset.lengths[0], dtype, peer=version, repeats=count)
        for cell in cells
    ]


def _planned_cells(
    models: Sequence[str], preset: Preset, *, form: str, settings: Mapping[str, Any], device: str
) -> list[Cell]:
    """Return a cell for each different layer of each model. Its first layer is what is measured."""
    given = {"model.d_model": preset.d_model, **settings}
    chosen = list(models) or _models_of(form, with_heads_only=sized_by_state(given) is not None)
    heads = {} if "model.heads" in given else {"model.heads": preset.heads}
    own = [heads if with_heads(model) else {} for model in chosen]
    spec = RunSpec(
        "mqar", chosen, preset=NEUTRAL_PRESET, form=form, settings=given, model_settings=own, device=device
    )
    return [one for cell in plan(spec) for one in _one_by_one(cell)]


def _one_by_one(cell: Cell) -> list[Cell]:
    """Return a cell for each different layer of a model; of several each is labelled `MODEL: LAYER`."""
    layers = different_layers(cell)
    if len(layers) == 1:
        return [cell]
    return [
        replace(cell, model=replace(cell.model, label=f"{cell.model.label}: {name}", layers=(subject.layer,)))
        for name, subject in layers.items()
    ]


def _models_of(form: str, *, with_heads_only: bool) -> list[str]:
    return [
        name
        for name, entry in registry("model").entries.items()
        if (form == "native" or entry.cls.controlled is not None) and (not with_heads_only or has_heads(name))
    ]


def _suite_cells(name: str, models: Sequence[str], form: str | None, *, device: str) -> list[Cell]:
    """Return one cell of a suite for each layer in it. Patterns of several mixers are left out."""
    cells: dict[str, Cell] = {}
    for cell in expand(narrow(load(name), models=models, form=form), device=device).cells:
        model = cell.model
        layer = canonical([model.form, model.backbone.d_model, model.layers[0].identity()])
        cells.setdefault(layer, cell)
    return [cell for cell in cells.values() if _has_one_mixer(cell)]


def _has_one_mixer(cell: Cell) -> bool:
    return len({layer.entry.name for layer in cell.model.layers}) == 1


def with_heads(pattern: str) -> bool:
    """Return whether any layer of a pattern has a number of heads among its settings."""
    return any(
        "heads" in registry("model").find(term.name).cls.Settings.model_fields
        for term in parse_layers(pattern)
    )
