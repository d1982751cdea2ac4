"""The recurrence as torch operators: they differentiate, stack under vmap, compile, and are captured by CUDA graphs."""

from typing import Any, cast

import torch
from torch import Tensor

from linbench.kernels.matrix_state.triton import schedules
from linbench.kernels.matrix_state.triton.plan import Switches
from linbench.kernels.matrix_state.triton.schedules import plan_of, results
from linbench.kernels.operators import fold_replicas, operator

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
    """o, the final state, empty if not wanted, and what `backward` needs if asked to `save` it. u: [H, K], or of several replicas one below the other."""
    return schedules.forward((q, k, v, g, beta, p, b, u, state), Switches(scale, update, q_before, p_before, neg_eigval), save, final)


def gradients(*args: Any) -> schedules.Gradients:
    """As `backward`, but None for what was not given, which takes the host no time."""
    *tensors, saved, do, dlast, scale, update, q_before, p_before, neg_eigval = args
    return schedules.backward(cast("schedules.Tensors", tuple(tensors)), saved, do, dlast, Switches(scale, update, q_before, p_before, neg_eigval))


@operator("matrix_state_backward", differentiable=False, direct=gradients)
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
    """Gradients of q, k, v, g, beta, p, b, u and the initial state; empty for what was not given."""
    made = gradients(q, k, v, g, beta, p, b, u, state, saved, do, dlast, scale, update, q_before, p_before, neg_eigval)
    return cast("Gradients", tuple(v.new_empty(len(v), 0) if x is None else x for x in made))


@forward.register_fake
def _(*args: Any) -> Any:
    *tensors, scale, update, q_before, p_before, neg_eigval, save, final = args
    plan = plan_of((*tensors, None, None), Switches(scale, update, q_before, p_before, neg_eigval), save, final)
    o, last = results(tensors[2], plan)
    return o, last, plan.saved.empty(o)


@backward.register_fake
def _(*args: Any) -> Any:
    return tuple(args[2].new_empty(len(args[2]), 0) if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in args[:9])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, ctx.update, ctx.q_before, ctx.p_before, ctx.neg_eigval, _, _ = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.set_materialize_grads(False)


def _none_of(q: Tensor, _: Tensor, v: Tensor) -> Tensor:
    """A gradient of o that is zero: [B, T, H, V]."""
    return v.new_zeros(*q.shape[:2], *v.shape[2:])


def _differentiate(ctx: Any, do: Tensor | None, dlast: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    do = _none_of(*saved[:3]) if do is None else do
    made = backward(*saved, do, dlast, ctx.scale, ctx.update, ctx.q_before, ctx.p_before, ctx.neg_eigval)
    return *(None if given is None else x for x, given in zip(made, saved[:9], strict=True)), *(None,) * 7


forward.register_autograd(_differentiate, setup_context=_remember)
fold_replicas(forward)
fold_replicas(backward)


def matrix_state(*args: Any) -> tuple[Tensor, Tensor]:
    """o and the final state; arguments as of `forward`."""
    o, last, _ = forward(*args)
    return o, last
