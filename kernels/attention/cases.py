"""Cases of attention's kernels: over a whole sequence, and of one more token over a cache."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention import door_cases as doors
from linbench.kernels.attention.operations import OPERATIONS
from linbench.kernels.family import Family, Inputs, KernelCase, normal


def _gated_attention(
    batch: int,
    length: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    *,
    gates: float | None = 2.0,
    window: int | None = None,
) -> KernelCase:
    """Build a case of tokens in order.

    Args:
        gates: standard deviation of the gates' logits; None is no gates.
    """
    q, k = normal(2, length, batch, heads, key_dim).transpose(1, 2)
    inputs = {"q": q, "k": k, "v": normal(length, batch, heads, value_dim).transpose(0, 1)}
    if gates is not None:
        inputs["gate"] = F.logsigmoid(gates * normal(batch, length, heads))

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        kept = None
        if gates is not None:
            sums = given["gate"].double().cumsum(dim=1)
            kept = sums, sums
        return (attention(given["q"], given["k"], given["v"], window=window, kept=kept),)

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        q, k, v = (given[name].transpose(1, 2) for name in ("q", "k", "v"))
        i = torch.arange(length, device=q.device)
        apply_eager = (i[:, None] < i) | (i[:, None] - i >= (window or length))
        scores = q @ k.mT * key_dim**-0.5
        if gates is not None:  # the gates from each key to each query are added one by one
            between = (i[:, None, None] >= i) & (i > i[:, None])  # [query, key, gate]
            scores = scores + torch.einsum("qkg,bgh->bhqk", between.to(q), given["gate"])
        weights = scores.masked_fill(apply_eager, float("-inf")).softmax(-1)
        return ((weights @ v).transpose(1, 2),)

    return KernelCase(kernel, reference, inputs)


def _cached_attention(
    batch: int, places: int, heads: int, key_dim: int, value_dim: int, *, window: int | None = None
) -> KernelCase:
    """Build a case of one more token with gates, which has no gradient.

    The first places of the cache are empty, and those of the last sequence stand in another order.
    """
    positions = torch.arange(places).sub(3).clamp(min=-1).repeat(batch, 1)
    positions[-1] = positions[-1].flip(0)
    inputs = {
        "q": normal(batch, 1, heads, key_dim),
        "k": normal(batch, heads, places, key_dim).transpose(1, 2),
        "v": normal(batch, heads, places, value_dim).transpose(1, 2),
        "left": -normal(batch, places, heads).abs(),
        "positions": positions,
    }

    def kernel(given: Inputs) -> tuple[Tensor, ...]:
        positions = given["positions"]
        kept = (torch.zeros(batch, 1, heads, device=positions.device), -given["left"])
        empty = (positions == EMPTY)[:, :, None, None]
        k, v = (given[name].masked_fill(empty, float("nan")) for name in ("k", "v"))
        last = positions.amax(dim=1, keepdim=True)
        o = attention(
            given["q"], k, v, query_positions=last, key_positions=positions, window=window, kept=kept
        )
        return (o,)

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        at = given["positions"]
        apply_eager = (at == EMPTY) | (at.amax(dim=1, keepdim=True) - at >= (window or places))
        scores = torch.einsum("bthk,bshk->bhs", given["q"], given["k"]) * key_dim**-0.5 + given["left"].mT
        weights = scores.masked_fill(apply_eager[:, None], float("-inf")).softmax(-1)
        return (torch.einsum("bhs,bshv->bhv", weights, given["v"])[:, None],)

    return KernelCase(kernel, reference, inputs, differentiable=False)


_CASES = {
    "gated_attention": {
        "gates": partial(_gated_attention, 2, 130, 2, 64, 64),
        "gates and a window": partial(_gated_attention, 2, 99, 3, 28, 28, window=20),
        "a window": partial(_gated_attention, 2, 200, 2, 64, 32, gates=None, window=70),
        "gates that forget all": partial(_gated_attention, 1, 99, 2, 16, 48, gates=40.0),
        "wide heads": partial(_gated_attention, 2, 99, 2, 128, 128),
        "very wide heads": partial(_gated_attention, 1, 70, 2, 256, 192),
        "three tokens": partial(_gated_attention, 3, 3, 2, 64, 64),
    },
    "cached_attention": {
        "few places": partial(_cached_attention, 3, 40, 2, 28, 64),
        "many places": partial(_cached_attention, 2, 3000, 2, 64, 64),
        "many places and a window": partial(_cached_attention, 2, 2100, 3, 128, 128, window=700),
        "very wide heads": partial(_cached_attention, 1, 600, 2, 256, 192),
    },
}

FAMILY = Family(
    cases={**_CASES, **doors.CASES},
    gpu_cases={**_CASES, **doors.GPU_CASES},
    profile_kind="recurrence",
    profile_names=("attention", "Attention"),
    operations=OPERATIONS,
    shown_with_models=True,
)
