"""Cases of attention's kernels: over a whole sequence, and of one more token over a cache."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import EMPTY, attention
from linbench.kernels.attention.contextual import contextual_attention
from linbench.kernels.attention.corrections import corrected_values
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.attention.stick_breaking import stick_breaking
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


def _whole(
    door: Callable[..., Tensor],
    exact: Callable[..., Tensor],
    batch: int,
    length: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    **more: Tensor,
) -> KernelCase:
    """Build a case of tokens in order, for a door that takes q, k, v and `more`.

    Args:
        exact: computes the same from all pairs at once, of operands with heads before tokens.
    """
    q, k = normal(2, length, batch, heads, key_dim).transpose(1, 2)
    inputs = {"q": q, "k": k, "v": normal(length, batch, heads, value_dim).transpose(0, 1), **more}

    def reference(given: Inputs) -> tuple[Tensor, ...]:
        q, k, v = (given[name].transpose(1, 2) for name in ("q", "k", "v"))
        others = (given[name] for name in more)
        return (exact(q * key_dim**-0.5, k, v, *others).transpose(1, 2),)

    return KernelCase(lambda given: (door(*given.values()),), reference, inputs)


def _broken_sticks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute stick-breaking as a recurrence over keys: each token fades what came before by its share."""
    share = (q @ k.mT).sigmoid().tril(-1)  # [B, H, T, S]
    o = torch.zeros_like(v)
    for j in range(k.shape[2]):
        o = o + share[..., j, None] * (v[:, :, j, None] - o)
    return o


def _counted_back(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """Compute attention with contextual positions; a hat around each position interpolates linearly."""
    z, last = q @ k.mT, len(table) - 1
    upper = torch.ones_like(z[0, 0]).triu()
    gates = z.sigmoid().tril()
    position = torch.einsum("bhtl,jl->bhtj", gates, upper).clamp(max=last)
    hats = F.relu(1 - (position[..., None] - torch.arange(last + 1, device=q.device)).abs())
    z = z + torch.einsum("bhtjp,bhtp->bhtj", hats, q @ table.mT)
    return z.masked_fill(upper.mT == 0, float("-inf")).softmax(-1) @ v


def _reflected(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, gate: Tensor) -> Tensor:
    """Compute PaTH attention as tokens are decoded: each reflects all keys before it."""
    length, keys, bias, rows = q.shape[2], k[:, :, :0], gate.mT[..., :0], []
    w, beta = w.transpose(1, 2), beta.mT
    for t in range(length):
        along = w[:, :, t, :, None]
        keys = keys - beta[:, :, t, None, None] * (keys @ along) @ along.mT
        keys = torch.cat([keys, k[:, :, t, None]], dim=2)
        bias = torch.cat([bias + gate[:, t, :, None], torch.zeros_like(gate[:, t, :, None])], dim=-1)
        weights = ((keys @ q[:, :, t, :, None])[..., 0] + bias).softmax(-1)
        rows.append((weights[:, :, None] @ v[:, :, : t + 1])[:, :, 0])
    return torch.stack(rows, dim=2)


def _path(*given: Tensor) -> Tensor:
    sums = given[5].double().cumsum(dim=1)
    return path_attention(*given[:5], kept=(sums, sums))


def _path_case(batch: int, length: int, heads: int, dim: int) -> KernelCase:
    """Build a case of PaTH-FoX."""
    case = _whole(
        _path,
        _reflected,
        batch,
        length,
        heads,
        dim,
        dim,
        w=F.normalize(normal(batch, length, heads, dim), dim=-1),
        beta=2 * normal(batch, length, heads).sigmoid(),
        gate=F.logsigmoid(normal(batch, length, heads)),
    )
    return case._replace(at_least_float32=("w", "beta", "gate"))


def _solved(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Compute corrected values by the inverse of a whole matrix."""
    scores = (q @ k.mT)[:, :, 1:]
    unseen = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
    weights = F.pad(scores.masked_fill(unseen, float("-inf")).softmax(-1), (0, 0, 1, 0))
    system = torch.eye(k.shape[2], dtype=k.dtype, device=k.device) + beta.mT[..., None] * weights
    inverse: Tensor = torch.linalg.inv(system)
    return inverse @ v


def _correction_case(batch: int, length: int, heads: int, key_dim: int, value_dim: int) -> KernelCase:
    """Build a case of corrected values."""
    beta = normal(batch, length, heads).sigmoid()
    return _whole(corrected_values, _solved, batch, length, heads, key_dim, value_dim, beta=beta)


FAMILY = Family(
    cases={
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
        "stick_breaking": {
            "a part": partial(_whole, stick_breaking, _broken_sticks, 2, 99, 3, 28, 48),
            "two parts": partial(_whole, stick_breaking, _broken_sticks, 1, 150, 2, 64, 64),
        },
        "path_attention": {
            "a block": partial(_path_case, 2, 60, 3, 28),
            "three blocks": partial(_path_case, 1, 150, 2, 64),
        },
        "corrected_values": {
            "a block": partial(_correction_case, 2, 99, 3, 28, 48),
            "two blocks": partial(_correction_case, 1, 150, 2, 64, 64),
        },
        "contextual_attention": {
            "a part": partial(
                _whole, contextual_attention, _counted_back, 2, 99, 3, 28, 48, table=normal(5, 28)
            ),
            "two parts": partial(
                _whole, contextual_attention, _counted_back, 1, 150, 2, 64, 64, table=normal(64, 64)
            ),
        },
    },
    profile_kind="recurrence",
    profile_names=("attention", "Attention"),
    shown_with_models=True,
)
