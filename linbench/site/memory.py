"""The memory of a variant: how many floats it carries from token to token, and of which kind."""

from functools import cache
from typing import cast

from linbench.experiments.plan_models import make_model
from linbench.experiments.system import parse_layers
from linbench.models.base import Mixer, StateSize
from linbench.tasks.mqar import MQAR

TASK = MQAR(MQAR.Settings())
"""A task, whose ids do not matter to the sizes of layers."""

LENGTHS = (512, 1024, 2048)
"""Lengths that show how a state grows. Memories of chunks have ended one at each."""

KINDS = {
    (False, False): "last inputs",
    (True, False): "recurrent state",
    (False, True): "cache",
    (True, True): "state and cache",
}
"""Names of memories, by whether they have a recurrent part and a cache. All but convolutions have one."""


def state(model: str) -> str:
    """Return the floats of one period of a model's layers after T tokens, at width 64 with two heads."""
    first, second, third = (sum(size.total for size in _sizes(model, length)) for length in LENGTHS)
    growth, left = divmod(second - first, LENGTHS[0])
    if left or third - second != 2 * (second - first):
        return f"{second:,} at T = {LENGTHS[1]:,}"
    constant = first - growth * LENGTHS[0]
    return " + ".join([*([f"{constant:,}"] if constant else []), *([f"{growth:,} T"] if growth else [])])


def memory_kind(model: str) -> str:
    """Return the kind of memory that a model's layers have."""
    sizes = _sizes(model, LENGTHS[-1])
    return KINDS[any(size.recurrent for size in sizes), any(size.cache for size in sizes)]


@cache
def _sizes(model: str, length: int) -> list[StateSize]:
    """Return the state of each layer of one period that declares it."""
    mixers = [*_mixers(model)][: len(parse_layers(model))]
    return [size for mixer in mixers if (size := mixer.state_floats(length))]


@cache
def _mixers(model: str) -> tuple[Mixer, ...]:
    spec = make_model(model, "native", {}, {"d_model": 64}, TASK)
    return tuple(cast("list[Mixer]", [*spec.sketch(TASK).mixers]))
