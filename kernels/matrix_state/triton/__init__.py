"""The recurrence on a GPU."""

from torch import Tensor

from linbench.kernels.matrix_state.problem import Problem
from linbench.kernels.matrix_state.triton.operator import matrix_state
from linbench.kernels.matrix_state.triton.plan import Switches
from linbench.kernels.matrix_state.update import Delta, LowRank


def triton(problem: Problem) -> tuple[Tensor, Tensor]:
    """Results as in `linbench.kernels.matrix_state.reference.reference`, in the precision of the inputs; the state in float32."""
    q, k, v, log_decay, update, read, _, scale, state, final, bonus = problem
    beta, p, b, kind = None, None, None, "add"
    if isinstance(update, Delta):
        beta, p, kind = update.beta, update.erase_key, "delta"
    elif isinstance(update, LowRank):
        p, b, kind = update.a, update.b, "low_rank"
    neg_eigval = isinstance(update, Delta) and update.neg_eigval
    p_before = kind == "low_rank" or (isinstance(update, Delta) and update.reads == "undecayed")
    if state is not None:
        state = state.float()
    if scale <= 0:  # kernels take its logarithm
        q, scale = scale * q, 1.0
    return matrix_state((q, k, v, log_decay, beta, p, b, bonus, state), Switches(scale, kind, read == "before", p_before, neg_eigval), final)
