"""Launches of the kernels.

A rule chooses them from shapes and device, never a timing at run time; and a launch that is repeated takes
less time than Triton's own.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import driver

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
"""Dtypes in which kernels multiply matrices (DT), by the dtype of their inputs."""

FALLBACK_PROCESSORS = 64
"""Number of multiprocessors that is assumed if there is no GPU to ask: in the interpreter."""


ALIGNMENT = 16
"""Bytes of which addresses are multiples by default: for others Triton compiles another kernel."""

FEW = 8
"""Most tokens that, without a gradient, one launch takes token by token."""

REGISTERS, ALL = 65536, 255
"""Registers of a multiprocessor, and the most that a thread may have.

They are CUDA's limits since compute capability 3.5.
"""

FEW_KEYS, FEW_VALUES = 32, 64
"""Keys (with a vector decay) and values that `prepare_wy` takes at a time.

So its tiles stay in registers.
"""


class Launch(NamedTuple):
    """Sizes and options of the launches of a call.

    The split schedule has three kinds of kernels: those that pass a state from chunk to chunk, those that
    take chunks side by side, and `gradients`.

    Args:
        chunk: tokens of a chunk.
        key_block, value_block: widths of tiles, but for `FEW_KEYS` and `FEW_VALUES`.
        pass_keys, pass_values: widths of the state's part in a program that passes it on.
        warps: warps per program: of the fused schedule (forward, backward, unused), of the split one (one for
            each kind).
        stages: stages in which a kernel that goes from chunk to chunk loads, forward and backward, so that
            the next chunk comes while it works on one.
        registers: most registers of a thread, of the split schedule (one for each kind): few, so that more
            programs run side by side. Kernels that pass a state get all, if their programs have room for
            that: told nothing, the assembler of Triton 3.6 spares registers, and its loops are longer.
        joined: whether `gradients` has all keys of a chunk and does the work of the kernels before and after
            the state's gradient is passed back: what they would hand to each other stays in registers.
    """

    schedule: Literal["fused", "split", "recurrent"]
    chunk: int
    key_block: int
    value_block: int
    pass_keys: int
    pass_values: int
    warps: tuple[int, int, int]
    stages: tuple[int, int] = (1, 1)
    registers: tuple[int | None, int | None, int | None] = (None, None, None)
    joined: bool = False


class _Call(NamedTuple):
    """The facts about a call that the rule decides by.

    Args:
        rows: B H, the recurrences.
        keys, values: widths of a head, padded to powers of two.
        value_dim: width of a head's values before that.
        wide: whether numbers are float32 instead of 16 bits.
        extended: whether writes count to 16 bits beside inputs of 16.
        processors: multiprocessors of the device.
        gradient: whether a gradient will be asked for.
    """

    rows: int
    length: int
    keys: int
    values: int
    value_dim: int
    wide: bool
    extended: bool
    update: str
    decay: str
    processors: int
    gradient: bool

    @property
    def widest(self) -> int:
        """Width of the wider of keys and values."""
        return max(self.keys, self.values)

    @property
    def narrowest(self) -> int:
        """Width of the narrower of keys and values."""
        return min(self.keys, self.values)

    @property
    def is_sum(self) -> bool:
        """True if writes do not depend on the state."""
        return self.update == "add"

    @property
    def two_keys(self) -> bool:
        """True if a token writes under two keys."""
        return self.update == "low_rank"

    @property
    def heavy(self) -> bool:
        """True if a chunk takes much more than one solve and one product."""
        return self.decay == "vector" or self.two_keys

    @property
    def light(self) -> bool:
        """True if a chunk takes little: a sum of 16-bit numbers without a decay for every row."""
        return self.is_sum and not self.heavy and not self.wide

    @property
    def shortest(self) -> int:
        """Length of the chunk that holds all tokens."""
        return power_of_two(self.length)


@cache
def rule(
    *,
    rows: int,
    length: int,
    key_dim: int,
    value_dim: int,
    wide: bool,
    extended: bool,
    update: str,
    decay: str,
    processors: int,
    gradient: bool,
) -> Launch:
    """Return the launch of a call; arguments are explained at `_Call`.

    The schedule is fused if states are small enough for one program to hold state and gradient in registers,
    and there are enough rows to fill the device's `processors`, or no second chunk to pass a state to;
    otherwise it is split over chunks. The more is done per chunk (a solve; a decay for every row of the
    state; two keys), the shorter it is, so that its tiles stay in registers, and small tiles go to few warps:
    with more, parts of a tile would be computed twice, which Triton 3.6 was seen to get wrong.

    The numbers of chunks, warps, stages and registers were measured on an H200 with Triton 3.6; see
    docs/decisions/0010-speed-history.md.
    """
    keys, values = power_of_two(key_dim), power_of_two(value_dim)
    call = _Call(rows, length, keys, values, value_dim, wide, extended, update, decay, processors, gradient)
    if length <= FEW and not gradient:
        return _recurrent(call)
    # the widest state that one program holds in registers with its gradient
    small = call.widest <= (32 if call.heavy or wide else 64)
    if small and (rows >= processors or length <= 64):
        return _fused(call)
    return _split(call)


def _recurrent(call: _Call) -> Launch:
    """Return a launch that goes from token to token: at most 4096 numbers of the state to a program."""
    values = min(call.values, max(16, 4096 // call.keys))
    warps = 2 if call.keys * values <= 2048 else 4
    return Launch(
        "recurrent", call.shortest, call.keys, call.values, call.keys, values, (warps, 0, 0), stages=(2, 2)
    )


def _fused(call: _Call) -> Launch:
    if call.light:
        most = 64
    else:
        most = 32 if call.is_sum and not call.heavy else 16
    chunk = min(call.shortest, call.narrowest, most)
    if call.narrowest == 64:
        warps = (4, 4, 0) if call.light else (2, 4, 0)
    else:
        few = 1 if call.narrowest == 16 or (call.widest == 32 and not call.wide) else 2
        warps = (few, few, 0)
    if call.narrowest < 64 or call.length <= chunk:
        stages = (1, 1)
    elif call.light and call.decay == "none":
        stages = (3, 2)
    else:
        stages = (2, 3) if call.extended else (3, 3)
    return Launch("fused", chunk, call.keys, call.values, call.keys, call.values, warps, stages)


def _split(call: _Call) -> Launch:
    chunk = _split_chunk(call)
    pass_keys, pass_values = _pass_tile(call.rows, call.keys, call.values, call.is_sum, call.processors)
    narrowed = pass_keys < call.keys or pass_values < min(call.values, 64)
    joined = call.heavy and call.widest <= 64 and not call.wide
    small_pass = call.is_sum and pass_keys * pass_values <= 1024
    many_joined = joined and not call.is_sum and call.rows > call.processors
    pass_warps = 2 if small_pass or many_joined else 4
    if not call.heavy:
        chunk_warps = 4
    else:
        chunk_warps = 1 if chunk == 16 and (call.two_keys or not call.wide) else 2
    if call.wide or not (call.heavy or narrowed):
        stages = 2
    else:
        stages = 4 if call.is_sum and narrowed else 3
    programs = call.rows * (call.keys // pass_keys) * (call.values // pass_values)
    return Launch(
        "split",
        min(call.shortest, chunk),
        min(call.keys, 64),
        _split_values(call),
        pass_keys,
        pass_values,
        (pass_warps, chunk_warps, 4),
        (stages, stages),
        _split_registers(call, chunk, joined, programs, pass_warps),
        joined,
    )


def _split_chunk(call: _Call) -> int:
    # near-parallel keys with beta near two: the shorter the chunk, the less rounding errors it amplifies
    exact = call.wide and not call.is_sum
    large = call.keys > 128 or (call.wide and call.values > 128)
    if large or exact or call.two_keys or (call.heavy and (call.wide or call.widest <= 64)):
        return 16
    return 32 if call.heavy or call.wide or call.narrowest < 64 else 64


def _split_values(call: _Call) -> int:
    """Return the values of a tile: 64 where half of the last 128 would be padding."""
    half_empty = call.values > 64 and (call.value_dim - 1) // 64 % 2 == 0
    return min(call.values, 64 if call.wide or call.keys > 128 or half_empty else 128)


def _split_registers(
    call: _Call, chunk: int, joined: bool, programs: int, pass_warps: int
) -> tuple[int | None, int | None, int | None]:
    """Return the most registers of a thread, by kind of kernel.

    Args:
        programs: programs of the kernel that passes the state, with `pass_warps` warps each.
    """
    three, four = 168, 128  # registers with which three programs of four warps fit where two did, and four
    side_by_side = call.processors * (REGISTERS // ((ALL + 1) * 32 * pass_warps))
    solves_long_chunks = chunk == 64 and not call.is_sum
    if call.two_keys and not call.wide:
        gradients: int | None = three
    else:
        gradients = four if joined else None
    return ALL if programs <= side_by_side else None, three if solves_long_chunks else None, gradients


def _pass_tile(rows: int, keys: int, values: int, apart: bool, processors: int) -> tuple[int, int]:
    """Return the keys and values of the state that one program passes on.

    They are the fewer, the fewer rows there are to fill the device, as steps are shorter then.

    Args:
        apart: whether rows of the state do not affect each other, as those of a sum.
    """
    if keys > 128:
        return keys, min(values, 32)
    pass_keys, pass_values = keys, min(values, 64)
    programs, enough = rows * (values // pass_values), processors if apart else processors // 2 + 1
    while programs < enough and max(pass_values, pass_keys if apart else 0) > 16:
        programs *= 2
        if apart and pass_keys > pass_values:
            pass_keys //= 2
        else:
            pass_values //= 2
    return pass_keys, pass_values


@cache
def processors(device: torch.device) -> int:
    """Return how many programs the device runs side by side at the least."""
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else FALLBACK_PROCESSORS
    )


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least n and at least 16, the smallest tile of a product."""
    return max(16, 1 << (n - 1).bit_length())


