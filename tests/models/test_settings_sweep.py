"""Whatever settings a variant takes, a layer of them computes; what it cannot compute is refused in a
sentence before anything is built or run."""

import types
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import torch

from linbench.common.errors import UserError
from linbench.experiments.registry import SHIPPED, registry
from linbench.models.backbone import BackboneSettings
from linbench.models.base import LayerInfo, Mixer
from tests.helpers.cells import plan
from tests.helpers.matrix_state import named, pairwise

WIDTH, LENGTH = 16, 4
MIXERS: dict[str, type[Mixer]] = {
    name: entry.cls for name, entry in registry("model").entries.items() if entry.source == SHIPPED
}


def choices(annotation: Any) -> list[Any]:
    """All values of a setting that are few by its type: of words, of true and false, and null."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return [value for part in get_args(annotation) for value in choices(part)]
    return [True, False] if annotation is bool else [None] if annotation is type(None) else []


def settings_of(mixer: type[Mixer]) -> dict[str, list[Any]]:
    """The settings of a mixer that have few values, and where there is one the convolution, with and
    without."""
    found = {name: choices(field.annotation) for name, field in mixer.Settings.model_fields.items()}
    found = {
        name: values if values != [None] else [None, mixer.Settings.model_fields[name].default]
        for name, values in found.items()
        if values
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()} | (
        {"conv": [0, 4]} if "conv" in mixer.Settings.model_fields else {}
    )


def rows(mixer: type[Mixer]) -> list[dict[str, Any]]:
    """Every value of every setting with the defaults of the others, and rows in which all pairs of values
    meet, each once."""
    values = settings_of(mixer)
    defaults = {name: field.get_default() for name, field in mixer.Settings.model_fields.items()}
    alone = [{name: value} for name, each in values.items() for value in each]
    found = [{}, *alone, *(pairwise(**values) if len(values) > 1 else [])]
    told = [{name: value for name, value in row.items() if value != defaults[name]} for row in found]
    return [row for place, row in enumerate(told) if row not in told[:place]]


def computed(mixer: type[Mixer], given: dict[str, Any]) -> bool:
    """Return whether a layer computes, whole and from a state, with a gradient.

    False if it refuses its settings.
    """
    try:
        made = mixer(mixer.Settings.parse(given, where="model"), LayerInfo(0, 1, WIDTH))
    except UserError:
        return False
    x = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
    y, _, _ = made(x)
    assert y.shape == x.shape
    y.sum().backward()
    with torch.no_grad():
        state = made.init_state(1, capacity=LENGTH)
        for part in x.split([LENGTH - 1, 1], dim=1):
            y, state, _ = made(part, state)
            assert y.isfinite().all()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_what_settings_take_a_layer_computes(name: str) -> None:
    mixer, taken = MIXERS[name], 0
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for given in rows(mixer):
            try:
                taken += computed(mixer, given)
            except Exception as error:
                raise AssertionError(f"{name} with {given}: {error!r}") from error
    assert taken > len(settings_of(mixer)), "more is refused than is taken"


AROUND = {
    name: values
    for name, field in BackboneSettings.model_fields.items()
    if len(values := choices(field.annotation)) > 1
}


@pytest.mark.parametrize(
    "row",
    pairwise(**AROUND, mixer=["attention", "rwkv7", "mamba2"], task=["mqar", "regression", "role_binding"]),
    ids=named,
)
def test_whatever_settings_are_around_the_mixers_a_model_computes(row: dict[str, Any]) -> None:
    settings = {f"model.{name}": row[name] for name in AROUND} | {"model.d_model": WIDTH}
    cell = plan(row["task"], [row["mixer"]], settings=settings, device="cpu")[0]
    batch = cell.task.sample(torch.arange(2), seed=0, split="train")
    assert cell.model.build(cell.task, seed=0)(batch.inputs, batch.positions).isfinite().all()
