"""Cases of the channel decay."""

from functools import partial

from torch import Tensor

from linbench.kernels.channel_decay import channel_decay
from linbench.kernels.family import Family, Inputs, KernelCase, normal


def _case(heads: int, dim: int, bound: float | None) -> KernelCase:
    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        return (channel_decay(given["offset"], given["base"], bound=bound),)

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        logit = given["offset"].view(7, 33, heads, dim) + given["base"]
        return (-logit.exp() if bound is None else -bound * logit.sigmoid(),)

    inputs = {"offset": 2 * normal(7, 33, heads * dim), "base": normal(heads, dim) - 2}
    return KernelCase(kernel, reference, inputs)


FAMILY = Family(
    cases={
        "channel_decay": {
            "free": partial(_case, 2, 64, None),
            "bounded, odd sizes": partial(_case, 3, 50, 0.5),
        }
    },
    profile_kind="gates",
    profile_names=("channel_decay",),
)
