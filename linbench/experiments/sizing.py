"""Models of a given size.

The head dimension fits a number of state floats, the channel mixer's width a number of parameters.
"""

from collections.abc import Callable
from typing import Any, Literal

from linbench.common.errors import UserError
from linbench.common.hashing import digest
from linbench.common.settings import Settings
from linbench.experiments.model_spec import ModelSpec
from linbench.models.base import Mixer, StateSize
from linbench.tasks.base import Task

WIDEST = 1 << 17
"""The largest number that a setting of a shipped layer may be.

Sizes are products of a few such numbers, and a tensor must be able to hold them.
"""

TOLERANCE = 0.05
"""The relative difference up to which two sizes count as equal."""

_LARGEST = 4096

_COARSEST = 16
"""The largest step between possible head dimensions.

All are multiples of the smallest, such as 2 for a model that rotates pairs.
"""


StatePart = Literal["total", "recurrent"]
"""A part of a `StateSize` that models can be sized by."""


def head_dim_for_state(
    make: Callable[[int], ModelSpec], task: Task, floats: int, *, setting: str, part: StatePart
) -> int | None:
    """Return the head dimension whose state is nearest to `floats`.

    Args:
        make: returns the model with a head dimension.
        task: the task at whose length the state is counted.
        floats: the number of floats that is asked for.
        setting: the name by which it is asked for.
        part: what is counted of the state.

    Returns: the head dimension, or None for a model with a cache, which grows with every token.

    Raises UserError: the model declares no state, or none is within `TOLERANCE`.
    """

    def count(head_dim: int) -> int:
        return int(getattr(_state(make(head_dim), task, setting), part))

    step = next(
        (head_dim for head_dim in range(1, _COARSEST + 1) if _possible(make(head_dim), task, setting)), 1
    )
    if _state(make(step), task, setting).cache:
        return None
    low, high = 0, step
    while count(high) < floats and high < _LARGEST:
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (middle, high) if count(middle) < floats else (low, middle)
    near = {head_dim: count(head_dim) for head_dim in (low, high) if head_dim > 0}
    best = min(near, key=lambda head_dim: abs(near[head_dim] - floats))
    if abs(near[best] - floats) > TOLERANCE * floats:
        sizes = ", ".join(f"head_dim {head_dim} has {size:,}" for head_dim, size in near.items())
        label = make(best).label
        raise UserError(
            f"{label} has no head dimension with {floats:,} {setting.replace('_', ' ')} within"
            f" {TOLERANCE:.0%}: {sizes}; set model.{setting} to one of these, or change model.heads."
        )
    return best


WIDTH_STEP = 8
"""The step between widths of the channel mixer, so that a GPU reads whole rows."""


def channel_width_for_parameters(make: Callable[[int], ModelSpec], task: Task, parameters: int) -> int:
    """Return the width of the channel mixer at which the number of parameters is nearest to `parameters`.

    Args:
        make: returns the model with a width.
        task: the task that the model is for.
        parameters: the number of parameters that is asked for.

    Raises UserError: no width is within `TOLERANCE`.
    """
    narrow, wide = (
        make(width).sketch_or_build(task).parameter_count() for width in (WIDTH_STEP, 2 * WIDTH_STEP)
    )
    if narrow == wide:
        raise UserError(
            "model.parameters chooses the width of the channel mixer, but model.channel_mixer ="
            f" {_mixer(make)} has none; use swiglu."
        )
    steps = max(0, round((parameters - narrow) / (wide - narrow)))
    nearest = narrow + steps * (wide - narrow)
    if abs(nearest - parameters) > TOLERANCE * parameters:
        raise UserError(
            f"{make(WIDTH_STEP).label} cannot have {parameters:,} parameters within {TOLERANCE:.0%}; the"
            f" nearest number is {nearest:,}."
        )
    return WIDTH_STEP * (1 + steps)


def _mixer(make: Callable[[int], ModelSpec]) -> str:
    return make(WIDTH_STEP).backbone.channel_mixer


def _possible(model: ModelSpec, task: Task, setting: str) -> bool:
    try:
        _state(model, task, setting)
    except UserError:
        return False
    return True


_CONSTANT: dict[str, StateSize] = {}
"""A cache of states that do not grow with the length, by the model's identity.

The tasks of a grid ask for the same ones.
"""


def _state(model: ModelSpec, task: Task, setting: str) -> StateSize:
    name = digest(model.identity())
    if name in _CONSTANT:
        return _CONSTANT[name]
    sketch = model.sketch_or_build(task)
    size = sketch.state_size(task.seq_len)
    if size is None:
        raise UserError(
            f"{model.label} does not declare its state, so model.{setting} cannot size it; choose its"
            " settings yourself."
        )
    if size == sketch.state_size(1):
        _CONSTANT[name] = size
    return size


def check_layer_settings(mixer: type[Mixer], settings: Settings) -> Settings:
    """Return the settings of a layer after checking that it can be built.

    Raises UserError: a setting of a shipped layer is too large.
    """
    if mixer.is_plain_module:
        return settings
    for name, value in settings:
        if name.startswith("expand"):
            _refuse_above(1024, name, value)
        elif isinstance(value, int):
            _refuse_above(WIDEST, name, value)
    return settings


def _refuse_above(most: int, name: str, value: Any) -> None:
    if value > most:
        raise UserError(f"model.{name} must be at most {most:,}, not {value}.")
