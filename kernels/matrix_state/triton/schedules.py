"""From tensors to launches. A kernel's parameters are looked up by name: a name means the same thing in all of them."""

from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton import fused, launch, recurrent, split, split_backward

SQUARES = {"add": 1, "delta": 2, "low_rank": 4}
"""How many [C, C] matrices of a chunk backward needs: q's scores of key; the inverse; q's and p's scores of k."""

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class Switches(NamedTuple):
    """What the recurrence is, beside which tensors are given."""

    scale: float
    update: str
    q_before: bool
    p_before: bool


Tensors = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""q, k, v, and None where there is none: g, beta, p, b and the initial state."""


class Call:
    """One call: its launch, its sizes, and the values of the kernels' parameters by name."""

    def __init__(self, tensors: Tensors, switches: Switches, *, gradient: bool = True) -> None:
        q, k, v = (x.contiguous() for x in tensors[:3])
        g, beta, p, b, first = (None if x is None else x.contiguous() for x in tensors[3:])
        self.q, self.k, self.v = q, k, v
        self.batch, self.length, self.key_heads, self.key_dim = map(int, k.shape)  # of a traced call, too: a launch is for one size
        self.heads, self.value_dim = map(int, v.shape[2:])
        self.rows = self.batch * self.heads
        self.dtype = v.dtype if v.dtype in _TYPES else torch.float32
        decay = "none" if g is None else "vector" if g.dim() == 4 else "scalar"
        self.launch = launch.rule(
            rows=self.rows,
            length=self.length,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            wide=self.dtype == torch.float32,
            update=switches.update,
            decay=decay,
            processors=launch.processors(v.device),
            gradient=gradient,
        )
        chunk = self.launch.chunk
        self.chunks = -(-self.length // chunk)
        self.values: dict[str, Any] = dict(zip(("q", "k", "v", "g", "beta", "p", "b", "first"), (q, k, v, g, beta, p, b, first), strict=True)) | {
            "T": self.length, "H": self.heads, "HK": self.key_heads, "K": self.key_dim, "V": self.value_dim, "C": chunk,
            "LEVELS": chunk.bit_length() - 1, "BK": self.launch.key_block, "BV": self.launch.value_block, "ALL_V": launch.power_of_two(self.value_dim),
            "ALL_K": launch.power_of_two(self.key_dim),
            "DECAY": decay, "UPDATE": switches.update, "ERASE": p is not None, "Q_BEFORE": switches.q_before, "P_BEFORE": switches.p_before,
            "STATE": first is not None, "DT": _TYPES[self.dtype], "scale": switches.scale,
        }  # fmt: skip

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Beside the values, in the type in which matrices are multiplied."""
        return self.v.new_empty(shape, dtype=dtype or self.dtype)

    def run(self, kernel: Any, grid: tuple[int, ...], kind: int, **more: Any) -> None:
        """Launch with these values and `more`; `kind` is the place in the launch's warps."""
        values = self.values | more
        kernel[grid](*[values[name] for name in kernel.arg_names], num_warps=self.launch.warps[kind], num_stages=1)


Saved = tuple[Tensor, Tensor, Tensor, Tensor]


def room_to_save(call: Call, save: bool) -> Saved:
    """Places for what backward needs, empty for what it does not.

    The states at the start of chunks [B, H, N, K, V], the writes z [B, T, H, V], W of the split schedule [B, T, H, K], and the scores and
    inverses of chunks [B, H, N, S, C, C].
    """
    update, chunk = call.values["UPDATE"], call.launch.chunk
    chunks = (call.batch, call.heads, call.chunks)
    solves = save and update != "add"
    return (
        call.empty(*chunks, call.key_dim, call.value_dim) if save else call.empty(call.batch, 0),
        call.empty(*call.v.shape) if solves else call.empty(call.batch, 0),
        call.empty(call.batch, call.length, call.heads, call.key_dim) if solves and call.launch.schedule == "split" else call.empty(call.batch, 0),
        call.empty(*chunks, SQUARES[update], chunk, chunk) if save else call.empty(call.batch, 0),
    )


def results(call: Call) -> tuple[Tensor, Tensor]:
    """Places for o and the final state."""
    return torch.empty_like(call.v), call.empty(call.batch, call.heads, call.key_dim, call.value_dim, dtype=torch.float32)


def forward(tensors: Tensors, switches: Switches, save: bool) -> tuple[Tensor, ...]:
    """o, the final state, and what `room_to_save` describes."""
    call = Call(tensors, switches, gradient=save)
    o, last = results(call)
    if call.launch.schedule == "recurrent":
        call.run(recurrent.recurrent, (-(-call.value_dim // call.launch.walk_block), call.rows), 0, o=o, last=last, BV=call.launch.walk_block)
        return o, last, *room_to_save(call, False)
    split_up = call.launch.schedule == "split"
    states, writes, erasers, squares = room_to_save(call, save or split_up)  # one kernel of the split schedule hands them to the next
    places = {"o": o, "last": last, "states": states, "writes": writes, "erasers": erasers, "squares": squares, "SAVE": save}
    if split_up:
        if switches.update != "add":
            call.run(split.solve, (call.chunks, call.rows), 1, **places)
        call.run(split.walk, (-(-call.value_dim // call.launch.walk_block), call.rows), 0, **places, BV=call.launch.walk_block)
        call.run(split.read, (call.chunks, call.rows), 1, **places)
    else:
        call.run(fused.forward, (call.rows,), 0, **places)
    return (o, last, states, writes, erasers, squares) if save else (o, last, *room_to_save(call, False))


Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def backward(tensors: Tensors, saved: Saved, do: Tensor, dlast: Tensor | None, switches: Switches) -> Gradients:
    """Gradients of q, k, v, g, beta, p, b and the initial state; empty for what was not given."""
    call = Call(tensors, switches)
    _, _, _, g, beta, p, b, first = tensors
    keys = (call.batch, call.length, call.heads, call.key_dim)
    grouped = call.heads != call.key_heads

    def like(x: Tensor | None, key: bool = False) -> Tensor:
        if x is None:
            return call.empty(call.batch, 0)
        return x.new_empty(keys if key else x.shape, dtype=torch.float32 if key and grouped else x.dtype)

    dq, dk, dv, dg, dbeta, dp, db, dfirst = like(call.q, True), like(call.k, True), like(call.v), like(g), like(beta), like(p, True), like(b, True), like(first)
    places = {
        **dict(zip(("states", "writes", "erasers", "squares"), saved, strict=True)), "do": do.contiguous(), "DLAST": dlast is not None,
        "dlast": None if dlast is None else dlast.contiguous(), "dq": dq, "dk": dk, "dv": dv, "dg": dg, "dbeta": dbeta, "dp": dp, "db": db, "dfirst": dfirst,
    }  # fmt: skip
    if call.launch.schedule == "split":
        places |= {"dstates": torch.empty_like(saved[0]), "dwrites": dv if switches.update == "add" else call.empty(*call.v.shape)}
        call.run(split_backward.write_gradients, (call.chunks, call.rows), 1, **places)
        call.run(split_backward.walk_back, (-(-call.value_dim // call.launch.walk_block), call.rows), 0, **places, BV=call.launch.walk_block)
        blocks = -(-call.key_dim // call.launch.key_block)
        # each block of keys adds its part to the gradients that sum over keys: of a scalar decay and of beta
        summed = {name: x for name, x, given in (("dg", dg, g is not None and g.dim() == 3), ("dbeta", dbeta, beta is not None)) if given and blocks > 1}
        parts = {name: x.new_empty(blocks, *x.shape, dtype=torch.float32) for name, x in summed.items()}
        call.run(split_backward.gradients, (call.chunks, call.rows, blocks), 2, **places | parts)
        for name, x in summed.items():
            torch.sum(parts[name], dim=0, dtype=x.dtype, out=x)
        if switches.update != "add":
            call.run(split_backward.value_gradients, (call.chunks, call.rows), 1, **places)
    else:
        call.run(fused.backward, (call.rows,), 1, **places)
    if grouped:
        dq, dk, dp, db = (_per_key_head(x, y) for x, y in ((dq, call.q), (dk, call.k), (dp, p), (db, b)))
    return dq, dk, dv, dg, dbeta, dp, db, dfirst


def _per_key_head(gradient: Tensor, x: Tensor | None) -> Tensor:
    """Summed over the value heads that a key head serves."""
    return gradient if x is None else gradient.reshape(*x.shape[:3], -1, x.shape[3]).sum(dim=3).to(x.dtype)
