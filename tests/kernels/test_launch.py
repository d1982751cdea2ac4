"""Kernels are launched by Triton the first time, and directly what it compiled from then on."""

from typing import Any

import pytest

triton_launch = pytest.importorskip("linbench.kernels.matrix_state.triton.launch", reason="Triton is not installed")


class Kernel:
    """Stands for a Triton kernel; `compiles` is what compiling it gives."""

    def __init__(self, compiles: Any) -> None:
        self.compiles = compiles
        self.calls: list[Any] = []

    def __getitem__(self, grid: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            self.calls.append((grid, arguments, options))
            return self.compiles

        return run


def test_what_was_compiled_is_launched_directly_for_the_same_form_alone() -> None:
    compiled = Kernel(None)
    kernel = Kernel(compiled)
    form, other = object(), object()
    for which in (form, form, other, form):
        triton_launch.launch(kernel, (4, 2), (1, 2), which, num_warps=2)
    assert kernel.calls == [((4, 2), (1, 2), {"num_warps": 2})] * 2
    assert compiled.calls == [((4, 2, 1), (1, 2), {})] * 2


@pytest.mark.parametrize(("compiles", "form"), [(Kernel(None), None), (None, object())], ids=["misaligned", "interpreted"])
def test_triton_launches_what_it_must_specialise_or_interpret(compiles: Any, form: Any) -> None:
    kernel = Kernel(compiles)
    for _ in range(2):
        triton_launch.launch(kernel, (1,), (), form)
    assert len(kernel.calls) == 2


def test_kernels_do_not_share_what_was_compiled() -> None:
    compiled = Kernel(None), Kernel(None)
    kernels = [Kernel(x) for x in compiled]
    form = object()
    for _ in range(2):
        for kernel in kernels:
            triton_launch.launch(kernel, (1,), (), form)
    assert [len(x.calls) for x in (*kernels, *compiled)] == [1, 1, 1, 1]
