"""The recurrence on a GPU."""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Recurrence, Tensors, check
from linbench.kernels.matrix_state.triton import plan
from linbench.kernels.matrix_state.triton.operator import apply_eager, forward
from linbench.kernels.matrix_state.triton.plan import Options
from linbench.kernels.matrix_state.update import Delta, LowRank
from linbench.kernels.operators import any_requires_grad, is_traced

_COUNTED = 2**31
"""Most numbers of one sequence that kernels count, in int32."""


def triton(recurrence: Recurrence) -> tuple[Tensor, Tensor | None]:
    """Return o and the state, as the reference, in the precision of the inputs.

    The state is float32, or None if it is not wanted. The recurrence need not be checked, and is not if one
    with its signature was.

    Raises ValueError, as `check`.
    """
    seen = is_traced()
    signature = None if seen else (torch.is_grad_enabled(), recurrence.signature())
    if not seen and (known := plan.known.get(signature)) is not None:
        return apply_eager(recurrence.tensors, known)
    given, recurrence = recurrence, check(recurrence)
    *_, key_dim = recurrence.q.shape
    *_, heads, value_dim = recurrence.v.shape
    # so that each piece begins where Triton expects it by default
    longest = (_COUNTED - 1) // (recurrence.steps * heads * max(key_dim, value_dim)) // 8 * 8
    if recurrence.q.shape[1] > longest:
        return _in_pieces(recurrence, longest)
    if (
        (key_dim % 2 or value_dim % 2)
        and recurrence.v.element_size() == 2
        and (recurrence.q.shape[1] > 1 or torch.is_grad_enabled())
    ):
        return _of_whole_words(recurrence)
    tensors, switches = _kernel_arguments(recurrence)
    if seen:
        o, last, _ = forward(*tensors, *switches, torch.is_grad_enabled(), recurrence.final)
        return o, last if recurrence.final else None
    made = plan.plan_key(
        tensors, switches, torch.is_grad_enabled() and any_requires_grad(tensors), recurrence.final
    ).plan()
    if all(x is handed for x, handed in zip(tensors, given.tensors, strict=True)):
        plan.known[signature] = made
    return apply_eager(tensors, made)


def _in_pieces(recurrence: Recurrence, longest: int) -> tuple[Tensor, Tensor | None]:
    """Compute pieces of a sequence one after the other, with the state carried on."""
    length, last, outputs = recurrence.q.shape[1], recurrence.state, []
    for first in range(0, length, longest):
        end = min(first + longest, length)
        o, last = triton(
            recurrence.slice_tokens(first, end)._replace(state=last, final=recurrence.final or end < length)
        )
        outputs.append(o)
    return torch.cat(outputs, dim=1), last


def _of_whole_words(recurrence: Recurrence) -> tuple[Tensor, Tensor | None]:
    """Compute odd heads of 16 bits with one zero more.

    Their rows begin within a word of 32 bits, so that they would be read a number at a time. And an H200
    reported that kernels for heads of 39 read out of bounds (Triton 3.6), though every address that the
    compiler was given lies within.
    """
    key_dim, value_dim = recurrence.k.shape[3], recurrence.v.shape[3]
    o, last = triton(recurrence.pad_heads(key_dim % 2, value_dim % 2))
    return o[..., :value_dim], None if last is None else last[..., :key_dim, :value_dim]


def _kernel_arguments(recurrence: Recurrence) -> tuple[Tensors, Options]:
    """Return the tensors and options that kernels take, of a checked recurrence."""
    update, scale = recurrence.update, recurrence.scale
    if recurrence.state is not None:
        recurrence = recurrence._replace(state=recurrence.state.float())
    if scale <= 0:  # kernels take its logarithm
        recurrence, scale = recurrence._replace(q=scale * recurrence.q), 1.0
    kind = "delta" if isinstance(update, Delta) else "low_rank" if isinstance(update, LowRank) else "add"
    neg_eigval = isinstance(update, Delta) and update.neg_eigval
    return recurrence.tensors, Options(
        scale, kind, recurrence.read == "before", update.reads_before, neg_eigval
    )
