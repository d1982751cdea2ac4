"""The recurrence on a GPU."""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.problem import Problem, Tensors, check
from linbench.kernels.matrix_state.triton import plan
from linbench.kernels.matrix_state.triton.operator import forward, unseen
from linbench.kernels.matrix_state.triton.plan import Switches
from linbench.kernels.matrix_state.update import Delta, LowRank
from linbench.kernels.operators import asks_gradient, looked_on


def triton(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Results as in `linbench.kernels.matrix_state.reference.reference`, in the precision of the inputs; the state in float32, or None if not wanted.

    Raises ValueError, as `check`: the problem need not be checked, and is not if one like it was.
    """
    if looked_on():
        tensors, switches = _taken(check(problem))
        o, last, _ = forward(*tensors, *switches, torch.is_grad_enabled(), problem.final)
        return o, last if problem.final else None
    signature = torch.is_grad_enabled(), problem.signature()
    known = plan.known.get(signature)
    if known is not None:
        return unseen(problem.tensors, known)
    tensors, switches = _taken(check(problem))
    made = plan.form_of(tensors, switches, torch.is_grad_enabled() and asks_gradient(tensors), problem.final).plan()
    if all(x is given for x, given in zip(tensors, problem.tensors, strict=True)):
        plan.known[signature] = made
    return unseen(tensors, made)


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
