"""Least squares on a GPU: memories at the borders of chunks, then all systems and what they read at once.

Forward, `sums.sum_writes` stores what every chunk starts from, and `systems.read` solves for all tokens and
reads the values. Backward, `systems.differentiate_reads` solves the same systems for the gradients of the
solutions, `sums.sum_reads` sums gradients by the memories, from the last chunk to the first, and
`sums.differentiate_writes` finds those of all that was written.

Vectors, memories and sums are float32. Products of them have 22 bits; beside bfloat16 keys, which count
exactly, they have 16.
"""

from typing import Any

import torch
from torch import Tensor

from linbench.kernels.decays import FLOORS
from linbench.kernels.least_squares.norm import frobenius
from linbench.kernels.least_squares.problem import LEAST_RIDGE, Problem
from linbench.kernels.least_squares.triton import sums, systems
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.operators import (
    apply_function,
    call_undifferentiated,
    fold_replicas,
    operator,
    vmap_rule,
)

CHUNK = 64
"""Most tokens of a chunk: those of a product that four warps take at once. Chosen, not measured."""

COLUMNS = 64
"""Most columns of a memory that a program sums, and most values of a token that it takes at once.

Measured on an H200 for heads of 64: of 16, 32 and 64 columns these are the fastest by up to a fifth.
"""


@operator("least_squares", differentiable=False)
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    ridge: Tensor,
    bound: Tensor,
    gram: Tensor,
    cross: Tensor,
    steps: int,
    method: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return o, the memories after the last token, and for `backward` x and the memories before each chunk.

    Arguments are those of a `Problem` whose ridge is not bounded yet, with q, k and v in bfloat16 or float32;
    `bound` [B, T, H] is Chebyshev's, of the spectra of Gram matrices.
    """
    q, k, v, log_decay, strength, bound, gram, cross = (
        each.contiguous() for each in (q, k, v, log_decay, strength, bound, gram, cross)
    )
    made = _unfilled(k, v, gram)
    o, last_gram, last_cross, x, grams, crosses = made
    gates, sizes = (log_decay, strength), sizes_of(k, v)
    for values, first, starts, last in ((k, gram, grams, last_gram), (v, cross, crosses, last_cross)):
        grid, columns = _columns(grams, values, k.dtype)
        sums.sum_writes[grid](
            k, values, *gates, first, starts, last, q.shape[1], HW=values.shape[2], **columns, **sizes
        )
    systems.read[(grams.shape[:3].numel(),)](
        q, k, v, *gates, ridge, bound, grams, crosses, x, o, q.shape[1], steps, *ridge.stride(),
        **_tiles(v, k.dtype), METHOD=method, LEAST=LEAST_RIDGE[torch.float32], **sizes,
    )  # fmt: skip
    return made


@operator("least_squares_backward", differentiable=False)
def backward(
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    ridge: Tensor,
    bound: Tensor,
    x: Tensor,
    grams: Tensor,
    crosses: Tensor,
    do: Tensor,
    dgram: Tensor,
    dcross: Tensor,
    steps: int,
    method: str,
    ridge_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients by q, k, v, sums of log decays, strength, ridge, and the memories at the start.

    Those by q and k are for each head of values. That by the ridge is empty unless wanted.
    """
    k, v, log_decay, strength, bound, do, dgram, dcross = (
        each.contiguous() for each in (k, v, log_decay, strength, bound, do, dgram, dcross)
    )
    length, gates, sizes = k.shape[1], (log_decay, strength), sizes_of(k, v)
    y, dsums, dstrength = torch.empty_like(x), torch.empty_like(strength), torch.empty_like(strength)
    dridge = torch.empty_like(x) if ridge_wanted else x.new_empty(len(x), 0)
    grid = (grams.shape[:3].numel(),)
    systems.differentiate_reads[grid](
        k, v, *gates, ridge, bound, grams, crosses, x, do, y, dridge, dsums, length, steps, *ridge.stride(),
        **_tiles(v, k.dtype), RIDGE=ridge_wanted, METHOD=method, LEAST=LEAST_RIDGE[torch.float32], **sizes,
    )  # fmt: skip
    ends, firsts = (torch.empty_like(grams), torch.empty_like(crosses)), []
    for dread, last, each in ((y, dgram, ends[0]), (do, dcross, ends[1])):
        firsts.append(torch.empty_like(last))
        by_column, columns = _columns(grams, dread, k.dtype)
        sums.sum_reads[by_column](
            x, dread, log_decay, last, each, firsts[-1], length, NEGATIVE=dread is y, **columns,
            **{name: size for name, size in sizes.items() if name != "HK"},
        )  # fmt: skip
    dk, dv = x.new_empty(x.shape, dtype=k.dtype if k.shape[2] == x.shape[2] else x.dtype), torch.empty_like(v)
    sums.differentiate_writes[grid](
        k, v, *gates, x, y, do, *ends, dk, dv, dstrength, dsums, length, **_tiles(v, k.dtype), **sizes
    )
    return y, dk, dv, dsums, dstrength, dridge, *firsts  # type: ignore[return-value]


