"""What is verified: every recurrence of `matrix_state`, in cases that suit it, and the small kernels."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state.published import INSTANCES, Instance, apply, random_inputs
from linbench.verify.kernel_cases import SMALL
from linbench.verify.kernel_errors import Inputs, Trial

_GATES = {"log_decay", "beta", "bonus", "state"}
_FORGET = -13.8
"""Logarithm of a decay of 1e-6."""


class Sizes(NamedTuple):
    """Of a call of `matrix_state`."""

    batch: int
    length: int
    heads: int
    key_dim: int
    value_dim: int
    key_heads: int | None = None
    state: bool = False


class Case(NamedTuple):
    """A switch beside those of an instance: sizes on a CPU (None: it is a matter of a GPU's launches) and on
    a GPU, what is done to the inputs, which instances it is for, and whether I - beta k k^T may have a
    negative eigenvalue."""

    cpu: Sizes | None
    gpu: Sizes
    change: Callable[[Inputs], Inputs] = lambda inputs: inputs
    suits: Callable[[str, Instance], bool] = lambda name, instance: True
    neg_eigval: bool = True


def _extreme(inputs: Inputs) -> Inputs:
    keep = torch.rand(inputs["log_decay"].shape, generator=torch.Generator().manual_seed(1)) < 0.5
    return inputs | {"log_decay": inputs["log_decay"].masked_fill(keep, 0.0).masked_fill(~keep, _FORGET)}


def _resetting(inputs: Inputs) -> Inputs:
    """Return inputs of packed sequences: slow decays, and a few tokens that reset the state."""
    reset = torch.rand(inputs["log_decay"].shape[:2], generator=torch.Generator().manual_seed(1)) < 0.1
    log_decay = inputs["log_decay"] / 5
    return inputs | {
        "log_decay": log_decay.masked_fill(reset.view(*reset.shape, *[1] * (log_decay.dim() - 2)), -1e30)
    }


def _near_parallel(inputs: Inputs) -> Inputs:
    """Keys a thousandth apart."""
    k = F.normalize(inputs["k"][:, :1] + 1e-3 * inputs["k"].flip(1), dim=-1)
    erase = {"erase_key": 0.7 * k} if "erase_key" in inputs else {}
    return inputs | {"k": k, "beta": torch.full_like(inputs["beta"], 1.99)} | erase


def _some(name: str, instance: Instance) -> bool:
    return name in {"scalar_decay", "gla", "gated_deltanet", "kda", "rwkv7"}


def _decaying(name: str, instance: Instance) -> bool:
    return instance.decay != "none"


def _delta(name: str, instance: Instance) -> bool:
    return instance.update in ("delta", "erase")


def _sum(name: str, instance: Instance) -> bool:
    return instance.update == "add"


def _plain_sum(name: str, instance: Instance) -> bool:
    return _sum(name, instance) and instance.decay != "vector"


_CPU, _GPU, _WIDE = Sizes(2, 70, 2, 16, 16), Sizes(2, 100, 4, 64, 64), Sizes(1, 100, 4, 128, 128)
CASES = {
    "as published": Case(_CPU, _GPU._replace(batch=20, length=257)),
    "from a state, odd length": Case(
        _CPU._replace(length=17, state=True), _GPU._replace(batch=64, length=99, state=True)
    ),
    "one token": Case(_CPU._replace(length=1, state=True), _GPU._replace(length=1, state=True), suits=_some),
    "shared keys, K and V differ": Case(
        Sizes(2, 65, 4, 16, 24, 2, True), Sizes(2, 100, 4, 64, 128, 2, True), suits=_some
    ),
    "wide heads": Case(_CPU._replace(key_dim=64, value_dim=64), _WIDE._replace(batch=10), suits=_some),
    "few rows": Case(None, _GPU._replace(batch=12)),
    "fewest rows": Case(None, _GPU),
    "few rows, wide heads": Case(None, _WIDE._replace(batch=5), suits=_some),
    "fewest rows, wide heads": Case(None, _WIDE, suits=_some),
    "sums, 20 rows": Case(None, _GPU._replace(batch=5), suits=_sum),
    "sums, one chunk": Case(None, _GPU._replace(length=64), suits=_plain_sum),
    "sums, 68 rows, wide heads": Case(None, _WIDE._replace(batch=17), suits=_sum),
    "sums, 12 rows, wide heads": Case(None, _WIDE._replace(batch=3), suits=_sum),
    "sums, 8 rows, wide heads": Case(None, _WIDE._replace(batch=2), suits=_sum),
    "widest heads": Case(_CPU._replace(key_dim=96, value_dim=33), Sizes(1, 65, 2, 256, 256), suits=_some),
    "values wider than keys": Case(
        _CPU._replace(value_dim=40), Sizes(20, 257, 2, 128, 256), suits=_plain_sum
    ),
    "few rows, values wider than keys": Case(None, Sizes(8, 257, 2, 128, 256), suits=_plain_sum),
    "fewest rows, values wider than keys": Case(None, Sizes(2, 257, 2, 128, 256), suits=_plain_sum),
    # as the sum of the weights is read
    "one value": Case(_CPU._replace(value_dim=1), Sizes(2, 257, 2, 128, 1), suits=_plain_sum),
    "decays of 1e-6 and 1": Case(_CPU, _GPU, _extreme, _decaying),
    "resets between packed sequences": Case(_CPU, _GPU, _resetting, _decaying),
    # where nothing decays, each token keeps what rounding did to those before: at 70 tokens float32's own
    # rounding would come up to the limit
    "near-parallel keys, beta 1.99": Case(_CPU._replace(length=25), _GPU, _near_parallel, _delta),
    "heads of 39": Case(Sizes(2, 33, 2, 13, 13), Sizes(64, 99, 4, 39, 39, state=True), suits=_some),
    "few rows, heads of 39": Case(None, Sizes(1, 257, 4, 39, 39, state=True)),
    "few rows, heads of 39, beta below 1": Case(
        None, Sizes(1, 257, 4, 39, 39, state=True), suits=_delta, neg_eigval=False
    ),
    "beta below 1, from a state": Case(
        _CPU._replace(state=True),
        _GPU._replace(batch=64, length=99, state=True),
        suits=_delta,
        neg_eigval=False,
    ),
}
"""On a GPU the sizes reach every schedule and tile of the launch rule: "from a state" has rows enough to fill
the device, "as published" and "wide heads" enough for the widest walk of all but sums, "few" and "fewest"
call for narrower ones, and of sums each number of rows for one of its own."""


def all_trials(device: str) -> dict[str, dict[str, Callable[[torch.dtype], Trial]]]:
    """By kernel and case, how to make the trial with inputs of a precision; gates and states are float32 or
    better."""

    def matrix_state(instance: Instance, case: Case, sizes: Sizes, dtype: torch.dtype) -> Trial:
        instance = instance._replace(neg_eigval=case.neg_eigval)
        inputs = case.change(random_inputs(instance, **sizes._asdict(), dtype=torch.float64))
        kernel, truth = partial(apply, instance), partial(apply, instance, backend="reference")
        return _placed(Trial(kernel, truth, inputs), device, dtype)

    sized = ((about, case, case.cpu if device == "cpu" else case.gpu) for about, case in CASES.items())
    cases = {about: (case, sizes) for about, case, sizes in sized if sizes}
    found: dict[str, dict[str, Callable[[torch.dtype], Trial]]] = {
        name: {
            about: partial(matrix_state, instance, case, sizes)
            for about, (case, sizes) in cases.items()
            if case.suits(name, instance)
        }
        for name, instance in INSTANCES.items()
    }
    for name, small in SMALL.items():
        found[name] = {
            about: partial(lambda make, dtype: _placed(make(), device, dtype), make)
            for about, make in small.items()
        }
    return found


def _placed(trial: Trial, device: str, dtype: torch.dtype) -> Trial:
    wide = at_least_float32(dtype)
    return trial._replace(
        inputs={name: x.to(device, wide if name in _GATES else dtype) for name, x in trial.inputs.items()}
    )
