"""From tensors to launches. A kernel's parameters are looked up by name: a name means the same thing in all of them."""

from functools import cached_property
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton import fused, launch, recurrent, split, split_backward
from linbench.kernels.matrix_state.triton.decay import AT_ONCE

SQUARES = {"add": (1, 1), "delta": (1, 2), "low_rank": (3, 4)}
"""How many [C, C] matrices of a chunk backward needs: scores (the inverse aside), and their gradients."""

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
    """One call: its launch, its sizes, and the values of the kernels' parameters by name.

    Args:
        tensors, switches: what is computed.
        gradient: whether one is, or will be, asked for.
        do, dlast: in backward, the gradients of o and of the final state, or None.
    """

    def __init__(self, tensors: Tensors, switches: Switches, *, gradient: bool = True, do: Tensor | None = None, dlast: Tensor | None = None) -> None:
        self.tensors = [None if x is None else x.contiguous() for x in (*tensors, do, dlast)]
        q, k, v, g, beta, p, b, first, do, dlast = self.tensors
        assert q is not None
        assert k is not None
        assert v is not None
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
        sizes = (self.batch, self.length, self.key_heads, self.key_dim, self.heads, self.value_dim)
        self.form = (self.launch, switches, sizes, gradient, decay, v.device, *(x if x is None else x.dtype for x in self.tensors))
        self.values: dict[str, Any] = {
            "q": q, "k": k, "v": v, "g": g, "beta": beta, "p": p, "b": b, "first": first, "do": do, "dlast": dlast,
            "T": self.length, "H": self.heads, "HK": self.key_heads, "K": self.key_dim, "V": self.value_dim, "C": chunk,
            "LEVELS": chunk.bit_length() - 1, "BK": self.launch.key_block, "BV": self.launch.value_block, "ALL_K": launch.power_of_two(self.key_dim),
            "DECAY": decay, "UPDATE": switches.update, "ERASE": p is not None, "Q_BEFORE": switches.q_before, "P_BEFORE": switches.p_before,
            "STATE": first is not None, "DLAST": dlast is not None, "SAVE": gradient, "DT": _TYPES[self.dtype], "scale": switches.scale,
        }  # fmt: skip

    @property
    def key_blocks(self) -> int:
        """How many blocks there are of keys."""
        return -(-self.key_dim // self.launch.key_block)

    @property
    def sums_grid(self) -> tuple[int, int]:
        """For kernels that sum a scalar decay over the tokens of `AT_ONCE` chunks."""
        return -(-self.chunks // AT_ONCE.value), self.rows

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Beside the values, in the type in which matrices are multiplied."""
        return self.v.new_empty(shape, dtype=dtype or self.dtype)

    def run(self, kernel: Any, grid: tuple[int, ...], kind: int, *, stages: int = 1, **more: Any) -> None:
        """Launch with these values and `more`; `kind` is the place in the launch's warps."""
        values = self.values | more
        arguments = [values[name] for name in kernel.arg_names]
        launch.launch(kernel, grid, arguments, self.form if self.aligned else None, num_warps=self.launch.warps[kind], num_stages=stages)

    @cached_property
    def aligned(self) -> bool:
        """Whether all that was given begins where Triton expects it by default."""
        return all(x is None or x.data_ptr() % launch.ALIGNMENT == 0 for x in self.tensors)

    def walk(self, kernel: Any, **places: Any) -> None:
        """Launch what goes through all tokens for every row and block of values; the next chunk is loaded beside the work on one."""
        block = self.launch.walk_block
        self.run(kernel, (-(-self.value_dim // block), self.rows), 0, stages=2, **places | {"BV": block})


class Saved(NamedTuple):
    """What the kernels of forward hand to each other and to backward; None what is not needed.

    states [B, H, N, K, V]: at the start of chunks. writes [B, T, H, V]: z. squares [B, H, N, S, C, C]: scores. inverses [B, H, N, 1, C, C],
    or of 16 bits twice. The split schedule has also erasers [B, T, H, K]: W; and for a vector decay q_start, key_end and k_end [B, T, H, K],
    and kept [B, H, N, K]. sums: of a scalar decay, as from `decay.sum_decays`.
    """

    sums: Tensor | None = None
    states: Tensor | None = None
    writes: Tensor | None = None
    squares: Tensor | None = None
    inverses: Tensor | None = None
    erasers: Tensor | None = None
    q_start: Tensor | None = None
    key_end: Tensor | None = None
    k_end: Tensor | None = None
    kept: Tensor | None = None


def room_to_save(call: Call) -> Saved:
    """Places for all that."""
    update, chunk = call.values["UPDATE"], call.launch.chunk
    chunks = (call.batch, call.heads, call.chunks)
    solves, split_up = update != "add", call.launch.schedule == "split"
    decays = split_up and call.values["DECAY"] == "vector"

    def keys(wanted: bool) -> Tensor | None:
        return call.empty(call.batch, call.length, call.heads, call.key_dim) if wanted else None

    return Saved(
        sums=room_for_sums(call),
        states=call.empty(*chunks, call.key_dim, call.value_dim),
        writes=call.empty(*call.v.shape) if solves else None,
        squares=call.empty(*chunks, SQUARES[update][0], chunk, chunk),
        inverses=call.empty(*chunks, 1 if call.dtype == torch.float32 else 2, chunk, chunk) if solves else None,
        erasers=keys(solves and split_up),
        q_start=keys(decays),
        key_end=keys(decays),
        k_end=keys(decays and update == "low_rank"),
        kept=call.empty(*chunks, call.key_dim, dtype=torch.float32) if decays else None,
    )


def room_for_sums(call: Call) -> Tensor | None:
    """A place for those of a scalar decay, which are always needed."""
    halves = 2 if call.dtype == torch.float32 else 1
    shape = (call.batch, call.heads, call.chunks, halves, call.launch.chunk)
    return call.empty(*shape, dtype=torch.float32) if call.values["DECAY"] == "scalar" else None


def results(call: Call) -> tuple[Tensor, Tensor]:
    """Places for o and the final state."""
    return torch.empty_like(call.v), call.empty(call.batch, call.heads, call.key_dim, call.value_dim, dtype=torch.float32)


def forward(tensors: Tensors, switches: Switches, save: bool) -> tuple[Tensor, Tensor, Saved]:
    """o, the final state, and what `backward` needs if asked to `save` it."""
    call = Call(tensors, switches, gradient=save)
    o, last = results(call)
    if call.launch.schedule == "recurrent":
        call.walk(recurrent.recurrent, o=o, last=last)
        return o, last, Saved()
    split_up = call.launch.schedule == "split"
    saved = room_to_save(call) if save or split_up else Saved(sums=room_for_sums(call))  # one kernel of the split schedule hands it to the next
    places = {"o": o, "last": last, **saved._asdict()}
    if split_up:
        if saved.sums is not None:
            call.run(split.decay_sums, call.sums_grid, 1, **places)
        decays = call.values["DECAY"] == "vector"
        places["PREPARED"] = decays or switches.update != "add"
        if places["PREPARED"]:
            keys = min(call.launch.key_block, launch.FEW_KEYS) if decays else call.launch.key_block
            call.run(split.prepare, (call.chunks, call.rows), 1, **places | {"BK": keys})
        call.walk(split.walk, **places)
        call.run(split.read, (call.chunks, call.rows), 1, **places)
    else:
        call.run(fused.forward, (call.rows,), 0, stages=call.launch.stages, **places)
    return o, last, saved if save else Saved()


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def backward(tensors: Tensors, saved: Saved, do: Tensor, dlast: Tensor | None, switches: Switches) -> Gradients:
    """Gradients of q, k, v, g, beta, p, b and the initial state; None for what was not given."""
    call = Call(tensors, switches, do=do, dlast=dlast)
    g, beta, p, b, first = call.tensors[3:8]
    keys = (call.batch, call.length, call.heads, call.key_dim)
    grouped = call.heads != call.key_heads

    def like(x: Tensor | None, key: bool = False) -> Any:
        return None if x is None else x.new_empty(keys, dtype=torch.float32) if key and grouped else torch.empty_like(x)

    dq, dk, dv, dg, dbeta, dp, db, dfirst = like(call.q, True), like(call.k, True), like(call.v), like(g), like(beta), like(p, True), like(b, True), like(first)
    blocks = call.key_blocks if call.launch.schedule == "split" else 1
    places = {
        **saved._asdict(),
        "dsums": None if saved.sums is None else call.empty(blocks, *saved.sums.shape[:3], 3, call.launch.chunk, dtype=torch.float32),
        "dq": dq, "dk": dk, "dv": dv, "dg": dg, "dbeta": dbeta, "dp": dp, "db": db, "dfirst": dfirst,
    }  # fmt: skip
    if call.launch.schedule == "split":
        assert saved.states is not None
        assert saved.squares is not None
        solves = switches.update != "add"
        places |= {
            "dstates": torch.empty_like(saved.states), "dsquares": call.empty(*saved.squares.shape[:3], SQUARES[switches.update][1], *saved.squares.shape[4:]),
            "dwrites": call.empty(*call.v.shape) if solves else dv,
        }  # fmt: skip
        # beta's gradient sums over keys and values: each block of keys, and the values, add a part
        parts = {} if dbeta is None else {"dbeta": dbeta.new_empty(blocks + 1, *dbeta.shape, dtype=torch.float32)}
        call.run(split_backward.write_gradients, (call.chunks, call.rows), 1, **places)
        call.walk(split_backward.walk_back, **places)
        if solves:
            call.run(split_backward.value_gradients, (call.chunks, call.rows), 1, **places | parts)
        call.run(split_backward.gradients, (call.chunks, call.rows, blocks), 2, **places | parts)
        if saved.sums is not None:
            call.run(split_backward.summed_gradients, call.sums_grid, 1, **places, P=blocks)
        if dbeta is not None:
            torch.sum(parts["dbeta"], dim=0, dtype=dbeta.dtype, out=dbeta)
    else:
        call.run(fused.backward, (call.rows,), 1, stages=call.launch.stages, **places)
    if grouped:
        dq, dk, dp, db = (x if y is None else _per_key_head(x, y) for x, y in ((dq, call.q), (dk, call.k), (dp, p), (db, b)))
    return dq, dk, dv, dg, dbeta, dp, db, dfirst


def _per_key_head(gradient: Tensor, x: Tensor) -> Tensor:
    """Summed over the value heads that a key head serves."""
    return gradient.reshape(*x.shape[:3], -1, x.shape[3]).sum(dim=3).to(x.dtype)
