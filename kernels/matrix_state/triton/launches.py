"""The launches of kernels on tensors.

A kernel's parameters are looked up by name: a name means the same thing in all of them.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Tensors
from linbench.kernels.matrix_state.triton import (
    fused,
    launch,
    recurrent,
    split,
    split_backward,
    split_gradients,
)
from linbench.kernels.matrix_state.triton.bonus import bonus_gradient
from linbench.kernels.matrix_state.triton.launch import KernelLaunch
from linbench.kernels.matrix_state.triton.plan import (
    COTANGENTS,
    GIVEN,
    GRADIENTS,
    PER_KEY_HEAD,
    Plan,
)
from linbench.kernels.matrix_state.triton.workspace import Workspace
from linbench.kernels.precompile import KernelCall, compile_together

BONUS_KEYS, BONUS_PARTS, BONUS_WARPS = 16, 512, 4
"""Keys that one program of `bonus_gradient` adds up, parts that it reads at once, and its warps.

Programs are few, so that each has many loads on their way.
"""


class Call:
    """One call by a plan: the addresses of its tensors."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.addresses: dict[str, int] = {}
        self.aligned = True
        """True if all tensors begin where Triton expects it by default."""
        self.workspaces: list[tuple[Workspace, Tensor]] = []

    def place(self, names: Iterable[str], tensors: Iterable[Tensor | None]) -> None:
        """Add tensors by name; None for those that are not there."""
        ends = 0
        for name, x in zip(names, tensors, strict=True):
            if x is not None:
                self.tensors[name] = x = x.contiguous()
                self.addresses[name] = address = x.data_ptr()
                ends |= address
        self.aligned &= ends % launch.ALIGNMENT == 0

    def bind(self, workspace: Workspace, memory: Tensor) -> None:
        """Add all tensors that lie in a workspace."""
        self.workspaces.append((workspace, memory))
        start = memory.data_ptr()
        for name, offset in workspace.offsets.items():
            self.addresses[name] = start + offset

    def views(self) -> dict[str, Tensor]:
        """Return all tensors, for a kernel that is not compiled yet."""
        views = self.tensors.copy()
        for workspace, memory in self.workspaces:
            views |= {name: workspace.view(memory, name) for name in workspace.contents}
        return views

    def run(self, launches: Iterable[KernelLaunch]) -> None:
        """Launch kernels one after the other."""
        for each in launches:
            each.launch(self.addresses, self.views, self.aligned)


def by_row(plan: Plan, kernel: Any, *, back: bool = False) -> KernelLaunch:
    """Return the launch of a kernel that goes through all tokens for every row."""
    return KernelLaunch(
        kernel, (plan.rows,), plan.values, warps=plan.launch.warps[back], stages=plan.launch.stages[back]
    )


def by_chunk(plan: Plan, kernel: Any, **values: Any) -> KernelLaunch:
    """Return the launch of a kernel that takes all chunks side by side."""
    return KernelLaunch(
        kernel,
        (plan.chunks * plan.rows,),
        plan.values | values,
        warps=plan.launch.warps[1],
        registers=plan.launch.registers[1],
    )


