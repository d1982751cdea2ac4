"""Cases of RWKV-7's erasure."""

from functools import partial

from torch import Tensor

from linbench.kernels.erasure import erasure
from linbench.kernels.family import Family, Inputs, KernelCase, normal


def _case(heads: int, dim: int) -> KernelCase:
    inputs = {
        "k": normal(33, 7, heads, dim).transpose(0, 1),
        "offset": 2 * normal(7, 33, heads * dim),
        "base": normal(heads, dim),
        "k_k": normal(heads + 1, dim)[1:],
        "k_a": normal(heads + 2, dim)[2:],
    }

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        k, rate = given["k"], (given["offset"].view(7, 33, heads, dim) + given["base"]).sigmoid()
        removed = k * given["k_k"] / (k * given["k_k"]).square().sum(-1, keepdim=True).sqrt()
        return k + k * given["k_a"] * (rate - 1), -removed, rate * removed

    return KernelCase(lambda given: erasure(*(given[name] for name in inputs)), reference, inputs)


FAMILY = Family(
    cases={
        "erasure": {
            "as published": partial(_case, 2, 64),
            "odd sizes": partial(_case, 3, 50),
            "wide heads": partial(_case, 2, 256),
        }
    },
    profile_kind="gates",
    profile_names=("erasure",),
)
