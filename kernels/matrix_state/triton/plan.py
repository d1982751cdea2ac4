"""Plans: what all calls with one key have in common, worked out once.

These are their launch, their sizes, and the workspaces of what they keep.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any, NamedTuple

import torch

from linbench.kernels.matrix_state.recurrence import Tensors
from linbench.kernels.matrix_state.triton import launch
from linbench.kernels.matrix_state.triton.workspace import Array, Workspace

GIVEN = ("q", "k", "v", "g", "beta", "p", "b", "u", "first")
"""Names of a recurrence's tensors, which are those of the kernels' parameters.

Any but the first three may be None.
"""

COTANGENTS = ("do", "dlast")
"""Names of the gradients of its results; the second may be None."""

GRADIENTS = ("dq", "dk", "dv", "dg", "dbeta", "dp", "db", "dbonus", "dfirst")
"""Names of the gradients of the tensors in `GIVEN`."""

PER_KEY_HEAD = ("q", "k", "p", "b")
"""Names of tensors whose heads several value heads may share."""

SQUARES = {"add": (1, 1), "delta": (1, 2), "low_rank": (3, 4)}
"""Numbers of [C, C] matrices of a chunk that backward needs: scores (the inverse aside), and their gradients.
"""

AT_ONCE = 16
"""Most chunks whose gates, and gradients of decays, are summed or laid out side by side."""


class Options(NamedTuple):
    """Options of the recurrence, beside which tensors are given."""

    scale: float
    update: str
    q_before: bool
    p_before: bool
    neg_eigval: bool


class PlanKey(NamedTuple):
    """All that a plan depends on.

    Args:
        queries, keys, values: sizes of q, k and v.
        decays: dimensions of g.
        replicas: number of replicas that u has, 0 if there is no u.
        types: dtypes of the tensors in `GIVEN` and `COTANGENTS`.
        gradient: whether a gradient is, or will be, asked for.
        final: whether the final state is.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    decays: int
    replicas: int
    types: tuple[torch.dtype | None, ...]
    device: torch.device
    switches: Options
    gradient: bool
    final: bool

    def of_numbers(self) -> "PlanKey":
        """Return the key of a traced call, whose sizes may be symbols: a launch is for one size."""
        queries, keys, values = (tuple(map(int, shape)) for shape in self[:3])
        return self._replace(queries=queries, keys=keys, values=values, replicas=int(self.replicas))

    def backward(self, do: torch.dtype, dlast: torch.dtype | None) -> "PlanKey":
        """Return the key of backward, given the dtypes of the gradients of o and of the final state."""
        return self._replace(types=(*self.types[:9], do, dlast), gradient=True, final=True)

    def plan(self) -> "Plan":
        """Return the plan, which is made once."""
        return planned(self)


def plan_key(tensors: Tensors, switches: Options, gradient: bool, final: bool) -> PlanKey:
    """Return the key of a forward call.

    Args:
        gradient, final: whether these are wanted.
    """
    q, k, v, g, _, _, _, u, _ = tensors
    types = (*(None if x is None else x.dtype for x in tensors), None, None)
    replicas = 0 if u is None else u.shape[0] // v.shape[2]
    return PlanKey(
        q.shape, k.shape, v.shape, 0 if g is None else g.dim(),
        replicas, types, v.device, switches, gradient, final,
    )  # fmt: skip


