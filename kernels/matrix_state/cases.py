"""Cases of every published recurrence of `matrix_state`, and the operations that are timed.

The reference is the loop over tokens in float64.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import Cases, Family, Inputs, KernelCase, Operation, Shape
from linbench.kernels.matrix_state.published import INSTANCES, Instance, apply, random_inputs

_FORGET = -13.8
"""Logarithm of a decay of 1e-6."""


class Sizes(NamedTuple):
    """Sizes of a call of `matrix_state`, and whether it starts from a state."""

    batch: int
    length: int
    heads: int
    key_dim: int
    value_dim: int
    key_heads: int | None = None
    state: bool = False


class Variation(NamedTuple):
    """A case that recurrences are put through.

    Args:
        cpu, gpu: sizes on a CPU and on a GPU; cpu is None where the case is about a GPU's launches.
        change: changes the random inputs.
        applies_to: tells by an instance's name and switches whether the case is about it.
        neg_eigval: whether I - beta k k^T may have a negative eigenvalue.
    """

    cpu: Sizes | None
    gpu: Sizes
    change: Callable[[Inputs], Inputs] = lambda inputs: inputs
    applies_to: Callable[[str, Instance], bool] = lambda name, instance: True
    neg_eigval: bool = True


def _extreme(inputs: Inputs) -> Inputs:
    keep = torch.rand(inputs["log_decay"].shape, generator=torch.Generator().manual_seed(1)) < 0.5
    log_decay = inputs["log_decay"].masked_fill(keep, 0.0).masked_fill(~keep, _FORGET)
    return inputs | {"log_decay": log_decay}


def _resetting(inputs: Inputs) -> Inputs:
    """Return inputs of packed sequences: slow decays, and a few tokens that reset the state."""
    log_decay = inputs["log_decay"] / 5
    reset = torch.rand(log_decay.shape[:2], generator=torch.Generator().manual_seed(1)) < 0.1
    reset = reset.view(*reset.shape, *[1] * (log_decay.dim() - 2))
    return inputs | {"log_decay": log_decay.masked_fill(reset, -1e30)}


def _near_parallel(inputs: Inputs) -> Inputs:
    """Return inputs whose keys are a thousandth apart."""
    k = F.normalize(inputs["k"][:, :1] + 1e-3 * inputs["k"].flip(1), dim=-1)
    erase = {"erase_key": 0.7 * k} if "erase_key" in inputs else {}
    return inputs | {"k": k, "beta": torch.full_like(inputs["beta"], 1.99)} | erase


def _some(name: str, instance: Instance) -> bool:
    """Tell whether an instance is one of five that differ most."""
    return name in {"scalar_decay", "gla", "gated_deltanet", "kda", "rwkv7"}


def _decaying(name: str, instance: Instance) -> bool:
    return instance.decay != "none"


def _delta(name: str, instance: Instance) -> bool:
    return instance.update in ("delta", "erase")


def _sum(name: str, instance: Instance) -> bool:
    return instance.update == "add"


def _scalar_sum(name: str, instance: Instance) -> bool:
    return _sum(name, instance) and instance.decay != "vector"


_CPU, _GPU, _WIDE = Sizes(2, 70, 2, 16, 16), Sizes(2, 100, 4, 64, 64), Sizes(1, 100, 4, 128, 128)
_FROM_STATE = _GPU._replace(batch=64, length=99, state=True)
_HEADS_OF_39 = Sizes(1, 257, 4, 39, 39, state=True)
VARIATIONS = {
    "as published": Variation(_CPU, _GPU._replace(batch=20, length=257)),
    "from a state, odd length": Variation(_CPU._replace(length=17, state=True), _FROM_STATE),
    "one token": Variation(
        _CPU._replace(length=1, state=True), _GPU._replace(length=1, state=True), applies_to=_some
    ),
    "shared keys, K and V differ": Variation(
        Sizes(2, 65, 4, 16, 24, 2, True), Sizes(2, 100, 4, 64, 128, 2, True), applies_to=_some
    ),
    "wide heads": Variation(
        _CPU._replace(key_dim=64, value_dim=64), _WIDE._replace(batch=10), applies_to=_some
    ),
    "few rows": Variation(None, _GPU._replace(batch=12)),
    "fewest rows": Variation(None, _GPU),
    "few rows, wide heads": Variation(None, _WIDE._replace(batch=5), applies_to=_some),
    "fewest rows, wide heads": Variation(None, _WIDE, applies_to=_some),
    "sums, 20 rows": Variation(None, _GPU._replace(batch=5), applies_to=_sum),
    "sums, one chunk": Variation(None, _GPU._replace(length=64), applies_to=_scalar_sum),
    "sums, 68 rows, wide heads": Variation(None, _WIDE._replace(batch=17), applies_to=_sum),
    "sums, 12 rows, wide heads": Variation(None, _WIDE._replace(batch=3), applies_to=_sum),
    "sums, 8 rows, wide heads": Variation(None, _WIDE._replace(batch=2), applies_to=_sum),
    "widest heads": Variation(
        _CPU._replace(key_dim=96, value_dim=33), Sizes(1, 65, 2, 256, 256), applies_to=_some
    ),
    "values wider than keys": Variation(
        _CPU._replace(value_dim=40), Sizes(20, 257, 2, 128, 256), applies_to=_scalar_sum
    ),
    "few rows, values wider than keys": Variation(None, Sizes(8, 257, 2, 128, 256), applies_to=_scalar_sum),
    "fewest rows, values wider than keys": Variation(
        None, Sizes(2, 257, 2, 128, 256), applies_to=_scalar_sum
    ),
    # so a model with a normaliser reads the sum of the weights
    "one value": Variation(_CPU._replace(value_dim=1), Sizes(2, 257, 2, 128, 1), applies_to=_scalar_sum),
    "decays of 1e-6 and 1": Variation(_CPU, _GPU, _extreme, _decaying),
    "resets between packed sequences": Variation(_CPU, _GPU, _resetting, _decaying),
    # where nothing decays, each token keeps the rounding errors of those before: at 70 tokens float32's own
    # rounding would come up to the limit
    "near-parallel keys, beta 1.99": Variation(_CPU._replace(length=25), _GPU, _near_parallel, _delta),
    "heads of 39": Variation(Sizes(2, 33, 2, 13, 13), Sizes(64, 99, 4, 39, 39, state=True), applies_to=_some),
    "few rows, heads of 39": Variation(None, _HEADS_OF_39),
    "few rows, heads of 39, beta below 1": Variation(None, _HEADS_OF_39, applies_to=_delta, neg_eigval=False),
    "beta below 1, from a state": Variation(
        _CPU._replace(state=True), _FROM_STATE, applies_to=_delta, neg_eigval=False
    ),
}
"""Cases by name.

