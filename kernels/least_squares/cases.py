"""Cases of least squares, each solved directly from all tokens before it."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.family import (
    Family,
    Inputs,
    KernelCase,
    Operation,
    Shape,
    normal,
    random_inputs,
)
from linbench.kernels.least_squares import least_squares

ROOT = "root"
"""Name of the input whose product with itself is the Gram matrix of the state, which is symmetric so."""


def _case(
    length: int,
    key_heads: int,
    heads: int,
    keys: int,
    values: int,
    *,
    decays: float | None = 2.0,
    **options: Any,
) -> KernelCase:
    """Build a case whose decays have logits about `decays`; None is no decay."""
    batch = 2
    inputs = {
        "q": normal(batch, length, key_heads, keys),
        "k": F.normalize(normal(length, batch, key_heads, keys).transpose(0, 1), dim=-1),
        "v": normal(batch, length, heads, values),
        "strength": normal(batch, length, heads).sigmoid(),
        "ridge": 0.5 + normal(heads, keys).sigmoid(),
        ROOT: 0.3 * normal(batch, heads, keys, keys),
        "cross": normal(batch, heads, keys, values),
    }
    if decays is not None:
        inputs["log_decay"] = F.logsigmoid(decays + normal(heads, batch, length).permute(1, 2, 0))

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        o, state = least_squares(
            given["q"],
            given["k"],
            given["v"],
            log_decay=given.get("log_decay"),
            strength=given["strength"],
            ridge=given["ridge"],
            state=(given[ROOT] @ given[ROOT].mT, given["cross"]),
            **options,
        )
        return o, *state

    wide = ("log_decay", "strength", "ridge", ROOT, "cross")
    return KernelCase(kernel, _exact, inputs, at_least_float32=[name for name in wide if name in inputs])


def _exact(given: Inputs) -> tuple[Tensor, ...]:
    """Return outputs and state from sums over all tokens, without a recursion."""
    v, strength = given["v"], given["strength"]
    q, k = (given[name].repeat_interleave(v.shape[2] // given["q"].shape[2], dim=2) for name in ("q", "k"))
    sums = given["log_decay"].cumsum(dim=1) if "log_decay" in given else torch.zeros_like(strength)
    between = sums[:, :, None] - sums[:, None]  # from a token j to t: [B, t, j, H]
    unseen = torch.ones(between.shape[1:3], dtype=torch.bool, device=between.device).triu(1)[..., None]
    weights = between.masked_fill(unseen, -torch.inf).exp() * strength[:, None]
    start = sums.exp()[..., None, None]
    gram = torch.einsum("btjh,bjhk,bjhl->bthkl", weights, k, k)
    gram = gram + start * (given[ROOT] @ given[ROOT].mT)[:, None]
    cross = torch.einsum("btjh,bjhk,bjhv->bthkv", weights, k, v) + start * given["cross"][:, None]
    x = torch.linalg.solve(gram + torch.diag_embed(given["ridge"]), q[..., None])
    return (cross * x).sum(dim=-2), gram[:, -1], cross[:, -1]


def _inputs(shape: Shape, dtype: torch.dtype, device: str) -> Inputs:
    heads = shape[:3]
    return random_inputs(
        shape,
        dtype,
        device,
        sizes=lambda _: {**dict.fromkeys(("q", "k", "v"), (*shape,)), "gate": heads, "strength": heads},
    )


def _timed(given: Inputs) -> Tensor:
    return least_squares(
        given["q"],
        F.normalize(given["k"].float(), dim=-1).to(given["k"].dtype),
        given["v"],
        log_decay=F.logsigmoid(given["gate"].float()),
        strength=given["strength"].float().sigmoid(),
        ridge=1.0,
    )[0]


def _flops(shape: Shape) -> float:
    return 2.0 * shape.B * shape.T * shape.H * shape.D**2 * (30 + 3)


_CASES = {
    "chebyshev": partial(_case, 40, 2, 2, 5, 4, steps=60, method="chebyshev"),
    "conjugate gradients": partial(_case, 70, 2, 2, 8, 4),
    "exact, without decay": partial(_case, 37, 1, 2, 5, 6, decays=None, method="exact"),
    "one token": partial(_case, 1, 2, 2, 4, 4),
    "unrolled": partial(_case, 33, 2, 2, 4, 4, gradient="unrolled"),
}

_in_triton = partial(_case, backend="triton")

_CASES_OF_TRITON = {
    "a part of a chunk": partial(_in_triton, 20, 2, 2, 28, 48),
    "chebyshev": partial(_in_triton, 100, 2, 2, 28, 28, steps=60, method="chebyshev"),
    "many chunks": partial(_in_triton, 600, 2, 4, 64, 64),
    "narrow keys, without decay": partial(_in_triton, 130, 2, 2, 16, 100, decays=None),
    "one token": partial(_in_triton, 1, 2, 2, 64, 64),
    "strong decays": partial(_in_triton, 600, 2, 2, 64, 64, decays=-8.0),
    "wide keys": partial(_in_triton, 130, 1, 2, 128, 128, steps=60),
}
"""A chunk has 64 tokens, of float32 32, and of keys above 64 half as many."""

FAMILY = Family(
    cases={"least_squares": _CASES},
    gpu_cases={"least_squares": _CASES_OF_TRITON, "least_squares_in_torch": _CASES},
    profile_kind="recurrence",
    profile_names=("least_squares",),
    operations={"least_squares": Operation(_inputs, _timed, _flops)},
    shown_with_models=True,
)