class Plan:
    """Sizes, `launch`, `values` of the kernels' parameters that are no tensors, and two workspaces.

    T counts steps, of which a token may have several.

    `saved` holds what the kernels of forward hand to each other and to backward:

        sums: of a scalar decay, as from `decay.sum_decays`.
        betas [B, H, N, C]: in the fused schedule, as from `decay.lay_out`.
        states [B, H, N, K, V]: at the start of chunks.
        writes [B, T, H, V]: z.
        squares [B, H, N, S, C, C]: scores.
        inverses [B, H, N, 1, C, C], or of 16 bits twice.
        erasers [B, T, H, K]: W, in the split schedule.
        q_start [B, tokens, H, K], key_end and k_end [B, T, H, K], kept [B, H, N, K]: in the split schedule,
            for a vector decay.

    `scratch` holds what the kernels of backward hand to each other:

        du [B, N, H, K]: of the bonus, a part from each chunk.
        dsums [P, B, H, N, 3, C]: of a scalar decay, a part from each of P blocks of keys.
        dstates, dsquares, dwrites: in the split schedule.
        dbeta [P + 1, B, T, H]: in the split schedule, a part from each block of keys, and of the values.
    """

    def __init__(self, key: PlanKey) -> None:
        self.key, self.update = key, key.switches.update
        self.backwards: dict[tuple[torch.dtype, torch.dtype | None], Plan] = {}
        self.compiled = False
        """True if all that it launches is compiled, or will be when it is launched."""
        switches, given = key.switches, dict(zip((*GIVEN, *COTANGENTS), key.types, strict=True))
        self.batch, self.length, self.key_heads, self.key_dim = key.keys
        self.heads, self.value_dim = key.values[2:]
        self.grouped = self.heads != self.key_heads
        self.back = given["do"] is not None
        self.replicas = key.replicas
        self.tokens = key.queries[1]
        self.rows = self.batch * self.heads
        self.solves, self.gradient, self.final = self.update != "add", key.gradient, key.final
        self.decay = "none" if given["g"] is None else "vector" if key.decays == 4 else "scalar"
        self.dtype = given["v"] if given["v"] in launch.TYPES else torch.float32
        self.extended = (
            self.update == "delta"
            and switches.neg_eigval
            and self.decay != "vector"
            and self.dtype != torch.float32
        )
        """True if writes count to 16 bits, and so do gradients of scores that they were made with.

        Otherwise writes of near-parallel keys would cancel.
        """
        self.extended_back = self.extended and self.decay == "none"
        """True if writes in the backward pass and gradients of writes count to 16 bits, too.

        Where nothing decays, all later tokens add to them.
        """
        self.scores = torch.float32 if self.decay == "vector" else self.dtype
        """Dtype of scores and their gradients.

        If every row of the state forgets, few tokens count, and so does every rounding error of their scores.
        """
        self.launch = launch.rule(
            rows=self.rows, length=self.length, key_dim=self.key_dim, value_dim=self.value_dim,
            wide=self.dtype == torch.float32, extended=self.extended, update=self.update, decay=self.decay,
            processors=launch.processors(key.device), gradient=key.gradient,
        )  # fmt: skip
        self.split = self.launch.schedule == "split"
        chunk = self.launch.chunk
        self.chunks = -(-self.length // chunk)
        self.key_blocks = -(-self.key_dim // self.launch.key_block) if self.split else 1
        self.at_once = min(AT_ONCE, 1 << (self.chunks - 1).bit_length())
        passes_state_on = given["dlast"] is not None if self.back else key.final
        self.values: dict[str, Any] = {
            "T": self.length, "H": self.heads, "HK": self.key_heads,
            "K": self.key_dim, "V": self.value_dim, "C": chunk,
            "LEVELS": chunk.bit_length() - 1, "AT_ONCE": self.at_once,
            "BK": self.launch.key_block, "BV": self.launch.value_block,
            "DECAY": self.decay, "UPDATE": self.update, "ERASE": given["p"] is not None,
            "Q_BEFORE": switches.q_before, "P_BEFORE": switches.p_before,
            "STEPS": self.length // self.tokens, "group": self.batch // max(1, key.replicas),
            "STATE": given["first"] is not None, "DLAST": given["dlast"] is not None, "SAVE": key.gradient,
            "ALONE": self.chunks == 1 and not (self.solves or given["first"] is not None or passes_state_on),
            "JOINED": self.launch.joined, "EXTENDED": self.extended, "EXTENDED_BACK": self.extended_back,
            "DT": launch.TYPES[self.dtype], "scale": switches.scale,
        }  # fmt: skip
        self.saved, self.scratch = self._saved(), self._scratch()

    def backward(self, do: torch.dtype, dlast: torch.dtype | None) -> "Plan":
        """Return the plan of backward, given the dtypes of the gradients of o and of the final state.

        It is looked up in less time than by its whole key.
        """
        types = do, dlast
        plan = self.backwards.get(types)
        if plan is None:
            plan = self.backwards[types] = self.key.backward(*types).plan()
        return plan

    def types(self) -> dict[str, torch.dtype]:
        """Return the dtypes of all tensors that its kernels are given, by the names of their parameters."""
        given = {
            name: dtype
            for name, dtype in zip((*GIVEN, *COTANGENTS), self.key.types, strict=True)
            if dtype is not None
        }
        if not self.back:
            made = {"o": given["v"]} | ({"last": torch.float32} if self.final else {})
            workspaces = [self.saved]
        else:
            made = {
                gradient: self.gradient_type(name, given[name])
                for name, gradient in zip(GIVEN, GRADIENTS, strict=True)
                if name in given
            }
            made |= {} if self.solves else {"dwrites": made["dv"]}
            workspaces = [self.saved, self.scratch]
        for workspace in workspaces:
            made |= {name: dtype for name, (_, dtype) in workspace.contents.items()}
        return given | made

    def gradient_type(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype in which kernels write the gradient of a tensor in `GIVEN` that has another.

        It is float32 for tensors shared by several value heads, since partial sums are added later.
        """
        return torch.float32 if self.grouped and name in PER_KEY_HEAD else dtype

    def _saved(self) -> Workspace:
        chunk, by_chunk = self.launch.chunk, (self.batch, self.heads, self.chunks)
        by_token = (self.batch, self.length, self.heads, self.key_dim)
        exact = self.dtype == torch.float32
        contents: dict[str, Array] = {}
        if self.launch.schedule != "recurrent":
            if self.decay == "scalar":
                contents["sums"] = (*by_chunk, 2 if exact else 1, chunk), torch.float32
            if self.update == "delta" and not self.split:
                contents["betas"] = (*by_chunk, chunk), torch.float32
            if self.gradient or self.split:  # kernels of the split schedule hand these to each other, too
                contents |= self._kept(by_chunk)
        if self.split and self.solves:
            contents["erasers"] = by_token, self.dtype
        if self.split and self.decay == "vector":
            contents["q_start"] = (self.batch, self.tokens, self.heads, self.key_dim), self.dtype
            contents["key_end"] = by_token, self.dtype
            if self.update == "low_rank":
                contents["k_end"] = by_token, self.dtype
            contents["kept"] = (*by_chunk, self.key_dim), torch.float32
        return Workspace(self.batch, contents)

    def _kept(self, by_chunk: tuple[int, ...]) -> dict[str, Array]:
        """Return the arrays that backward reads."""
        chunk, exact = self.launch.chunk, self.dtype == torch.float32
        contents: dict[str, Array] = {}
        contents["states"] = (*by_chunk, self.key_dim, self.value_dim), self.dtype
        if self.solves:
            wide = self.extended_back or (self.extended and self.split)
            contents["writes"] = self.values_shape, torch.float32 if wide else self.dtype
        # otherwise they are one product, which is cheaper than to store and load its result
        if self.split or self.solves or exact or self.decay == "vector":
            contents["squares"] = (*by_chunk, SQUARES[self.update][0], chunk, chunk), self.scores
        if self.solves and self.gradient:
            contents["inverses"] = (*by_chunk, 1 if exact else 2, chunk, chunk), self.dtype
        return contents

    def _scratch(self) -> Workspace:
        chunk, by_chunk = self.launch.chunk, (self.batch, self.heads, self.chunks)
        apart = self.split and not self.launch.joined
        contents: dict[str, Array] = {}
        if self.replicas:
            contents["du"] = (self.batch, self.chunks, self.heads, self.key_dim), torch.float32
        if self.decay == "scalar":
            contents["dsums"] = (self.key_blocks, *by_chunk, 3, chunk), torch.float32
        if self.split:
            contents["dstates"] = (*by_chunk, self.key_dim, self.value_dim), self.dtype
        if apart:
            dtype = torch.float32 if self.extended else self.scores
            contents["dsquares"] = (*by_chunk, SQUARES[self.update][1], chunk, chunk), dtype
        if self.split and self.solves:
            contents["dwrites"] = self.values_shape, torch.float32 if self.extended_back else self.dtype
        if apart and self.update == "delta":
            contents["dbeta"] = (self.key_blocks + 1, self.batch, self.length, self.heads), torch.float32
        return Workspace(self.batch, contents)

    @property
    def values_shape(self) -> tuple[int, ...]:
        """Shape of values, [B, T, H, V]."""
        return self.batch, self.length, self.heads, self.value_dim


planned = cache(Plan)

known: dict[Hashable, Plan] = {}
"""Plans of recurrences that were found right and are as kernels take them.

The key is `Recurrence.signature`, and whether gradients are recorded.
"""
