"""How the kernels are launched: by a rule from shapes and device, never a timing at run time; and again in
less time than Triton takes to launch."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import driver

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
"""In which kernels multiply matrices (DT), by what they are given."""

FALLBACK_PROCESSORS = 64
"""Stands for the number of multiprocessors where there is no GPU to ask: in the interpreter."""


ALIGNMENT = 16
"""Bytes: Triton compiles anew for tensors that do not begin with a multiple."""

FEW = 8
"""Tokens up to which, without a gradient, one launch goes from token to token."""

REGISTERS, ALL = 65536, 255
"""Of a processor, and that a thread may have."""

FEW_KEYS, FEW_VALUES = 32, 64
"""Keys that `prepare_wy` takes at a time where they have a vector decay, and values, so that its tiles stay in
registers."""


class Launch(NamedTuple):
    """chunk: tokens per chunk. key_block, value_block: tile widths, but for `FEW_KEYS` and `FEW_VALUES`;
    walk_keys, walk_values: what one program of a walk takes of them.

    warps per program: of the fused schedule (forward, backward, none), of the split one (what walks, what
    does not, `gradients`).
    stages: in how many a kernel loads that goes from chunk to chunk, forward and backward, so that the next
        comes while it works on one.
    registers: of a thread at most, of the split schedule (what walks, what does not, `gradients`): few, so
        that more programs run side by side; in a walk all,
    where its programs have room for that: told nothing, the assembler of Triton 3.6 spares registers, and its
    loops are longer.
    joined: whether `gradients` has all keys of a chunk, and does what else takes kernels before and after the
        walk back: what they would hand to each other
    stays in registers.
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
    """The launch for `rows` = B H recurrences over `length` tokens; `wide` is float32 instead of 16 bits,
    `extended` whether writes count to 16 bits beside inputs of 16, `gradient` whether one will be asked for.

    Fused when states are small enough for one program to hold state and gradient in registers, and there are
    enough rows to fill the device's `processors`, or no second chunk to hand to; otherwise split over chunks.
    The more is done per chunk (a solve; a decay for every row of the state; two keys), the shorter it is, so
    that its tiles stay in registers, and small tiles go to few warps: with more, parts of a tile would be
    computed twice, which Triton 3.6 was seen to get wrong. Warps and chunks were measured on an H200 with
    Triton 3.6.
    """
    key_block, value_block = power_of_two(key_dim), power_of_two(value_dim)
    widest, narrowest = max(key_block, value_block), min(key_block, value_block)
    two_keys = update == "low_rank"
    heavy = decay == "vector" or two_keys
    light = update == "add" and not heavy and not wide
    # near-parallel keys with beta near two: the shorter the chunk, the less rounding it amplifies
    exact = wide and update != "add"
    shortest = power_of_two(length)
    if length <= FEW and not gradient:
        pass_values = min(value_block, max(16, 4096 // key_block))
        return Launch(
            "recurrent",
            shortest,
            key_block,
            value_block,
            key_block,
            pass_values,
            (2 if key_block * pass_values <= 2048 else 4, 0, 0),
            stages=(2, 2),
        )
    if widest <= (32 if heavy or wide else 64) and (rows >= processors or length <= 64):
        chunk = min(shortest, narrowest, 64 if light else 32 if update == "add" and not heavy else 16)
        few = 1 if narrowest == 16 or (widest == 32 and not wide) else 2
        warps = (4, 4, 0) if narrowest == 64 and light else (2, 4, 0) if narrowest == 64 else (few, few, 0)
        stages = (
            (1, 1)
            if narrowest < 64 or length <= chunk
            else (3, 2)
            if light and decay == "none"
            else (2, 3)
            if extended
            else (3, 3)
        )
        return Launch("fused", chunk, key_block, value_block, key_block, value_block, warps, stages)
    if (
        key_block > 128
        or (wide and value_block > 128)
        or exact
        or two_keys
        or (heavy and (wide or widest <= 64))
    ):
        chunk = 16
    else:
        chunk = 32 if heavy or wide or narrowest < 64 else 64
    pass_keys, pass_values = _pass_tile(rows, key_block, value_block, update == "add", processors)
    narrowed = pass_keys < key_block or pass_values < min(value_block, 64)
    few = 4 if not heavy else 1 if chunk == 16 and (two_keys or not wide) else 2
    joined = heavy and widest <= 64 and not wide
    warps = (
        2
        if (joined and update != "add" and rows > processors)
        or (update == "add" and pass_keys * pass_values <= 1024)
        else 4,
        few,
        4,
    )
    ahead = 2 if wide or not (heavy or narrowed) else 4 if update == "add" and narrowed else 3
    three, four = 168, 128  # registers with which three programs of four warps fit where two did, and four
    most = three if two_keys and not wide else four if joined else None
    programs = rows * (key_block // pass_keys) * (value_block // pass_values)
    roomy = programs <= processors * (REGISTERS // ((ALL + 1) * 32 * warps[0]))
    registers = (ALL if roomy else None, three if chunk == 64 and update != "add" else None, most)
    padded = value_block > 64 and (value_dim - 1) // 64 % 2 == 0  # half of the last 128 values would be none
    values = min(value_block, 64 if wide or key_block > 128 or padded else 128)
    return Launch(
        "split", min(shortest, chunk), min(key_block, 64), values,
        pass_keys, pass_values, warps, (ahead, ahead), registers, joined,
    )  # fmt: skip


def _pass_tile(rows: int, keys: int, values: int, apart: bool, processors: int) -> tuple[int, int]:
    """What one program of a walk takes of the keys and of the values: the less, the fewer rows there are to
    fill the device, as its steps are shorter then.

    apart: whether rows of the state have nothing to do with each other, as those of a sum.
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
    """How many programs the device runs side by side at the least."""
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else FALLBACK_PROCESSORS
    )


def power_of_two(n: int) -> int:
    """The least that is not below n, nor below the smallest tile of a product, 16."""
    return max(16, 1 << (n - 1).bit_length())


# before Triton 3.4
_HOOKS: Any = triton.knobs.runtime if hasattr(triton, "knobs") else triton.compiler.CompiledKernel


class KernelLaunch:
    """A launch of a Triton kernel that is repeated, from the second time on in a tenth of the time that
    Triton takes to find what it compiled.

    values: those of the kernel's parameters, by name, that are no tensors. warps, stages, registers: as in
        `Launch`; None is as many as it takes.
    All that Triton may compile for is the same every time: these, and which tensors there are, of which
    types.
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
        """Addresses of tensors by the names of the kernel's parameters, which take Triton's launcher less
        time than the tensors, which are asked for the first time; aligned, whether all begin with a multiple
        of `ALIGNMENT`: if not, Triton launches what it compiles for them."""
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
        """In the kernel's order; None for what there is not."""
        given = {**self.values, **tensors}
        return [given.get(name) for name in self.kernel.arg_names]


class _Compiled:
    """What Triton made of a kernel; its arguments but for tensors, and where which of these go."""

    def __init__(self, kernel: Any, arguments: list[Any], places: list[tuple[int, str]]) -> None:
        self.kernel, self.arguments, self.places = kernel, arguments, places
        self.run, self.function, self.metadata = kernel.run, kernel.function, kernel.packed_metadata
        self.device, self.stream_of = driver.active.get_current_device(), driver.active.get_current_stream

    def launch(self, grid: tuple[int, ...], addresses: Mapping[str, int]) -> None:
        """As `kernel[grid]` does, which makes up for hooks what nobody reads if there are none."""
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