On a GPU the sizes reach every schedule and tile of the launch rule: "from a state" has rows enough to fill
the device, "as published" and "wide heads" enough for the widest tile of all but sums; "few" and "fewest"
call for narrower ones; and of sums each number of rows calls for a tile of its own.
"""


def _case(instance: Instance, variation: Variation, sizes: Sizes) -> KernelCase:
    instance = instance._replace(neg_eigval=variation.neg_eigval)
    inputs = variation.change(random_inputs(instance, **sizes._asdict(), dtype=torch.float64))
    kernel, reference = partial(apply, instance), partial(apply, instance, backend="reference")
    wide = ("log_decay", "beta", "bonus", "state")
    return KernelCase(kernel, reference, inputs, at_least_float32=wide)


def _cases(device: str) -> Cases:
    """Return the cases of each recurrence on a "cpu" or a "gpu"."""
    cases: dict[str, dict[str, Callable[[], KernelCase]]] = {name: {} for name in INSTANCES}
    for name, instance in INSTANCES.items():
        for about, variation in VARIATIONS.items():
            sizes = variation.cpu if device == "cpu" else variation.gpu
            if sizes is not None and variation.applies_to(name, instance):
                cases[name][about] = partial(_case, instance, variation, sizes)
    return cases


def recurrence_flops(instance: Instance, shape: Shape) -> float:
    """Return the operations of the cheaper of two forms, without elementwise ones.

    A multiply-add counts as two; n steps per token; K = V = D.

    Recurrent, per token and head: 2KV to read; for each step 2KV to write, and 2KV to recall if what is
    written depends on the state; another 2KV to write the low-rank term. As attention, with masked halves
    left out and so T/2 pairs per token: n times 2K for a score and 2V for its use in the output, and n^2
    times as much to solve for what is written; all of it twice with a second key for the low-rank term.
    """
    n, solves, keys = instance.steps, instance.update != "add", 2 if instance.update == "low_rank" else 1
    recurrent = 2 * shape.D**2 * (1 + n * (keys + solves))
    attention = 2 * shape.D * shape.T * keys * (n + n * n * solves)
    return shape.B * shape.T * shape.H * min(recurrent, attention)


_DRAWN_BATCH, _DRAWN_LENGTH = 4, 512
"""Batch and length that are drawn at random and then repeated."""


def _operation(instance: Instance) -> Operation:
    # of the delta rules, only that of several steps is published with negative eigenvalues
    instance = instance._replace(neg_eigval=instance.steps > 1)

    def inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
        batch, length = min(shape.B, _DRAWN_BATCH), min(shape.T, _DRAWN_LENGTH)
        drawn = random_inputs(
            instance,
            batch=batch,
            length=length,
            heads=shape.H,
            key_dim=shape.D,
            value_dim=shape.D,
            dtype=dtype,
            device=device,
        )
        return {name: x if name == "bonus" else _repeat(x, shape, batch, length) for name, x in drawn.items()}

    def call(given: Inputs, backend: str = "auto") -> Tensor:
        return apply(instance, given, final=False, backend=backend)[0]

    return Operation(inputs, call, partial(recurrence_flops, instance), partial(call, backend="chunkwise"))


def _repeat(x: Tensor, shape: Shape, batch: int, length: int) -> Tensor:
    """Repeat [batch, steps length, ...] to [B, steps T, ...].

    Random numbers take long to draw, and speed does not depend on their repetition.
    """
    repeats = (-(-shape.B // batch), -(-shape.T // length), *[1] * (x.dim() - 2))
    steps = x.shape[1] // length
    return x.repeat(repeats)[: shape.B, : steps * shape.T].contiguous()


FAMILY = Family(
    cases=_cases("cpu"),
    gpu_cases=_cases("gpu"),
    profile_kind="recurrence",
    profile_names=("matrix_state", "_EagerFunction"),
    operations={name: _operation(instance) for name, instance in INSTANCES.items()},
    shown_with_models=True,
)
