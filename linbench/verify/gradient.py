"""The reach of a gradient before any training: from the last output of a layer back to earlier inputs.

What a model learns first it learns by the gradient that it starts with. A layer in which that gradient fades
within ten tokens has to learn to remember before it can learn what is worth remembering.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from linbench.common.errors import UserError
from linbench.engine.layer_under_test import NEUTRAL_PRESET, seeded
from linbench.experiments.cell import Cell
from linbench.experiments.model_spec import LayerSpec
from linbench.experiments.plan import plan
from linbench.experiments.registry import SHIPPED, registry
from linbench.experiments.run_spec import RunSpec
from linbench.models.base import LayerInfo
from linbench.verify.update_rules import Row, Trials

__all__ = ["DISTANCES", "TRIALS", "gradient", "layers_not_silent", "log_sizes", "shipped"]

DISTANCES = (0, *(2**i for i in range(9)))
"""Distances from the last token, in tokens."""

TRIALS = 8
"""Layers that the square of a gradient is averaged over, unless another number is asked for."""

BEFORE = 32
"""Tokens before the farthest, so that none is the first of its sequence, which some layers treat apart."""

LAYERS = 2
"""Layers of the model of which each layer is the first: some variants start by their place."""


_TRIALS = Trials(count=TRIALS)


def shipped(form: str = "native") -> list[str]:
    """Return the names of all variants that come with linbench and have the form."""
    return [
        name
        for name, entry in registry("model").entries.items()
        if entry.source == SHIPPED and (form == "native" or entry.cls.controlled is not None)
    ]


def gradient(
    models: Sequence[str],
    *,
    form: str = "native",
    trials: Trials = _TRIALS,
    distances: Sequence[int] = DISTANCES,
) -> list[Row]:
    """Return log10 of the size of d(u . y_T) / d(x_{T-n}) for each model and distance n.

    A row is one layer of width `dim` with its initial weights; a last map that would start at zero starts as
    other maps do (`silent=false`). Inputs x and the direction u are standard normal. The size is the root of
    the mean, over trials, of the gradient's squared norm. Each trial has weights and inputs of its own. A
    size of zero has the logarithm None.

    Args:
        models: names, or a name with settings in brackets.
        form: native or controlled.
        trials: their number, the width of the layer, a seed, and where and in which dtype it is computed.
        distances: n, in tokens.

    Raises UserError: a model that is not there, or that has several kinds of layers.
    """
    rows: list[Row] = []
    layers = [_layer(model, form, trials) for model in models]
    for model, layer in zip(models, layers, strict=True):
        build = partial(layer.entry.cls, layer.settings, LayerInfo(0, LAYERS, trials.dim))
        of = {"model": model, "mixer": layer.entry.name}
        for distance, size in zip(distances, log_sizes(build, trials, distances), strict=True):
            rows.append(of | {"distance": distance, "log_size": size})
    return rows


def log_sizes(build: Callable[[], nn.Module], trials: Trials, distances: Sequence[int]) -> list[float | None]:
    """Return log10 of the size of the gradient of a layer at each distance, as `gradient` defines it.

    Args:
        build: returns the layer of a trial, a new one or always the same. It is called with seeded generators
            and on the CPU. If it draws from these, inputs depend on how much it draws.
        trials: as of `gradient`; `dim` is the width of the layer.
        distances: n, in tokens.
    """
    squares = torch.zeros(BEFORE + max(distances) + 1, dtype=trials.dtype, device=trials.device)
    for trial in range(trials.count):
        squares += _squared_norms(build, trials, trial, len(squares))
    sizes = [math.sqrt(float(squares[-1 - distance]) / trials.count) for distance in distances]
    return [math.log10(size) if size else None for size in sizes]


def _layer(model: str, form: str, trials: Trials) -> LayerSpec:
    settings = {"model.d_model": trials.dim}
    spec = RunSpec("mqar", [model], preset=NEUTRAL_PRESET, form=form, settings=settings, device="cpu")
    (cell,) = plan(spec)
    return layers_not_silent(cell)[0]


def layers_not_silent(cell: Cell) -> tuple[LayerSpec, ...]:
    """Return the layers of a cell's model; none has a last map that starts at zero (`silent=false`).

    Raises UserError: they are of several kinds.
    """
    layers = cell.model.layers
    if len({layer.entry.name for layer in layers}) > 1:
        raise UserError(f"'{cell.model.label}' is a pattern of several mixers; name them one by one.")
    return tuple(
        LayerSpec(layer.entry, layer.settings.model_copy(update={"silent": False}))
        if "silent" in type(layer.settings).model_fields
        else layer
        for layer in layers
    )


def _squared_norms(build: Callable[[], nn.Module], trials: Trials, trial: int, length: int) -> torch.Tensor:
    """Return the squared norm of the gradient at each of `length` inputs."""
    with seeded("cpu", "gradient", trials.seed, trial):
        mixer = build()
        x, direction = torch.randn(1, length, trials.dim), torch.randn(trials.dim)
    mixer, x = mixer.to(trials.device, trials.dtype), x.to(trials.device, trials.dtype).requires_grad_()
    last = mixer(x).y[0, -1] @ direction.to(trials.device, trials.dtype)
    (found,) = torch.autograd.grad(last, x)
    return found[0].square().sum(dim=-1)
