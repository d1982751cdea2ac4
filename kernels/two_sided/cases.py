"""Cases of two-sided decays; the reference is the loop over tokens in float64."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.two_sided import two_sided


def _case(
    batch: int, length: int, heads: int, key_dim: int, value_dim: int, key_heads: int | None = None
) -> KernelCase:
    q, k = normal(2, batch, length, key_heads or heads, key_dim)
    inputs = {
        "q": q,
        "k": k,
        "v": normal(length, batch, heads, value_dim).transpose(0, 1),
        "key_log_decay": F.logsigmoid(3 * normal(batch, length, heads, key_dim)),
        "value_log_decay": F.logsigmoid(3 * normal(batch, length, heads, value_dim)),
        "state": normal(batch, heads, key_dim, value_dim),
    }
    wide = ("key_log_decay", "value_log_decay", "state")
    return KernelCase(_kernel, partial(_kernel, backend="reference"), inputs, at_least_float32=wide)


def _kernel(given: Inputs, backend: str = "auto") -> tuple[Tensor, ...]:
    return two_sided(
        given["q"],
        given["k"],
        given["v"],
        key_log_decay=given["key_log_decay"],
        value_log_decay=given["value_log_decay"],
        state=given["state"],
        backend=backend,
    )


FAMILY = Family(
    cases={
        "two_sided": {
            "as published": partial(_case, 2, 70, 2, 16, 16),
            "odd sizes": partial(_case, 2, 33, 3, 5, 7),
            "shared keys": partial(_case, 2, 33, 4, 5, 7, 2),
            "one token": partial(_case, 2, 1, 2, 16, 16),
        }
    },
    profile_kind="recurrence",
    profile_names=("two_sided",),
    shown_with_models=True,
)
