"""Cases of attention whose scores, or values, are more than products: torch forms, and on a GPU Triton's."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention import attention
from linbench.kernels.attention.contextual import contextual_attention
from linbench.kernels.attention.corrections import corrected_values
from linbench.kernels.attention.mixture_of_blocks import mixture_of_blocks
from linbench.kernels.attention.native_sparse import compressed_and_selected
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.attention.stick_breaking import stick_breaking
from linbench.kernels.family import Inputs, KernelCase, normal
from linbench.kernels.matrix_state import Delta, matrix_state

Builders = Mapping[str, Callable[[], KernelCase]]


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


def _within_best(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, block: int, blocks: int) -> Tensor:
    """Compute attention within blocks of which fewer than `blocks` have a higher score [B, H, T, M]."""
    rank = (scores[..., None, :] > scores[..., :, None]).sum(dim=-1)
    here = torch.arange(k.shape[2], device=k.device)
    read = (rank < blocks)[..., here // block] & (here <= here[:, None])
    return (q @ k.mT).masked_fill(~read, float("-inf")).softmax(-1) @ v


def _means(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return the sums of x [B, H, T, K] in each block over `block`, and the number of each token's block."""
    number = torch.arange(x.shape[2], device=x.device) // block
    share = F.one_hot(number).to(x) / block
    return share.mT @ x, number


def _mixed_blocks(q: Tensor, k: Tensor, v: Tensor, block: int, blocks: int) -> Tensor:
    """Compute mixture of block attention from the rank of each block for each query."""
    means, own = _means(k.detach(), block)
    number = torch.arange(means.shape[2], device=k.device)
    scores = (q.detach() @ means.mT).masked_fill(number == own[:, None], float("inf"))
    return _within_best(q, k, v, scores.masked_fill(number > own[:, None], float("-inf")), block, blocks)


def _sparse_branches(q: Tensor, k: Tensor, v: Tensor, block: int, blocks: int) -> Tensor:
    """Compute the first two branches of native sparse attention, side by side, from ranks of blocks."""
    (keys, own), (values, _) = _means(k, block), _means(v, block)
    number, here = torch.arange(keys.shape[2], device=k.device), torch.arange(k.shape[2], device=k.device)
    weights = (q @ keys.mT).exp() * ((number + 1) * block <= here[:, None] + 1)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    back = own[:, None] - number
    scores = weights.detach() + 2.0 * ((number == 0) | (back == 0) | (back == 1)) - 3.0 * (back < 0)
    return torch.cat([weights @ values, _within_best(q, k, v, scores, block, blocks)], dim=-1)


def _blocks_case(
    door: Callable[..., Tensor], exact: Callable[..., Tensor], block: int, blocks: int, *sizes: int
) -> KernelCase:
    """Build a case of attention to chosen blocks."""
    chosen = {"block": block, "blocks": blocks}
    return _whole(partial(door, **chosen), partial(exact, **chosen), *sizes)


def _both_branches(*given: Tensor, **options: Any) -> Tensor:
    return torch.cat(compressed_and_selected(*given, **options), dim=-1)


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


