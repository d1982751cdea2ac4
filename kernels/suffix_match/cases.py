"""Cases of the longest match; the reference is a suffix automaton, and a loop for the gradient."""

from functools import partial

from torch import Tensor

from linbench.kernels.family import Family, Inputs, KernelCase, normal
from linbench.kernels.suffix_match import suffix_match


def _case(batch: int, length: int, streams: int, bits: int) -> KernelCase:
    inputs = {name: normal(batch, length, streams, bits + i)[..., i:] for i, name in enumerate("qkv")}
    return KernelCase(_kernel, partial(_kernel, backend="reference"), inputs)


def _kernel(given: Inputs, backend: str = "auto") -> tuple[Tensor, ...]:
    return (suffix_match(given["q"], given["k"], given["v"], backend=backend)[0],)


FAMILY = Family(
    cases={
        "suffix_match": {
            "one sign": partial(_case, 2, 40, 3, 1),
            "four signs": partial(_case, 2, 33, 2, 4),
            "one token": partial(_case, 2, 1, 2, 4),
        }
    },
    profile_kind="recurrence",
    profile_names=("suffix_match",),
    shown_with_models=True,
)
