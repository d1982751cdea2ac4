import importlib
import pkgutil
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
from linbench import kernels  # noqa: E402
from linbench.kernels import precompile  # noqa: E402
from linbench.kernels.operators import INTERPRETED  # noqa: E402
from linbench.kernels.precompile import KernelCall, compile_ahead, compile_together, record_launches  # noqa: E402

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")


@triton.jit
def _kernel(x, n, BLOCK: triton.language.constexpr):
    pass


def test_kernels_are_noted_and_not_launched() -> None:
    before = triton.runtime.jit.JITFunction.run
    x = torch.zeros(64)
    with record_launches() as launched:
        assert _kernel[(1,)](x, 64, BLOCK=4, num_warps=2) is None
    (call,) = launched
    assert (call.kernel, call.grid, call.arguments[1:], call.options) == (
        _kernel,
        (1,),
        (64,),
        {"BLOCK": 4, "num_warps": 2},
    )
    assert call.arguments[0] is x
    assert triton.runtime.jit.JITFunction.run is before


def test_calls_that_are_compiled_alike_have_one_form() -> None:
    x = torch.zeros(64)
    with record_launches() as launched:
        for given in (x, x[16:], x[1:], x.half()):
            _kernel[(1,)](given, 64, BLOCK=4)
        _kernel[(1,)](x, 64, BLOCK=8)
        _kernel[(2,)](x, 64, BLOCK=4)
    forms = [call.form for call in launched]
    assert forms[0] == forms[1] == forms[5]
    assert len(set(forms)) == 4


def test_on_a_cpu_nothing_is_tried() -> None:
    calls: list[int] = []
    compile_ahead(lambda: calls.append(1), torch.device("cpu"))
    assert calls == []


def test_calls_are_compiled_together_unless_they_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [KernelCall(_kernel, (1,), (torch.float32, size), {"BLOCK": 4}) for size in range(20)]
    compiled: list[KernelCall] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    def compile_one(call: KernelCall) -> None:
        compiled.append(call)
        if call.arguments[1] % 2:
            raise RuntimeError("which is told where it is launched")

    begun: list[int] = []
    monkeypatch.setattr(precompile, "_begin", lambda: begun.append(len(compiled)))
    monkeypatch.setattr(precompile, "_compiled", compile_one)
    with record_launches() as launched:
        compile_together(calls, torch.device("cuda", 0))
    compile_together(calls, torch.device("cpu"))
    assert compiled == launched == []
    compile_together(calls, torch.device("cuda", 0))
    assert sorted(compiled, key=lambda call: call.arguments[1]) == calls
    assert begun == [0], "what Triton does once in a process is done before threads begin"


def test_what_launches_a_kernel_is_built_in_threads_and_loaded_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If threads load launchers side by side, Python mixes up modules of one name.

    One kernel in a hundred was launched as another.
    """
    built: list[str] = []

    class Compiled:
        def __init__(self, name: str) -> None:
            self.src, self.metadata = name, None

        def _init_handles(self) -> None:
            raise AssertionError("loaded in a thread")

    class Kernel:
        def warmup(self, name: str, *, grid: tuple[int, ...]) -> Compiled:
            return Compiled(name)

    def build(src: str, metadata: None) -> str:
        built.append(src)
        return src

    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(launcher_cls=build))
    names = [f"kernel {number}" for number in range(20)]
    compile_together([KernelCall(Kernel(), (1,), (name,), {}) for name in names], torch.device("cuda", 0))
    assert sorted(built) == sorted(names)


def test_a_process_begins_with_a_kernel_of_nothing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[KernelCall] = []
    monkeypatch.setattr(precompile, "_compiled", compiled.append)
    precompile._begin.cache_clear()
    precompile._begin()
    precompile._begin()
    precompile._begin.cache_clear()
    (call,) = compiled
    assert (call.kernel.arg_names, call.grid, call.arguments) == ([], (1,), ())


def test_what_is_kept_on_disk_is_found_whatever_was_compiled_before() -> None:
    """Triton's key of a kernel counts global constants of functions that it calls only if it has seen these
    before.

    So such constants are arguments.
    """
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(kernels.__path__, "linbench.kernels.")
    ]
    functions = {
        id(x): x
        for module in modules
        for x in vars(module).values()
        if isinstance(x, triton.runtime.jit.JITFunction)
    }.values()
    assert len(functions) > 100

    def keys(order: Iterable[Any]) -> list[str]:
        for function in functions:
            function.hash, function.used_global_vals = None, {}
        for function in order:
            assert function.cache_key
        return [function.cache_key for function in functions]

    callers_first, called_first = keys(reversed(functions)), keys(functions)
    assert [
        function.__name__
        for function, one, other in zip(functions, callers_first, called_first, strict=True)
        if one != other
    ] == []