def _ungated(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """Compute PaTH attention without gates, as `_reflected`."""
    return _reflected(q, k, v, w, beta, torch.zeros_like(beta))


def _path(*given: Tensor, backend: str) -> Tensor:
    if len(given) == 5:
        return path_attention(*given, backend=backend)
    sums = given[5].double().cumsum(dim=1)
    return path_attention(*given[:5], kept=(sums, sums), backend=backend)


def _path_case(
    backend: str,
    batch: int,
    length: int,
    heads: int,
    dim: int,
    value_dim: int | None = None,
    *,
    gated: bool = True,
) -> KernelCase:
    """Build a case of PaTH-FoX, or of PaTH."""
    more = {
        "w": F.normalize(normal(batch, length, heads, dim), dim=-1),
        "beta": 2 * normal(batch, length, heads).sigmoid(),
    }
    if gated:
        more["gate"] = F.logsigmoid(normal(batch, length, heads))
    exact = _reflected if gated else _ungated
    case = _whole(partial(_path, backend=backend), exact, batch, length, heads, dim, value_dim or dim, **more)
    return case._replace(at_least_float32=tuple(more))


def _delta_positions(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Compute what the model of this name does: attention over what two delta rules leave of q and k."""
    rule = Delta(torch.full_like(w[..., 0], 2.0))
    q, k = ((x - matrix_state(x.to(w.dtype), w, w, update=rule, scale=1.0)[0]).to(v.dtype) for x in (q, k))
    return attention(q, k, v)


def _erased(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Compute the same token by token: the delta rule's state S says what is taken off q and k."""
    state, rows = torch.zeros_like(w[:, 0, :, :, None] * w[:, 0, :, None]), []
    for t in range(q.shape[2]):
        along = w[:, t, :, :, None]
        state = state + 2 * along @ (along - state.mT @ along).mT
        rows.append([x[:, :, t] - (x[:, :, t, None] @ state)[:, :, 0] for x in (q, k)])
    q, k = (torch.stack(each, dim=2) for each in zip(*rows, strict=True))
    late = torch.ones_like((q @ k.mT)[0, 0], dtype=torch.bool).triu(1)
    return (q @ k.mT).masked_fill(late, float("-inf")).softmax(-1) @ v


def _delta_case(batch: int, length: int, heads: int, dim: int) -> KernelCase:
    """Build a case of delta positions."""
    w = F.normalize(normal(batch, length, heads, dim), dim=-1)
    case = _whole(_delta_positions, _erased, batch, length, heads, dim, dim, w=w)
    return case._replace(at_least_float32=("w",))


def _solved(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Compute corrected values by the inverse of a whole matrix."""
    scores = (q @ k.mT)[:, :, 1:]
    unseen = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
    weights = F.pad(scores.masked_fill(unseen, float("-inf")).softmax(-1), (0, 0, 1, 0))
    system = torch.eye(k.shape[2], dtype=k.dtype, device=k.device) + beta.mT[..., None] * weights
    inverse: Tensor = torch.linalg.inv(system)
    return inverse @ v


def _correction_case(
    backend: str, batch: int, length: int, heads: int, key_dim: int, value_dim: int
) -> KernelCase:
    """Build a case of corrected values."""
    beta = normal(batch, length, heads).sigmoid()
    door = partial(corrected_values, backend=backend)
    case = _whole(door, _solved, batch, length, heads, key_dim, value_dim, beta=beta)
    return case._replace(at_least_float32=("beta",))


def _paths(backend: str) -> Builders:
    return {
        "a block": partial(_path_case, backend, 2, 60, 3, 28),
        "three blocks": partial(_path_case, backend, 1, 150, 2, 64),
        "without gates": partial(_path_case, backend, 2, 99, 2, 32, gated=False),
    }


def _corrections(backend: str) -> Builders:
    return {
        "a block": partial(_correction_case, backend, 2, 99, 3, 28, 48),
        "two blocks": partial(_correction_case, backend, 1, 150, 2, 64, 64),
    }


_PATHS_OF_A_GPU: Builders = {
    **_paths("triton"),
    "spans of blocks": partial(_path_case, "triton", 2, 700, 2, 64),
    "many spans": partial(_path_case, "triton", 1, 2100, 2, 32),
    "three tokens": partial(_path_case, "triton", 3, 3, 2, 64),
    "narrow heads": partial(_path_case, "triton", 2, 600, 2, 16),
    "wide heads": partial(_path_case, "auto", 1, 700, 2, 128),
    "narrow keys, wide values": partial(_path_case, "auto", 2, 600, 2, 16, 100),
    "keys half as wide as values": partial(_path_case, "auto", 1, 600, 2, 64, 128),
    "wide keys, narrow values": partial(_path_case, "auto", 2, 600, 2, 128, 16, gated=False),
}
"""Spans are of 4 blocks of 64 tokens, in float32 32, or more; wide heads in float32 have the torch form."""

_CORRECTIONS_OF_A_GPU: Builders = {
    **_corrections("triton"),
    "parts of many blocks": partial(_correction_case, "triton", 2, 1100, 2, 64, 64),
    "wide heads": partial(_correction_case, "triton", 1, 600, 2, 128, 128),
    "narrow keys, wide values": partial(_correction_case, "triton", 2, 300, 2, 16, 100),
    "keys half as wide as values": partial(_correction_case, "triton", 1, 300, 2, 64, 128),
    "wide keys, narrow values": partial(_correction_case, "triton", 2, 300, 2, 128, 16),
    "values half as wide as keys": partial(_correction_case, "triton", 1, 300, 2, 128, 64),
    "narrow heads, narrower values": partial(_correction_case, "triton", 1, 150, 2, 32, 16),
    "three tokens": partial(_correction_case, "triton", 3, 3, 2, 64, 64),
}
"""256 tokens are solved at a time, and read by so many of the next as have a power of two in common."""

_ALIKE: Mapping[str, Builders] = {
    "stick_breaking": {
        "a part": partial(_whole, stick_breaking, _broken_sticks, 2, 99, 3, 28, 48),
        "two parts": partial(_whole, stick_breaking, _broken_sticks, 1, 150, 2, 64, 64),
    },
    "contextual_attention": {
        "a part": partial(_whole, contextual_attention, _counted_back, 2, 99, 3, 28, 48, table=normal(5, 28)),
        "two parts": partial(
            _whole, contextual_attention, _counted_back, 1, 150, 2, 64, 64, table=normal(64, 64)
        ),
    },
    "mixture_of_blocks": {
        "a part": partial(_blocks_case, mixture_of_blocks, _mixed_blocks, 8, 3, 2, 99, 3, 28, 48),
        "two parts": partial(_blocks_case, mixture_of_blocks, _mixed_blocks, 16, 4, 1, 150, 2, 64, 64),
    },
    "compressed_and_selected": {
        "a part": partial(_blocks_case, _both_branches, _sparse_branches, 8, 4, 2, 99, 3, 28, 48),
        "two parts": partial(_blocks_case, _both_branches, _sparse_branches, 16, 5, 1, 150, 2, 64, 64),
    },
    "delta_positions": {
        "a block": partial(_delta_case, 2, 60, 3, 28),
        "three blocks": partial(_delta_case, 1, 150, 2, 64),
    },
}

CASES: Mapping[str, Builders] = {
    **_ALIKE,
    "path_attention": _paths("blocks"),
    "corrected_values": _corrections("blocks"),
}
"""Cases on a CPU."""

GPU_CASES: Mapping[str, Builders] = {
    **_ALIKE,
    "path_attention": _PATHS_OF_A_GPU,
    "path_attention_in_torch": _paths("blocks"),
    "corrected_values": _CORRECTIONS_OF_A_GPU,
    "corrected_values_in_torch": _corrections("blocks"),
}
"""Cases on a GPU, where Triton's kernels and the torch forms are compared with float64."""