def _unfilled(k: Tensor, v: Tensor, gram: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what `forward` fills."""
    batch, length, heads, value_dim = v.shape
    key_dim = k.shape[3]
    chunks = -(-length // launch(length, _tile(key_dim, k.dtype), k.dtype)[0])

    def made(*size: int) -> Tensor:
        return gram.new_empty(batch, *size)

    return (
        v.new_empty(v.shape),
        made(heads, key_dim, key_dim),
        made(heads, key_dim, value_dim),
        made(length, heads, key_dim),
        made(heads, chunks, key_dim, key_dim),
        made(heads, chunks, key_dim, value_dim),
    )


def sizes_of(k: Tensor, v: Tensor) -> dict[str, Any]:
    """Return what all launches for k [B, T, Hk, K] and v [B, T, H, V] share."""
    width = _tile(k.shape[3], k.dtype)
    chunk, warps = launch(k.shape[1], width, k.dtype)
    sizes = {"H": v.shape[2], "HK": k.shape[2], "K": k.shape[3], "C": chunk, "BK": width}
    return sizes | {"DT": TYPES[k.dtype], "num_warps": warps, "num_stages": 1}


def _columns(grams: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid of programs for some columns of the values [..., W] each, and their sizes."""
    wide = values.shape[-1]
    columns = min(COLUMNS, _tile(wide, dtype))
    return (grams.shape[:2].numel() * -(-wide // columns),), {"W": wide, "BW": columns}


def _tiles(v: Tensor, dtype: torch.dtype) -> dict[str, int]:
    return {"V": v.shape[3], "BV": min(COLUMNS, _tile(v.shape[3], dtype))}


def _tile(size: int, dtype: torch.dtype) -> int:
    """Return how wide a tile is for so many channels, beside keys of a dtype.

    Of fewer than 64, beside 16-bit keys, Triton 3.6 makes wrong gradients on Hopper, or reads beside them.
    """
    return max(power_of_two(size), 16 if dtype == torch.float32 else 64)


def launch(length: int, width: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return the tokens of a chunk, a power of two, and the warps of a program.

    They are what an H100 has registers and shared memory for: of float32, which is split in two parts for its
    products, half as many tokens, and of keys above 64 half as many for twice as many warps. A short sequence
    has smaller chunks only in float32, for the reason that `_tile` has.
    """
    wide = width > 64
    tokens, warps = CHUNK // (1 + wide), 8 if wide else 4
    return (min(tokens // 2, power_of_two(length)) if dtype == torch.float32 else tokens), warps


@forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    return _unfilled(k, v, rest[-4])


@backward.register_fake
def _(*given: Any) -> Any:
    k, v, _, strength, _, _, x, *_, dgram, dcross, _, _, ridge_wanted = given
    dk = x.new_empty(x.shape, dtype=k.dtype if k.shape[2] == x.shape[2] else x.dtype)
    dridge = x.new_empty(x.shape if ridge_wanted else (len(x), 0))
    alike = (v, strength, strength)
    return (
        x.new_empty(x.shape),
        dk,
        *map(torch.empty_like, alike),
        dridge,
        *map(torch.empty_like, (dgram, dcross)),
    )


class LeastSquares(torch.autograd.Function):
    """The function of `forward`, with the implicit gradient."""

    @staticmethod
    def forward(*args: Any) -> Any:
        """Return `forward` of the arguments."""
        return forward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the systems, their solutions and all memories."""
        q, k, v, log_decay, strength, ridge, bound, _, _, ctx.steps, ctx.method = inputs
        _, last_gram, last_cross, *kept = output
        ctx.of_query = q.shape[2], q.dtype
        ctx.save_for_backward(k, v, log_decay, strength, ridge, bound, *kept, last_gram, last_cross)
        ctx.mark_non_differentiable(*kept)

    @staticmethod
    def backward(ctx: Any, do: Tensor, dgram: Tensor, dcross: Tensor, *_: Any) -> Any:
        """Return gradients of all tensors but the bound."""
        *given, last_gram, last_cross = ctx.saved_tensors
        k, _, log_decay, *_ = given
        wanted = ctx.needs_input_grad[5]
        dq, dk, dv, dsums, dstrength, dridge, *firsts = call_undifferentiated(
            backward, *given, do, dgram, dcross, ctx.steps, ctx.method, wanted
        )
        # the sum up to a token holds the decays of all before it; the last memories hold those of all
        last = (dgram * last_gram).sum(dim=(-2, -1)) + (dcross * last_cross).sum(dim=(-2, -1))
        dlog_decay = dsums.double().flip(1).cumsum(1).flip(1) + last[:, None]
        dlog_decay = dlog_decay.to(log_decay.dtype) * (log_decay > FLOORS[torch.float32])
        heads, dtype = ctx.of_query
        dq, dk = _of_groups(dq, heads).to(dtype), _of_groups(dk, heads).to(k.dtype)
        return dq, dk, dv, dlog_decay, dstrength, dridge if wanted else None, None, *firsts, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Take replicas as more sequences."""
        return vmap_rule(LeastSquares.apply, info, in_dims, *args)


def _of_groups(gradient: Tensor, heads: int) -> Tensor:
    """Sum gradients [B, T, H, K] over the heads of values that share one of keys."""
    if gradient.shape[2] == heads:
        return gradient
    return gradient.reshape(*gradient.shape[:2], heads, -1, gradient.shape[3]).sum(dim=3)


fold_replicas(forward)
fold_replicas(backward)


def triton_least_squares(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return o [B, T, H, V] and the final Gram and cross matrices, with the implicit gradient."""
    q, k, v = (x if x.dtype == torch.bfloat16 else x.float() for x in (problem.q, problem.k, problem.v))
    strength = problem.strength
    log_decay = torch.zeros_like(strength) if problem.log_decay is None else problem.log_decay
    bound = torch.zeros_like(strength)
    if problem.method == "chebyshev":
        with torch.no_grad():
            wide = problem.widened()
            bound = frobenius(wide.k, wide.log_decay, strength, wide.gram)
    o, gram, cross, *_ = apply_function(
        LeastSquares, q, k, v, log_decay, strength, problem.ridge, bound, problem.gram, problem.cross,
        problem.steps, problem.method,
    )  # fmt: skip
    return o, gram, cross
