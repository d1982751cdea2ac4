"""Models of one size: the head dimension at which a model carries so many state floats, the channel mixer's
width at which it has so many parameters."""

from collections.abc import Callable

from linbench.common.errors import UserError
from linbench.common.hashing import digest
from linbench.common.settings import Settings
from linbench.experiments.model_spec import ModelSpec
from linbench.models.base import Mixer, StateSize
from linbench.tasks.base import Task

WIDEST = 1 << 17
"""Of anything that a shipped layer counts: its sizes are products of a few such numbers, which a tensor must
hold."""

TOLERANCE = 0.05
"""Sizes that differ by more are not matched."""

_LARGEST = 4096

_COARSEST = 16
"""Head dimensions that a model can have are multiples of the first, such as 2 for one that rotates pairs; it
is no larger than this."""


def sized(make: Callable[[int], ModelSpec], task: Task, floats: int) -> int | None:
    """The possible head dimension whose total state comes nearest to `floats`; None for a model whose state
    grows with the length: it is compared at the length that is tested, whatever its size.

    Args:
        make: the model of a head dimension.

    Raises UserError: the model declares no state, or none comes within `TOLERANCE`.
    """

    def total(head_dim: int) -> int:
        return _state(make(head_dim), task).total

    step = next((head_dim for head_dim in range(1, _COARSEST + 1) if _possible(make(head_dim), task)), 1)
    if _state(make(step), task).cache:
        return None
    low, high = 0, step
    while total(high) < floats and high < _LARGEST:
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (middle, high) if total(middle) < floats else (low, middle)
    near = {head_dim: total(head_dim) for head_dim in (low, high) if head_dim > 0}
    best = min(near, key=lambda head_dim: abs(near[head_dim] - floats))
    if abs(near[best] - floats) > TOLERANCE * floats:
        found = ", ".join(f"head_dim {head_dim} has {size:,}" for head_dim, size in near.items())
        label = make(best).label
        raise UserError(
            f"{label} has no head dimension with {floats:,} state floats within {TOLERANCE:.0%}: {found}; ask"
            " for one of these, or change model.heads."
        )
    return best


WIDTH_STEP = 8
"""Widths of the channel mixer are multiples of it, so that a GPU reads whole rows."""


def widened(make: Callable[[int], ModelSpec], task: Task, parameters: int) -> int:
    """The width of the channel mixer with which a model has nearest to `parameters`.

    Args:
        make: the model of such a width.

    Raises UserError: with no width are there so many, within `TOLERANCE`.
    """
    narrow, wide = (make(width).sketch(task).parameter_count() for width in (WIDTH_STEP, 2 * WIDTH_STEP))
    if narrow == wide:
        raise UserError(
            "model.parameters is met by the width of the channel mixer, and with model.channel_mixer ="
            f" {_mixer(make)} none has one; use swiglu."
        )
    more = max(0, round((parameters - narrow) / (wide - narrow)))
    found = narrow + more * (wide - narrow)
    if abs(found - parameters) > TOLERANCE * parameters:
        raise UserError(
            f"{make(WIDTH_STEP).label} cannot have {parameters:,} parameters within {TOLERANCE:.0%}: it has"
            f" {found:,}, the nearest; ask for as many."
        )
    return WIDTH_STEP * (1 + more)


def _mixer(make: Callable[[int], ModelSpec]) -> str:
    return make(WIDTH_STEP).backbone.channel_mixer


def _possible(model: ModelSpec, task: Task) -> bool:
    try:
        _state(model, task)
    except UserError:
        return False
    return True


_CONSTANT: dict[str, StateSize] = {}
"""States that do not grow with the length, by all that decides a model: the tasks of a grid ask for the same
ones."""


def _state(model: ModelSpec, task: Task) -> StateSize:
    name = digest(model.identity())
    if name in _CONSTANT:
        return _CONSTANT[name]
    size = model.sketch(task).state_size(task.seq_len)
    if size is None:
        raise UserError(
            f"{model.label} does not declare its state, so it cannot be given a size; set what it has"
            " yourself."
        )
    if not size.cache:
        _CONSTANT[name] = size
    return size


def sensible(mixer: type[Mixer], settings: Settings) -> Settings:
    """Return the settings of a layer. Raises UserError: one of a shipped layer is larger than any layer can
    be built with."""
    for name, value in () if mixer.opaque else settings:
        most = 1024 if name.startswith("expand") else WIDEST if isinstance(value, int) else None
        if most is not None and value > most:
            raise UserError(f"model.{name} = {value}: it may be {most:,} at most.")
    return settings
