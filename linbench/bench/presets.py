"""Shapes that layers are measured at, by name or as given on the command line, and the layers themselves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from linbench.bench import peers
from linbench.bench.layer import Case
from linbench.common.errors import UserError, unknown
from linbench.common.hashing import canonical
from linbench.engine.layer_under_test import BARE
from linbench.experiments.cell import Cell
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.plan import plan
from linbench.experiments.plan_models import STATE_FLOATS, has_heads
from linbench.experiments.precision import pick_precision
from linbench.experiments.registry import registry
from linbench.experiments.run_spec import RunSpec
from linbench.experiments.suite import expand, load, narrowed


class Preset(NamedTuple):
    """d_model and heads of a layer; the lengths T it is measured at; tokens of a batch, the same at every
    length; and the batch that many sequences are decoded in, beside one alone."""

    about: str
    d_model: int
    heads: int
    lengths: tuple[int, ...]
    tokens: int
    decoded: int

    def batch(self, length: int) -> int:
        """Of sequences of so many tokens."""
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


def usual(device: str, otherwise: str = "benchmark") -> str:
    """The preset of a kind of device where none is named: of a GPU `otherwise`."""
    return "tiny" if device == "cpu" else otherwise


def shaped(
    name: str,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    lengths: Sequence[int] = (),
    tokens: int | None = None,
    decoded: int | None = None,
) -> Preset:
    """A preset with what is given in its place. Raises UserError: no such preset, or batches that do not hold
    one sequence."""
    if name not in PRESETS:
        raise unknown("preset of bench", name, PRESETS)
    given: dict[str, Any] = {
        "d_model": d_model,
        "heads": heads,
        "lengths": tuple(sorted(set(lengths))) or None,
        "tokens": tokens,
        "decoded": decoded,
    }
    preset = PRESETS[name]._replace(**{field: value for field, value in given.items() if value is not None})
    if preset.tokens < preset.lengths[-1]:
        raise UserError(
            f"a batch of {preset.tokens:,} tokens does not hold a sequence of {preset.lengths[-1]:,}; give"
            " more --tokens or shorter --lengths."
        )
    return preset


def base(
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
) -> list[Case]:
    """A case for each model, whose question and shape are still to be given. Without names of every
    registered model that has the form, and where a state is asked for has heads to be sized by.

    Args:
        form: default: native, of a suite its own.
        suite: instead of settings and the width and heads of the preset: layers as its cells have them, of
            all its models or of those that are named.

    Raises UserError: as `plan`, a pattern of several mixers, or a name that is not there. A peer that cannot
    be had is told in every row.
    """
    named = peers.named(peer, device, "layers")
    its = pick_precision(precision, device)
    count = repeats or (20 if device == "cpu" else 30)
    cells = (
        _of_suite(suite, models, form, device=device)
        if suite
        else _cells(models, preset, form=form or "native", settings=settings or {}, device=device)
    )
    return [
        Case("train", cell, preset.decoded, preset.lengths[0], its, peer=named, repeats=count)
        for cell in cells
    ]


def _cells(
    models: Sequence[str], preset: Preset, *, form: str, settings: Mapping[str, Any], device: str
) -> list[Cell]:
    """One for each model, whose first layer is measured; nothing else of it matters."""
    given = {"model.d_model": preset.d_model, **settings}
    sized = f"model.{STATE_FLOATS}" in given
    chosen = list(models) or [
        name
        for name, entry in registry("model").entries.items()
        if (form == "native" or entry.cls.controlled is not None) and (not sized or has_heads(name))
    ]
    own = [
        {"model.heads": preset.heads} if "model.heads" not in given and with_heads(model) else {}
        for model in chosen
    ]
    spec = RunSpec("mqar", chosen, preset=BARE, form=form, settings=given, model_settings=own, device=device)
    cells = plan(spec)
    for cell in cells:
        if len({layer.entry.name for layer in cell.model.layers}) > 1:
            raise UserError(f"'{cell.model.label}' is a pattern of several mixers; measure them one by one.")
    return cells


def _of_suite(name: str, models: Sequence[str], form: str | None, *, device: str) -> list[Cell]:
    """For each layer a cell that has it; patterns of several mixers are passed over."""
    found: dict[str, Cell] = {}
    for cell in expand(narrowed(load(name), models=models, form=form), device=device).cells:
        found.setdefault(
            canonical([cell.model.form, cell.model.backbone.d_model, cell.model.layers[0].identity()]), cell
        )
    return [cell for cell in found.values() if len({layer.entry.name for layer in cell.model.layers}) == 1]


def with_heads(pattern: str) -> bool:
    """Whether any layer of a pattern has heads to be told how many."""
    return any(
        "heads" in registry("model").find(term.name).cls.Settings.model_fields
        for term in parse_pattern(pattern)
    )
