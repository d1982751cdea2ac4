"""Least squares on a GPU: memories at the borders of chunks, then all systems and what they read at once.

Forward, `sums.sum_writes` stores what every chunk starts from, and `systems.read` solves for all tokens and
reads the values. Backward, `systems.differentiate_reads` solves the same systems for the gradients of the
solutions, and `sums.sum_reads` sums gradients by the memories, from the last chunk to the first. From these
`sums.differentiate_writes` and `sums.differentiate_decays` find gradients of what was written and of decays.

Vectors, memories and sums are float32. Products of them have 22 bits, or 16 where q, k and v are bfloat16,
which count exactly. Memories before chunks are K (K + V) numbers for every chunk of a head.
"""

from typing import Any

import torch
from torch import Tensor

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

Of 16, 32 and 64 an H200 takes the least time forward with 64, for heads of 64; backward they are alike.
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

    Arguments are those of a `Problem` whose ridge is not bounded yet, with q, k and v all in bfloat16 or all
    in float32. `bound` [B, T, H] is that of the spectra of Gram matrices for Chebyshev's iteration, which
    conjugate gradients do not read.
    """
    q, k, v, log_decay, strength, bound, gram, cross = (
        each.contiguous() for each in (q, k, v, log_decay, strength, bound, gram, cross)
    )
    made = _unfilled(k, v, gram)
    o, last_gram, last_cross, x, grams, crosses = made
    gates, sizes, key_heads = (log_decay, strength), sizes_of(k, v), k.shape[2]
    for values, first, starts, last in ((k, gram, grams, last_gram), (v, cross, crosses, last_cross)):
        grid, columns = _columns(grams, values, k.dtype)
        sums.sum_writes[grid](
            k, values, *gates, first, starts, last, q.shape[1],
            HK=key_heads, HW=values.shape[2], **columns, **sizes,
        )  # fmt: skip
    systems.read[(grams.shape[:3].numel(),)](
        q, k, v, *gates, ridge, bound, grams, crosses, x, o, q.shape[1], steps, *ridge.stride(),
        HK=key_heads, **_tiles(v), METHOD=method, LEAST=LEAST_RIDGE[torch.float32], **sizes,
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
    """Return gradients of q, k, v, log decays, strength, ridge, and the memories before the first token.

    Those of q and k are for each head of values. That of the ridge is empty unless wanted.
    """
    k, v, log_decay, strength, bound, do, dgram, dcross = (
        each.contiguous() for each in (k, v, log_decay, strength, bound, do, dgram, dcross)
    )
    made = _unfilled_gradients(k, v, x, dgram, dcross, ridge_wanted)
    y, dk, dv, dlog_decay, dstrength, dridge, dfirst_gram, dfirst_cross = made
    length, gates, sizes = k.shape[1], (log_decay, strength), sizes_of(k, v)
    grid, values = (grams.shape[:3].numel(),), {"HK": k.shape[2], **_tiles(v)}
    systems.differentiate_reads[grid](
        k, v, *gates, ridge, bound, grams, crosses, x, do, y, dridge, length, steps, *ridge.stride(),
        RIDGE=ridge_wanted, METHOD=method, LEAST=LEAST_RIDGE[torch.float32], **values, **sizes,
    )  # fmt: skip
    ends = torch.empty_like(grams), torch.empty_like(crosses)
    for dread, last, each, first in ((y, dgram, ends[0], dfirst_gram), (do, dcross, ends[1], dfirst_cross)):
        by_column, columns = _columns(grams, dread, k.dtype)
        sums.sum_reads[by_column](
            x, dread, log_decay, last, each, first, length, NEGATIVE=dread is y, **columns, **sizes
        )
    sums.differentiate_writes[grid](
        k, v, *gates, x, y, do, *ends, dk, dv, dstrength, length, **values, **sizes
    )
    sums.differentiate_decays[grid](
        k, v, *gates, x, y, do, grams, crosses, *ends, dlog_decay, length, **values, **sizes
    )
    return made


def _unfilled(k: Tensor, v: Tensor, gram: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what `forward` fills."""
    batch, length, heads, value_dim = v.shape
    key_dim = k.shape[3]
    chunks = -(-length // sizes_of(k, v)["C"])

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


def _unfilled_gradients(
    k: Tensor, v: Tensor, x: Tensor, dgram: Tensor, dcross: Tensor, ridge_wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what `backward` fills; keys that several heads share have gradients in float32, to be summed."""
    shared = k.shape[2] < x.shape[2]
    return (
        x.new_empty(x.shape),
        x.new_empty(x.shape, dtype=x.dtype if shared else k.dtype),
        v.new_empty(v.shape),
        x.new_empty(x.shape[:3]),
        x.new_empty(x.shape[:3]),
        x.new_empty(x.shape if ridge_wanted else (len(x), 0)),
        dgram.new_empty(dgram.shape),
        dcross.new_empty(dcross.shape),
    )


def sizes_of(k: Tensor, v: Tensor) -> dict[str, Any]:
    """Return what all launches for k [B, T, Hk, K] and v [B, T, H, V] share."""
    width = _tile(k.shape[3], k.dtype)
    chunk, warps = launch(k.shape[1], width, k.dtype)
    sizes = {"H": v.shape[2], "K": k.shape[3], "C": chunk, "BK": width}
    return sizes | {"DT": TYPES[k.dtype], "num_warps": warps, "num_stages": 1}


def _columns(grams: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid of programs for some columns of the values [..., W] each, and their sizes."""
    wide = values.shape[-1]
    columns = min(COLUMNS, _tile(wide, dtype))
    return (grams.shape[:2].numel() * -(-wide // columns),), {"W": wide, "BW": columns}


def _tiles(v: Tensor) -> dict[str, int]:
    return {"V": v.shape[3], "BV": min(COLUMNS, _tile(v.shape[3], v.dtype))}


def _tile(size: int, dtype: torch.dtype) -> int:
    """Return how wide a tile is for so many channels, beside keys of a dtype.

    Of fewer than 64 in 16 bits, Triton 3.6 makes wrong gradients on Hopper, or reads out of bounds.
    """
    return max(power_of_two(size), 16 if dtype == torch.float32 else 64)


def launch(length: int, width: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return the tokens of a chunk, a power of two, and the warps of a program.

    They are what an H100 has registers and shared memory for: of float32, which is split in two parts for its
    products, half as many tokens, and of keys above 64 half as many for twice as many warps. A short sequence
    has smaller chunks in float32 alone: so each width has one form in 16 bits, which an H200 has right.
    """
    wide = width > 64
    tokens, warps = CHUNK // (1 + wide), 8 if wide else 4
    return (min(tokens // 2, power_of_two(length)) if dtype == torch.float32 else tokens), warps


@forward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    ridge: Tensor,
    bound: Tensor,
    gram: Tensor,
    *_: Any,
) -> Any:
    return _unfilled(k, v, gram)


@backward.register_fake
def _(
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
) -> Any:
    return _unfilled_gradients(k, v, x, dgram, dcross, ridge_wanted)


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
        ctx.of_query = q.shape[2], q.dtype
        ctx.save_for_backward(k, v, log_decay, strength, ridge, bound, *output[3:])
        ctx.mark_non_differentiable(*output[3:])

    @staticmethod
    def backward(ctx: Any, do: Tensor, dgram: Tensor, dcross: Tensor, *_: Any) -> Any:
        """Return gradients of all tensors but the bound."""
        (heads, dtype), saved, wanted = ctx.of_query, ctx.saved_tensors, ctx.needs_input_grad[5]
        dq, dk, dv, dlog_decay, dstrength, dridge, *firsts = call_undifferentiated(
            backward, *saved, do, dgram, dcross, ctx.steps, ctx.method, wanted
        )
        dq, dk = _of_groups(dq, heads).to(dtype), _of_groups(dk, heads).to(saved[0].dtype)
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
    given, strength = (problem.q, problem.k, problem.v), problem.strength
    dtype = torch.bfloat16 if all(x.dtype == torch.bfloat16 for x in given) else torch.float32
    q, k, v = (x.to(dtype).contiguous() for x in given)
    zeros = torch.zeros_like(strength)
    log_decay = zeros if problem.log_decay is None else problem.log_decay
    bound = zeros
    if problem.method == "chebyshev":
        with torch.no_grad():
            bound = frobenius(k, log_decay, strength, problem.gram)
    o, gram, cross, *_ = apply_function(
        LeastSquares, q, k, v, log_decay, strength, problem.ridge, bound, problem.gram, problem.cross,
        problem.steps, problem.method,
    )  # fmt: skip
    return o, gram, cross