# before Triton 3.4
_HOOKS: Any = triton.knobs.runtime if hasattr(triton, "knobs") else triton.compiler.CompiledKernel


class KernelLaunch:
    """A repeated launch of a Triton kernel.

    From the second time on it takes a tenth of the time that Triton takes to find what it compiled. All that
    Triton may compile for is the same every time: the values and options here, and which tensors there are,
    with which dtypes.

    Args:
        values: parameters of the kernel that are no tensors, by name.
        warps, stages, registers: as in `Launch`; None registers is as many as it takes.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        values: Mapping[str, Any],
        *,
        warps: int,
        stages: int = 1,
        registers: int | None = None,
    ) -> None:
        self.kernel, self.values = kernel, values
        self.grid = (*grid, 1, 1)[:3]
        self.options = {"num_warps": warps, "num_stages": stages, "maxnreg": registers}
        self.compiled: _Compiled | None = None

    def launch(
        self, addresses: Mapping[str, int], tensors: Callable[[], Mapping[str, Any]], aligned: bool
    ) -> None:
        """Launch the kernel.

        Args:
            addresses: addresses of tensors by the names of the kernel's parameters, which take Triton's
                launcher less time than tensors.
            tensors: returns the tensors themselves, for the first time.
            aligned: whether all begin with a multiple of `ALIGNMENT`; if not, Triton launches what it
                compiles for them.
        """
        compiled = self.compiled
        if compiled is not None and aligned:
            compiled.launch(self.grid, addresses)
            return
        arguments = self.arguments(tensors())
        made = self.kernel[self.grid](*arguments, **self.options)
        if aligned and made is not None:  # the interpreter compiles nothing
            places = [(place, name) for place, name in enumerate(self.kernel.arg_names) if name in addresses]
            for place, _ in places:
                arguments[place] = None  # nothing keeps the tensors of one call
            self.compiled = _Compiled(made, arguments, places)

    def arguments(self, tensors: Mapping[str, Any]) -> list[Any]:
        """Return arguments in the kernel's order; None for tensors that are not there."""
        given = {**self.values, **tensors}
        return [given.get(name) for name in self.kernel.arg_names]


class _Compiled:
    """A compiled kernel; its arguments but for tensors, and the places of these."""

    def __init__(self, kernel: Any, arguments: list[Any], places: list[tuple[int, str]]) -> None:
        self.kernel, self.arguments, self.places = kernel, arguments, places
        self.run, self.function, self.metadata = kernel.run, kernel.function, kernel.packed_metadata
        self.device, self.stream_of = driver.active.get_current_device(), driver.active.get_current_stream

    def launch(self, grid: tuple[int, ...], addresses: Mapping[str, int]) -> None:
        """Launch as `kernel[grid]` does, but without the metadata for hooks, if there are none."""
        arguments = self.arguments.copy()
        for place, name in self.places:
            arguments[place] = addresses[name]
        before, after = _HOOKS.launch_enter_hook, _HOOKS.launch_exit_hook
        if getattr(before, "calls", before) or getattr(after, "calls", after):  # such as Triton's profiler
            self.kernel[grid](*arguments)
        else:
            self.run(
                *grid, self.stream_of(self.device), self.function, self.metadata, None, None, None, *arguments
            )
