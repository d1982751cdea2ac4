"""The recurrence on a GPU."""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Problem, Tensors, check
from linbench.kernels.matrix_state.triton import plan
from linbench.kernels.matrix_state.triton.operator import forward, unseen
from linbench.kernels.matrix_state.triton.plan import Switches
from linbench.kernels.matrix_state.update import Delta, LowRank
from linbench.kernels.operators import asks_gradient, looked_on

_COUNTED = 2**31
"""Numbers of one sequence that kernels count, in int32."""


def triton(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Results as in `linbench.kernels.matrix_state.reference.reference`, in the precision of the inputs; the
    state in float32, or None if not wanted.

    Raises ValueError, as `check`: the problem need not be checked, and is not if one like it was.
    """
    seen = looked_on()
    signature = None if seen else (torch.is_grad_enabled(), problem.signature())
    if not seen and (known := plan.known.get(signature)) is not None:
        return unseen(problem.tensors, known)
    given, problem = problem, check(problem)
    *_, key_dim = problem.q.shape
    *_, heads, value_dim = problem.v.shape
    # so that each piece begins where Triton expects it by default
    longest = (_COUNTED - 1) // (problem.steps * heads * max(key_dim, value_dim)) // 8 * 8
    if problem.q.shape[1] > longest:
        return _in_pieces(problem, longest)
    if (
        (key_dim % 2 or value_dim % 2)
        and problem.v.element_size() == 2
        and (problem.q.shape[1] > 1 or torch.is_grad_enabled())
    ):
        return _of_whole_words(problem)
    tensors, switches = _taken(problem)
    if seen:
        o, last, _ = forward(*tensors, *switches, torch.is_grad_enabled(), problem.final)
        return o, last if problem.final else None
    made = plan.form_of(
        tensors, switches, torch.is_grad_enabled() and asks_gradient(tensors), problem.final
    ).plan()
    if all(x is handed for x, handed in zip(tensors, given.tensors, strict=True)):
        plan.known[signature] = made
    return unseen(tensors, made)


def _in_pieces(problem: Problem, longest: int) -> tuple[Tensor, Tensor | None]:
    """One after the other, the state carried on."""
    length, last, outputs = problem.q.shape[1], problem.state, []
    for first in range(0, length, longest):
        end = min(first + longest, length)
        o, last = triton(
            problem.between(first, end)._replace(state=last, final=problem.final or end < length)
        )
        outputs.append(o)
    return torch.cat(outputs, dim=1), last


def _of_whole_words(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Odd heads of 16 bits with one zero more. Their rows begin within a word of 32 bits, so that they are
    read a number at a time; and of kernels for heads of 39 an H200 said that they read what is not there
    (Triton 3.6), though all that the compiler was given lies within."""
    key_dim, value_dim = problem.k.shape[3], problem.v.shape[3]
    o, last = triton(problem.padded(key_dim % 2, value_dim % 2))
    return o[..., :value_dim], None if last is None else last[..., :key_dim, :value_dim]


def _taken(problem: Problem) -> tuple[Tensors, Switches]:
    """What kernels take of one that was checked."""
    update, scale = problem.update, problem.scale
    if problem.state is not None:
        problem = problem._replace(state=problem.state.float())
    if scale <= 0:  # kernels take its logarithm
        problem, scale = problem._replace(q=scale * problem.q), 1.0
    kind = "delta" if isinstance(update, Delta) else "low_rank" if isinstance(update, LowRank) else "add"
    neg_eigval = isinstance(update, Delta) and update.neg_eigval
    return problem.tensors, Switches(scale, kind, problem.read == "before", update.reads_before, neg_eigval)
