"""Compilation of several Triton kernels side by side.

Otherwise each is compiled when it is first launched, one after the other.
"""

import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

_THREADS = 8
"""Kernels compiled side by side: chosen, not measured."""

_COMPILED_SECONDS = 0.1
"""Seconds that compiling a kernel takes at the least; loading one from disk takes less."""

_rehearsing = False


class KernelCall(NamedTuple):
    """A call of a Triton kernel; an argument may be a dtype, which stands for a tensor of it."""

    kernel: Any
    grid: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def form(self) -> Hashable:
        """Key that is the same for calls that Triton compiles one kernel for."""
        return (
            id(self.kernel),
            *map(_form, self.arguments),
            *((name, _form(value)) for name, value in self.options.items()),
        )


def compile_ahead(function: Callable[[], Any], device: torch.device) -> bool:
    """Compile all that `function` launches on a GPU.

    It is called once with kernels that do nothing, so its results mean nothing. What it does to tensors in
    place, or to random states, is the caller's to undo. Nothing happens where Triton cannot compile in
    threads.

    Returns: whether there was something to compile, judged by the first kernel.
    """
    if not _in_threads(device):
        return False
    with record_launches() as launched:
        function()
    each = list({call.form: call for call in launched}.values())
    if not each or not _takes_long(each[0]):
        return False
    compile_together(each[1:], device)
    return True


def compile_together(calls: Sequence[KernelCall], device: torch.device) -> None:
    """Compile calls, before the first of them is launched on this GPU.

    What cannot be compiled raises where it is launched. Nothing happens where Triton cannot compile in
    threads, or inside `record_launches`.
    """
    if _in_threads(device) and not _rehearsing:
        _begin()
        with ThreadPoolExecutor(
            min(_THREADS, os.cpu_count() or 1), initializer=partial(torch.cuda.set_device, device)
        ) as pool:
            list(pool.map(_tried, calls))


def _in_threads(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and find_spec("triton.runtime._async_compile") is not None
    )


@cache
def _begin() -> None:
    """Compile an empty kernel, once in a process.

    With its first kernel Triton hashes its own library and asks for the version of the assembler. That takes
    half a second of one thread, and as much of every thread that begins with it.
    """
    import triton

    def nothing() -> None:
        pass

    _tried(KernelCall(triton.jit(nothing), (1,), (), {}))


def _takes_long(call: KernelCall) -> bool:
    """Compile a call, and tell whether that took long.

    Triton keeps on disk what it compiled, and threads that only load it stand in each other's way.
    """
    _begin()
    began = time.perf_counter()
    _compiled(call)
    return time.perf_counter() - began > _COMPILED_SECONDS


@contextmanager
def record_launches() -> Iterator[list[KernelCall]]:
    """Record the launches of Triton kernels inside this context instead of launching them."""
    from triton.runtime.jit import JITFunction

    global _rehearsing
    launched: list[KernelCall] = []

    def note(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launched.append(KernelCall(self, grid, arguments, options))

    run = JITFunction.run
    JITFunction.run, _rehearsing = note, True
    try:
        yield launched
    finally:
        JITFunction.run, _rehearsing = run, False


def _tried(call: KernelCall) -> None:
    with suppress(Exception):
        _compiled(call)


def _compiled(call: KernelCall) -> None:
    """Compile a call onto the disk.

    The launcher is built here but not kept: up to Triton 3.6 it is a module of C with one name for all
    kernels, and Python hands a thread the one that another thread has just loaded, so that a kernel got the
    arguments of another. Each is loaded where it is launched first.
    """
    from triton.runtime import driver

    compiled = call.kernel.warmup(*call.arguments, grid=call.grid, **call.options)
    if compiled is not None:
        driver.active.launcher_cls(compiled.src, compiled.metadata)


def _form(value: Any) -> Hashable:
    return (value.dtype, value.data_ptr() % 16) if isinstance(value, Tensor) else value
