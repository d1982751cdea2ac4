"""The recurrence as torch operators.

They differentiate, stack under vmap, compile, and are captured by CUDA graphs.
"""

from typing import Any, cast

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Tensors
from linbench.kernels.matrix_state.triton import launches
from linbench.kernels.matrix_state.triton.launches import results
from linbench.kernels.matrix_state.triton.plan import Options, Plan, plan_key
from linbench.kernels.operators import Function, fold_replicas, is_traced, operator

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


@operator("matrix_state")
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    p: Tensor | None,
    b: Tensor | None,
    u: Tensor | None,
    state: Tensor | None,
    scale: float,
    update: str,
    q_before: bool,
    p_before: bool,
    neg_eigval: bool,
    save: bool,
    final: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, the final state, empty if not wanted, and what `backward` needs if asked to `save` it.

    u is [H, K], or those of several replicas one below the other.
    """
    tensors = (q, k, v, g, beta, p, b, u, state)
    o, last, saved = launches.forward(
        tensors, plan_key(tensors, Options(scale, update, q_before, p_before, neg_eigval), save, final).plan()
    )
    return o, _none(v) if last is None else last, saved


def _type(x: Tensor | None) -> torch.dtype | None:
    return None if x is None else x.dtype


def _none(v: Tensor) -> Tensor:
    """Return an empty tensor [B, 0] that stands for one that is not there."""
    return v.new_empty((len(v), 0), dtype=torch.float32)


@operator("matrix_state_backward", differentiable=False)
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    p: Tensor | None,
    b: Tensor | None,
    u: Tensor | None,
    state: Tensor | None,
    saved: Tensor,
    do: Tensor,
    dlast: Tensor | None,
    scale: float,
    update: str,
    q_before: bool,
    p_before: bool,
    neg_eigval: bool,
) -> Gradients:
    """Return gradients of q, k, v, g, beta, p, b, u and the initial state; empty for what was not given."""
    tensors = (q, k, v, g, beta, p, b, u, state)
    key = plan_key(tensors, Options(scale, update, q_before, p_before, neg_eigval), True, True)
    made = launches.backward(tensors, saved, do, dlast, key.backward(do.dtype, _type(dlast)).plan())
    return cast("Gradients", tuple(_none(v) if x is None else x for x in made))


@forward.register_fake
def _(*args: Any) -> Any:
    *tensors, scale, update, q_before, p_before, neg_eigval, save, final = args
    plan = (
        plan_key(
            cast("Tensors", tuple(tensors)),
            Options(scale, update, q_before, p_before, neg_eigval),
            save,
            final,
        )
        .of_numbers()
        .plan()
    )
    o, last = results(tensors[2], plan)
    return o, _none(tensors[2]) if last is None else last, plan.saved.empty(o)


@backward.register_fake
def _(*args: Any) -> Any:
    return tuple(
        _none(args[2]) if x is None else torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in args[:9]
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, scale, update, q_before, p_before, neg_eigval, _, _ = inputs
    ctx.switches = Options(scale, update, q_before, p_before, neg_eigval)
    ctx.save_for_backward(*tensors, output[2])
    ctx.set_materialize_grads(False)


def _zero_gradient(q: Tensor, _: Tensor, v: Tensor) -> Tensor:
    """Return a gradient of o that is zero: [B, T, H, V]."""
    return v.new_zeros(*q.shape[:2], *v.shape[2:])


def _differentiate(ctx: Any, do: Tensor | None, dlast: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    made = backward(*saved, _zero_gradient(*saved[:3]) if do is None else do, dlast, *ctx.switches)
    return *(None if given is None else x for x, given in zip(made, saved[:9], strict=True)), *(None,) * 7


forward.register_autograd(_differentiate, setup_context=_remember)
fold_replicas(forward)
fold_replicas(backward)


class _EagerFunction(Function):  # type: ignore[misc]
    """The recurrence as an autograd function, for calls that torch is not tracing.

    What passes between forward and backward, and arguments that were not given, need no tensors, and no plan
    is made anew.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Any) -> Tensor | tuple[Tensor, Tensor]:
        o, last, saved = launches.forward(cast("Tensors", tensors), plan)
        ctx.plan = plan
        ctx.save_for_backward(*tensors, saved)
        ctx.set_materialize_grads(False)
        return o if last is None else (o, last)

    @staticmethod
    def backward(ctx: Any, do: Tensor | None, dlast: Tensor | None = None) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        if is_traced() or torch.is_grad_enabled():
            ctx.switches = plan.key.switches
            return None, *_differentiate(ctx, do, dlast)[:9]
        *tensors, saved = ctx.saved_tensors
        do = _zero_gradient(*tensors[:3]) if do is None else do
        return None, *launches.backward(tensors, saved, do, dlast, plan.backward(do.dtype, _type(dlast)))


def apply_eager(tensors: Tensors, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Return o, and the final state if it is wanted, for tensors that the plan was made for.

    Only for calls that are not traced (`is_traced`).
    """
    if plan.gradient:
        made = _EagerFunction.apply(plan, *tensors)
        return made if plan.final else (made, None)
    o, last, _ = launches.forward(tensors, plan)
    return o, last
