"""From tensors to launches. A kernel's parameters are looked up by name: a name means the same thing in all of them."""

from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.matrix_state.triton import fused, launch, recurrent, split, split_backward
from linbench.kernels.matrix_state.triton.bonus import bonus_gradient
from linbench.kernels.matrix_state.triton.plan import GIVEN, Plan, Room, Tensors

BONUS_KEYS, BONUS_PARTS, BONUS_WARPS = 16, 512, 4
"""That one program adds up, that it reads at once, and that it has: few programs, so that each has much on its way."""


class Call:
    """One call by a plan: where its tensors lie. do, dlast: in backward, the gradients of o and of the final state, or None."""

    def __init__(self, tensors: Tensors, plan: Plan, do: Tensor | None = None, dlast: Tensor | None = None) -> None:
        self.plan = plan
        self.tensors = {name: x.contiguous() for name, x in zip(GIVEN, (*tensors, do, dlast), strict=True) if x is not None}
        self.addresses = {name: x.data_ptr() for name, x in self.tensors.items()}
        self.rooms: list[tuple[Room, Tensor]] = []
        aligned = reduce(or_, self.addresses.values()) % launch.ALIGNMENT == 0
        self.form = plan if aligned else None
        """Of its launches: none unless all that was given begins where Triton expects it by default."""

    def place(self, **tensors: Tensor | None) -> None:
        """More tensors by name; None for what there is not."""
        for name, x in tensors.items():
            if x is not None:
                self.tensors[name] = x
                self.addresses[name] = x.data_ptr()

    def furnish(self, room: Room, memory: Tensor) -> None:
        """More tensors: all that lie in a room."""
        self.rooms.append((room, memory))
        start = memory.data_ptr()
        for name, offset in room.offsets.items():
            self.addresses[name] = start + offset

    def run(self, kernel: Any, grid: tuple[int, ...], warps: int, *, stages: int = 1, registers: int | None = None, **more: Any) -> None:
        """Launch with the values of the plan and `more`."""

        def values() -> dict[str, Any]:
            return self.plan.values | self.views() | more

        launch.launch(kernel, grid, self.form, self.addresses, values, num_warps=warps, num_stages=stages, maxnreg=registers)

    def views(self) -> dict[str, Tensor]:
        """All tensors, for a kernel that is not compiled yet."""
        return self.tensors | {name: room.view(memory, name) for room, memory in self.rooms for name in room.contents}

    def chunk(self, kernel: Any, **more: Any) -> None:
        """Launch what goes through all chunks side by side."""
        self.run(kernel, (self.plan.chunks, self.plan.rows), self.plan.launch.warps[1], registers=self.plan.launch.registers[1], **more)

    def walk(self, kernel: Any, *, back: bool = False, **more: Any) -> None:
        """Launch what goes through all tokens for every row, block of values and block of keys."""
        keys, values = self.plan.launch.walk_keys, self.plan.launch.walk_values
        grid = -(-self.plan.value_dim // values), self.plan.rows, -(-self.plan.key_dim // keys)
        self.run(kernel, grid, self.plan.launch.warps[0], stages=self.plan.launch.stages[back], BK=keys, BV=values, **more)


def results(v: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Places for o and the final state, an empty one if it is not wanted."""
    read, last = (plan.batch, plan.tokens, plan.heads, plan.value_dim), (plan.batch, plan.heads, plan.key_dim, plan.value_dim)
    return v.new_empty(read), v.new_empty(last if plan.final else (plan.batch, 0), dtype=torch.float32)


def forward(tensors: Tensors, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """o, the final state, empty if not wanted, and what `backward` needs if the plan is for a gradient: the room that it calls `saved`."""
    call = Call(tensors, plan)
    o, last = results(tensors[2], plan)
    saved = plan.saved.empty(o)
    call.place(o=o, last=last if plan.final else None)
    call.furnish(plan.saved, saved)
    if plan.launch.schedule == "recurrent":
        call.walk(recurrent.recurrent)
    elif plan.split:
        decays = plan.decay == "vector"
        prepared = decays or plan.update == "low_rank"
        if plan.decay == "scalar":
            call.run(split.decay_sums, plan.sums_grid, plan.launch.warps[1])
        if decays or plan.solves:
            keys = min(plan.launch.key_block, launch.FEW_KEYS) if decays else plan.launch.key_block
            call.chunk(split.prepare, BK=keys, BV=min(plan.launch.value_block, launch.FEW_VALUES), PREPARED=prepared)
        call.walk(split.walk)
        call.chunk(split.read, PREPARED=prepared)
    else:
        call.run(fused.forward, (plan.rows,), plan.launch.warps[0], stages=plan.launch.stages[0])
    return o, last, saved


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def backward(tensors: Tensors, saved: Tensor, do: Tensor, dlast: Tensor | None, plan: Plan) -> Gradients:
    """Gradients of q, k, v, g, beta, p, b, u and the initial state; None for what was not given. The plan is one for `backward`."""
    call = Call(tensors, plan, do, dlast)
    q, k, v, g, beta, p, b, u, first = (call.tensors.get(name) for name in GIVEN[:9])
    grouped = plan.heads != plan.key_heads

    def like(x: Tensor | None, key: bool = False) -> Any:
        return None if x is None else x.new_empty((*x.shape[:2], plan.heads, plan.key_dim), dtype=torch.float32) if key and grouped else torch.empty_like(x)

    dq, dk, dv, dg, dbeta, dp, db = like(q, True), like(k, True), like(v), like(g), like(beta), like(p, True), like(b, True)
    dbonus, dfirst = like(u), like(first)
    call.place(dq=dq, dk=dk, dv=dv, dg=dg, dbeta=dbeta, dp=dp, db=db, dbonus=dbonus, dfirst=dfirst)
    call.furnish(plan.saved, saved)
    if plan.scratch.contents:
        scratch = plan.scratch.empty(do)
        call.furnish(plan.scratch, scratch)  # in the split schedule parts of dbeta, in its stead
    if plan.split:
        if plan.solves:
            call.chunk(split_backward.write_gradients)
            call.walk(split_backward.walk_back, back=True)
            call.chunk(split_backward.value_gradients)
        else:
            call.place(dwrites=dv)
            call.walk(split_backward.walk_back, back=True)
            call.chunk(split_backward.write_gradients)
        call.run(split_backward.gradients, (plan.chunks, plan.rows, plan.key_blocks), plan.launch.warps[2], registers=plan.launch.registers[0])
        if plan.decay == "scalar":
            call.run(split_backward.summed_gradients, plan.sums_grid, plan.launch.warps[1], P=plan.key_blocks)
        if dbeta is not None:  # it sums over keys and values
            torch.sum(plan.scratch.view(scratch, "dbeta"), dim=0, dtype=dbeta.dtype, out=dbeta)
    else:
        call.run(fused.backward, (plan.rows,), plan.launch.warps[1], stages=plan.launch.stages[1])
    if u is not None:
        grid = plan.replicas * plan.heads, -(-plan.key_dim // BONUS_KEYS)
        parts = plan.batch // plan.replicas * plan.chunks
        call.run(bonus_gradient, grid, BONUS_WARPS, parts=parts, KEYS=BONUS_KEYS, AT_A_TIME=BONUS_PARTS)
    if grouped:
        dq, dk, dp, db = (x if y is None else _per_key_head(x, y) for x, y in ((dq, q), (dk, k), (dp, p), (db, b)))
    return dq, dk, dv, dg, dbeta, dp, db, dbonus, dfirst


def _per_key_head(gradient: Tensor, x: Tensor) -> Tensor:
    """Summed over the value heads that a key head serves."""
    return gradient.reshape(*x.shape[:3], -1, x.shape[3]).sum(dim=3).to(x.dtype)
