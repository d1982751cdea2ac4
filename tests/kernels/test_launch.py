"""Kernels are launched by Triton the first time, and directly what it compiled from then on."""

from collections import deque
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch

triton_launch = pytest.importorskip(
    "linbench.kernels.matrix_state.triton.launch", reason="Triton is not installed"
)


class Compiled:
    """Stands for what Triton makes of a kernel."""

    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.calls: Any = []
        self.told: Any = []

    def run(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments: self.told.append((grid, arguments))


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose third device is the current one."""
    active = SimpleNamespace(
        get_current_device=lambda: 3, get_current_stream=lambda device: f"stream of {device}"
    )
    monkeypatch.setattr(triton_launch, "driver", SimpleNamespace(active=active))


class Kernel:
    """Stands for a Triton kernel of three parameters; `compiles` is what compiling it gives."""

    arg_names = ("x", "size", "y")

    def __init__(self, compiles: Any) -> None:
        self.compiles = compiles
        self.calls: Any = []

    def __getitem__(self, grid: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            self.calls.append((grid, arguments, options))
            return self.compiles

        return run


def step_of(kernel: Kernel, grid: tuple[int, ...] = (4,)) -> Any:
    return triton_launch.KernelLaunch(kernel, grid, {"size": 2, "z": "another"}, warps=2)


OPTIONS = {"num_warps": 2, "num_stages": 1, "maxnreg": None}


def test_what_was_compiled_is_launched_directly_for_the_same_step_alone() -> None:
    compiled = Compiled()
    kernel = Kernel(compiled)
    step, other = step_of(kernel, (4, 2)), step_of(kernel, (4, 2))
    for address, which in enumerate((step, step, other, step)):
        which.launch({"x": address, "z": 9}, lambda: {"x": "a tensor"}, True)
    assert kernel.calls == [((4, 2, 1), ("a tensor", 2, None), OPTIONS)] * 2
    before = (4, 2, 1, "stream of 3", "function", "metadata", None, None, None)
    assert compiled.calls == [(*before, 1, 2, None), (*before, 3, 2, None)]


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
@pytest.mark.parametrize("chained", [True, False])
def test_what_wants_to_be_told_of_launches_is(
    hook: str, chained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = Compiled()
    hooks = {
        "launch_enter_hook": None,
        "launch_exit_hook": None,
        hook: SimpleNamespace(calls=[print]) if chained else print,
    }
    monkeypatch.setattr(triton_launch, "_HOOKS", SimpleNamespace(**hooks))
    step = step_of(Kernel(compiled))
    for _ in range(2):
        step.launch({"x": 7}, dict, True)
    assert compiled.told == [((4, 1, 1), (7, 2, None))]
    assert not compiled.calls


def test_nothing_keeps_the_tensors_of_a_call() -> None:
    kernel, x = Kernel(Compiled()), torch.ones(1)
    kernel.calls = deque(maxlen=0)
    seen, step = ref(x), step_of(kernel)
    step.launch({"x": x.data_ptr()}, partial(dict, x=x), True)
    del x
    assert step.compiled is not None
    assert seen() is None


@pytest.mark.parametrize(
    ("compiles", "aligned"), [(Compiled(), False), (None, True)], ids=["misaligned", "interpreted"]
)
def test_triton_launches_what_it_must_specialise_or_interpret(compiles: Any, aligned: bool) -> None:
    kernel = Kernel(compiles)
    step = step_of(kernel)
    for _ in range(2):
        step.launch({}, dict, aligned)
    assert len(kernel.calls) == 2


def test_what_is_misaligned_once_is_not_launched_as_what_was_compiled_for_more() -> None:
    compiled = Compiled()
    kernel = Kernel(compiled)
    step = step_of(kernel)
    for aligned in (True, False, True):
        step.launch({}, dict, aligned)
    assert [len(kernel.calls), len(compiled.calls)] == [2, 1]


@pytest.mark.parametrize("length", [64, 65], ids=["fused", "split"])
@pytest.mark.parametrize("update", ["add", "delta", "low_rank"])
@pytest.mark.parametrize("decay", [None, (), (16,)], ids=["none", "scalar", "vector"])
def test_addresses_are_those_of_tensors_and_what_lies_in_a_room_lies_apart(
    update: str, decay: tuple[int, ...] | None, length: int
) -> None:
    from linbench.kernels.matrix_state.triton.launches import Call
    from linbench.kernels.matrix_state.triton.plan import GIVEN, Options, plan_key

    q, k, v, p, b = torch.randn(5, 1, length, 2, 16).bfloat16()
    g, beta = (
        None if decay is None else torch.zeros(1, length, 2, *decay),
        torch.ones(1, length, 2) if update == "delta" else None,
    )
    tensors = (q, k, v, g, beta, *((p, b) if update == "low_rank" else (None, None)), None, None)
    call, plan = Call(), plan_key(tensors, Options(1.0, update, False, False, True), True, True).plan()
    assert plan.split == (length > 64)
    call.place(GIVEN, tensors)
    for room in (plan.saved, plan.scratch):
        memory = room.empty(v)
        call.bind(room, memory)
        views = [room.view(memory, name) for name in room.contents]
        ends = [
            end
            for x in views
            for end in (x.data_ptr() - memory.data_ptr(), x.data_ptr() - memory.data_ptr() + x.nbytes)
        ]
        assert all(start <= end for start, end in pairwise([*ends, memory.nbytes]))
        assert not any(start % triton_launch.ALIGNMENT for start in ends[::2])
    assert {name: x.data_ptr() for name, x in call.views().items()} == call.addresses


@pytest.mark.parametrize("length", [1, 16, 65], ids=["recurrent", "fused", "split"])
@pytest.mark.parametrize("update", ["add", "delta", "low_rank"])
@pytest.mark.parametrize("decay", [None, (), (16,)], ids=["none", "scalar", "vector"])
def test_there_may_be_more_recurrences_than_a_grid_is_high(
    update: str, decay: tuple[int, ...] | None, length: int
) -> None:
    from linbench.kernels.matrix_state.triton.launches import backward_launches, forward_launches
    from linbench.kernels.matrix_state.triton.plan import Options, plan_key

    shape, dim, gradient = (40_000, length, 2), 128 if length == 65 else 16, length > 1
    vectors, gate = torch.empty(*shape, dim, device="meta").bfloat16(), torch.empty(shape, device="meta")
    decays = None if decay is None else torch.empty(*shape, *decay, device="meta")
    tensors = (
        *[vectors] * 3,
        decays,
        gate if update == "delta" else None,
        *([vectors] * 2 if update == "low_rank" else [None] * 2),
        None,
        None,
    )
    plan = plan_key(tensors, Options(1.0, update, False, False, True), gradient, True).plan()
    steps = [
        *forward_launches(plan),
        *(backward_launches(plan.backward(torch.bfloat16, None)) if gradient else ()),
    ]
    assert plan.launch.schedule == {1: "recurrent", 16: "fused", 65: "split"}[length]
    assert all(step.grid[0] >= 80_000 and max(step.grid[1:]) <= 65_535 for step in steps)


@pytest.mark.parametrize(
    ("update", "rows", "walked"),
    [
        *(
            ("delta", rows, (128, values))
            for rows, values in ((128, 64), (34, 64), (33, 32), (17, 32), (16, 16), (1, 16))
        ),
        *(
            ("add", rows, tile)
            for rows, tile in (
                (128, (128, 64)),
                (34, (64, 64)),
                (33, (64, 64)),
                (16, (32, 32)),
                (1, (16, 16)),
            )
        ),
    ],
)
def test_the_fewer_the_rows_the_narrower_is_what_walks_and_sums_need_not_all_keys(
    update: str, rows: int, walked: tuple[int, int]
) -> None:
    sizes = {
        "rows": rows,
        "length": 4096,
        "key_dim": 128,
        "value_dim": 128,
        "wide": False,
        "extended": False,
        "processors": 132,
        "gradient": True,
    }
    rule = triton_launch.rule(**sizes, update=update, decay="scalar")
    assert (rule.pass_keys, rule.pass_values) == walked


@pytest.mark.parametrize(
    ("value_dim", "block"),
    [(16, 16), (64, 64), (65, 128), (128, 128), (129, 64), (192, 64), (193, 128), (256, 128)],
)
def test_as_many_values_at_a_time_as_are_not_padding(value_dim: int, block: int) -> None:
    sizes = {
        "rows": 128,
        "length": 4096,
        "key_dim": 128,
        "value_dim": value_dim,
        "wide": False,
        "extended": False,
        "processors": 132,
        "gradient": True,
    }
    assert triton_launch.rule(**sizes, update="delta", decay="scalar").value_block == block


@pytest.mark.parametrize(
    ("update", "dim", "rows", "walks", "registers"),
    [
        ("low_rank", 64, 512, 2, 168),
        ("delta", 64, 133, 2, 128),
        ("delta", 64, 132, 4, 128),
        ("low_rank", 128, 512, 4, 168),
        ("add", 64, 512, 4, 128),
        ("add", 128, 512, 4, None),
    ],
)
def test_where_many_programs_walk_each_takes_little(
    update: str, dim: int, rows: int, walks: int, registers: int | None
) -> None:
    sizes = {
        "rows": rows,
        "length": 256,
        "key_dim": dim,
        "value_dim": dim,
        "wide": False,
        "extended": False,
        "processors": 132,
        "gradient": True,
    }
    rule = triton_launch.rule(**sizes, update=update, decay="vector")
    assert (rule.warps[0], rule.registers[2], rule.joined) == (walks, registers, dim == 64)


@pytest.mark.parametrize(("rows", "registers"), [(16, 255), (128, 255), (132, 255), (133, None), (512, None)])
def test_walks_have_all_registers_where_all_of_them_have_room(rows: int, registers: int | None) -> None:
    sizes = {
        "rows": rows,
        "length": 4096,
        "key_dim": 128,
        "value_dim": 128,
        "wide": False,
        "extended": False,
        "processors": 132,
        "gradient": True,
    }
    rule = triton_launch.rule(**sizes, update="delta", decay="scalar")
    programs = rows * (128 // rule.pass_values)
    assert (rule.registers[0], rule.registers[0] is None) == (registers, programs > 2 * 132)