def by_chunks(plan: Plan, kernel: Any, **values: Any) -> KernelLaunch:
    """Return the launch of a kernel that takes several chunks of a scalar decay together."""
    return KernelLaunch(
        kernel,
        (-(-plan.chunks // plan.at_once) * plan.rows,),
        plan.values | values,
        warps=plan.launch.warps[1],
    )


def by_block(plan: Plan, kernel: Any, *, back: bool = False) -> KernelLaunch:
    """Return the launch of a kernel that goes through all tokens for every row and block of the state."""
    keys, values = plan.launch.pass_keys, plan.launch.pass_values
    grid = -(-plan.value_dim // values) * plan.rows, -(-plan.key_dim // keys)
    blocks = plan.values | {"BK": keys, "BV": values}
    return KernelLaunch(
        kernel,
        grid,
        blocks,
        warps=plan.launch.warps[0],
        stages=plan.launch.stages[back],
        registers=plan.launch.registers[0],
    )


@cache
def forward_launches(plan: Plan) -> tuple[KernelLaunch, ...]:
    """Return the launches of forward."""
    if plan.launch.schedule == "recurrent":
        return (by_block(plan, recurrent.recurrent),)
    if plan.launch.schedule == "fused":
        return (by_row(plan, fused.forward),)
    decays = plan.decay == "vector"
    prepared = decays or plan.update == "low_rank"
    launches = [by_chunks(plan, split.decay_sums)] if plan.decay == "scalar" else []
    if decays or plan.solves:
        keys = min(plan.launch.key_block, launch.FEW_KEYS) if decays else plan.launch.key_block
        values = min(plan.launch.value_block, launch.FEW_VALUES)
        launches.append(by_chunk(plan, split.prepare_wy, BK=keys, BV=values, PREPARED=prepared))
    launches.append(by_block(plan, split.pass_state))
    launches.append(by_chunk(plan, split.chunk_output, PREPARED=prepared))
    return tuple(launches)


@cache
def backward_launches(plan: Plan) -> tuple[KernelLaunch, ...]:
    """Return the launches of backward."""
    launches = list(_split_backward(plan)) if plan.split else [by_row(plan, fused.backward, back=True)]
    if plan.replicas:
        grid = plan.replicas * plan.heads, -(-plan.key_dim // BONUS_KEYS)
        parts = plan.batch // plan.replicas * plan.chunks
        values = plan.values | {"parts": parts, "KEYS": BONUS_KEYS, "AT_A_TIME": BONUS_PARTS}
        launches.append(KernelLaunch(bonus_gradient, grid, values, warps=BONUS_WARPS))
    return tuple(launches)


def _split_backward(plan: Plan) -> Iterator[KernelLaunch]:
    if plan.launch.joined:
        yield by_block(plan, split_backward.pass_state_backward, back=True)
    elif plan.solves:
        yield by_chunk(plan, split_backward.write_gradients)
        yield by_block(plan, split_backward.pass_state_backward, back=True)
        yield by_chunk(plan, split_backward.value_gradients)
    else:
        yield by_block(plan, split_backward.pass_state_backward, back=True)
        yield by_chunk(plan, split_backward.write_gradients)
    grid = plan.chunks * plan.rows, plan.key_blocks
    yield KernelLaunch(
        split_gradients.gradients,
        grid,
        plan.values,
        warps=plan.launch.warps[2],
        registers=plan.launch.registers[2],
    )
    if plan.decay == "scalar":
        yield by_chunks(plan, split_gradients.summed_gradients, P=plan.key_blocks)


def compile_launches(plan: Plan) -> None:
    """Compile what the plan launches, side by side.

    If a gradient is asked for, also what backward will launch for a gradient of o alone.
    """
    plans = [plan]
    if plan.gradient and not plan.back:
        plans.append(plan.backward(plan.types()["o"], None))
    calls = []
    for each in plans:
        types, each.compiled = each.types(), True
        for step in backward_launches(each) if each.back else forward_launches(each):
            calls.append(KernelCall(step.kernel, step.grid, tuple(step.arguments(types)), step.options))
    compile_together(calls, plan.key.device)


def results(v: Tensor, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Allocate o and, if it is wanted, the final state."""
    o = v.new_empty((plan.batch, plan.tokens, plan.heads, plan.value_dim))
    if not plan.final:
        return o, None
    return o, v.new_empty((plan.batch, plan.heads, plan.key_dim, plan.value_dim), dtype=torch.float32)


def forward(tensors: Tensors, plan: Plan) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return o, the final state if it is wanted, and the `saved` workspace, which `backward` needs."""
    if not plan.compiled:
        compile_launches(plan)
    call = Call()
    call.place(GIVEN, tensors)
    o, last = made = results(tensors[2], plan)
    call.place(("o", "last"), made)
    saved = plan.saved.empty(o)
    call.bind(plan.saved, saved)
    call.run(forward_launches(plan))
    return o, last, saved


def backward(
    tensors: Tensors, saved: Tensor, do: Tensor, dlast: Tensor | None, plan: Plan
) -> list[Tensor | None]:
    """Return the gradients of the tensors, None for those that were not given.

    The plan is one for `backward`.
    """
    if not plan.compiled:
        compile_launches(plan)
    call = Call()
    call.place(GIVEN, tensors)
    call.place(COTANGENTS, (do, dlast))
    gradients = [
        None if x is None else _place_of_gradient(name, call.tensors[name], plan)
        for name, x in zip(GIVEN, tensors, strict=True)
    ]
    call.place(GRADIENTS, gradients)
    if not plan.solves:
        call.place(("dwrites",), (gradients[2],))
    call.bind(plan.saved, saved)
    if plan.scratch.contents:
        scratch = plan.scratch.empty(do)
        call.bind(plan.scratch, scratch)  # in the split schedule parts of dbeta, in its stead
    call.run(backward_launches(plan))
    if "dbeta" in plan.scratch.contents:  # it sums over keys and values
        dbeta = call.tensors["dbeta"]
        torch.sum(plan.scratch.view(scratch, "dbeta"), dim=0, dtype=dbeta.dtype, out=dbeta)
    if plan.grouped:
        for place, (name, x) in enumerate(zip(GIVEN, tensors, strict=True)):
            gradient = gradients[place]
            if name in PER_KEY_HEAD and x is not None and gradient is not None:
                gradients[place] = _per_key_head(gradient, x)
    return gradients


def _place_of_gradient(name: str, x: Tensor, plan: Plan) -> Tensor:
    """Allocate a gradient: like x, or [B, T, H, K], one for each value head, if several share x."""
    if plan.grouped and name in PER_KEY_HEAD:
        return x.new_empty((*x.shape[:2], plan.heads, plan.key_dim), dtype=plan.gradient_type(name, x.dtype))
    return torch.empty_like(x)


def _per_key_head(gradient: Tensor, x: Tensor) -> Tensor:
    """Sum a gradient over the value heads that a key head serves."""
    return gradient.reshape(*x.shape[:3], -1, x.shape[3]).sum(dim=3).to(x.dtype)
