from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.kernels.family import KernelCase, families
from linbench.kernels.matrix_state.cases import VARIATIONS
from linbench.kernels.matrix_state.published import INSTANCES
from linbench.verify import doctor
from linbench.verify.doctor import LIMITS, Row, examine, rows, spread_by_kernel
from linbench.verify.kernel_cases import all_cases
from linbench.verify.kernel_errors import errors_of, poisoned, relative

Inputs = dict[str, Tensor]


def test_every_recurrence_and_small_kernel_has_rows_in_both_precisions() -> None:
    found = rows("cpu")
    declared = {kernel for family in families().values() for kernel in family.cases}
    assert {row.kernel for row in found} == declared
    assert declared > {*INSTANCES, "l2_norm", "gated_attention", "hashing"}
    for kernel in {row.kernel for row in found}:
        assert {row.precision for row in found if row.kernel == kernel} == set(LIMITS)
    cases = {row.case: {other.kernel for other in found if other.case == row.case} for row in found}
    decaying = {name for name, instance in INSTANCES.items() if instance.decay != "none"}
    erasing = {name for name, instance in INSTANCES.items() if instance.update in ("delta", "erase")}
    having = {
        "from a state, odd length": set(INSTANCES),
        "decays of 1e-6 and 1": decaying,
        "resets between packed sequences": decaying,
        "near-parallel keys, beta 1.99": erasing,
        "beta below 1, from a state": erasing,
    }
    assert {case: cases[case] for case in having} == having


@pytest.mark.parametrize("name", ["scalar_decay", "gla", "gated_deltanet", "kda", "rwkv7"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("wide", [False, True], ids=["16 bits", "float32"])
def test_on_a_gpu_the_sizes_reach_every_tile_that_walks(name: str, dim: int, wide: bool) -> None:
    launch = pytest.importorskip("linbench.kernels.matrix_state.triton.launch", reason="Triton is for Linux")
    instance = INSTANCES[name]
    switches = {
        "wide": wide,
        "extended": False,
        "update": instance.update,
        "decay": instance.decay,
        "processors": 132,
        "gradient": True,
    }

    def tile(rows: int, length: int) -> tuple[int, int] | None:
        rule = launch.rule(rows=rows, length=length, key_dim=dim, value_dim=dim, **switches)
        return (rule.pass_keys, rule.pass_values) if rule.schedule == "split" else None

    chosen = [
        case.gpu
        for case in VARIATIONS.values()
        if case.applies_to(name, instance) and case.gpu.key_dim == case.gpu.value_dim == dim
    ]
    reached = {tile(sizes.batch * sizes.heads, sizes.length) for sizes in chosen}
    assert {tile(rows, 4096) for rows in range(1, 300)} <= reached | {None}


def test_extreme_inputs_are_extreme() -> None:
    decay = all_cases("cpu")["kda"]["decays of 1e-6 and 1"](torch.float32).inputs["log_decay"].exp()
    assert set(decay.log10().round().unique().tolist()) == {-6.0, 0.0}
    inputs = all_cases("cpu")["comba"]["near-parallel keys, beta 1.99"](torch.float32).inputs
    k = inputs["k"]
    assert (k[:, :1] * k).sum(dim=-1).min() > 0.999
    assert inputs["beta"].unique().tolist() == pytest.approx([1.99])
    assert torch.allclose(inputs["erase_key"], 0.7 * k)


def wrong(
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Callable[..., object]], Callable[..., object]],
) -> None:
    """Let cases of a kernel be built with a changed kernel."""
    build_all = doctor.all_cases

    def build(original: Callable[[torch.dtype], KernelCase], dtype: torch.dtype) -> KernelCase:
        case = original(dtype)
        return case._replace(kernel=change(case.kernel))

    def all_cases(device: str) -> object:
        found = build_all(device)
        found[kernel] = {name: partial(build, original) for name, original in found[kernel].items()}
        return found

    monkeypatch.setattr(doctor, "all_cases", all_cases)


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_output_or_state_is_found(
    monkeypatch: pytest.MonkeyPatch, which: int, snapshot: SnapshotAssertion
) -> None:
    def change(kernel: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        return lambda inputs: tuple(x * (1 + 3e-5) if i == which else x for i, x in enumerate(kernel(inputs)))

    wrong("kda", monkeypatch, change)
    (found,) = examine([Row("kda", "as published", "fp32", "cpu")], workers=0)
    assert not found.ok
    assert found.reason == snapshot
    assert found.error == pytest.approx(3e-5, rel=0.1)


def test_an_error_in_one_gradient_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def change(kernel: Callable[..., object]) -> Callable[..., object]:
        def spoilt(inputs: Inputs) -> object:
            beta = inputs["beta"]
            return kernel(inputs | {"beta": beta + 0.1 * (beta - beta.detach())})

        return spoilt

    wrong("comba", monkeypatch, change)
    (found,) = examine([Row("comba", "as published", "bf16", "cpu")], workers=0)
    assert found.reason == snapshot
    assert found.error is not None
    assert found.error < LIMITS["bf16"][0]


def test_memory_that_was_never_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(kernel: Callable[..., object]) -> Callable[..., object]:
        return lambda inputs: tuple(torch.cat([x[:1], torch.empty_like(x[1:])]) for x in kernel(inputs))  # type: ignore[attr-defined]

    wrong("l2_norm", monkeypatch, change)
    (found,) = examine([Row("l2_norm", "as published", "fp32", "cpu")], workers=0)
    assert found.reason is not None
    assert found.reason.startswith("outputs are not finite")
    assert found.as_dict()["error"] is None


def test_a_row_that_raises_is_wrong_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def change(kernel: Callable[..., object]) -> Callable[..., object]:
        def crashing(inputs: Inputs) -> object:
            raise RuntimeError("illegal memory access\nin two lines")

        return crashing

    wrong("rms_norm", monkeypatch, change)
    heard: list[str] = []
    found = examine(
        rows("cpu", ["rms_norm", "l2_norm"]), workers=0, tell=lambda verdict: heard.append(verdict.row.kernel)
    )
    assert [verdict.ok for verdict in found] == [False] * 6 + [True] * 2
    assert found[0].reason == snapshot
    assert len(heard) == 8


def test_errors_know_a_kernel_from_another() -> None:
    inputs = {"x": torch.linspace(-1, 1, 30), "index": torch.arange(30), "y": torch.linspace(2, 3, 30)}

    def product(given: Inputs) -> tuple[Tensor, ...]:
        return (given["x"] * given["y"],)

    def without_gradient_of_y(given: Inputs) -> tuple[Tensor, ...]:
        return (given["x"] * given["y"].detach(),)

    def without_gradients(given: Inputs) -> tuple[Tensor, ...]:
        return (given["x"].detach(),)

    found = errors_of(KernelCase(product, product, inputs))
    assert found.output < 1e-7
    assert found.gradient < 1e-7
    found = errors_of(KernelCase(without_gradient_of_y, product, inputs))
    assert (found.output < 1e-7, found.gradient, found.worst) == (True, 1.0, "y")
    with pytest.raises(RuntimeError, match="does not require grad"):
        errors_of(KernelCase(without_gradients, product, inputs))
    twice = KernelCase(
        lambda given: (2 * given["x"],), lambda given: (given["x"],), inputs, differentiable=False
    )
    found = errors_of(twice)
    assert (found.output, found.gradient) == (1.0, None)


def test_errors_are_relative_and_never_hide_what_is_not_finite() -> None:
    one = torch.ones(4)
    assert relative(1.5 * one, one.double()) == 0.5
    assert relative(1.5 * one, one.double(), floor=4.0) == 0.25
    assert relative(0 * one, 0 * one.double()) == 0.0
    assert relative(one, 0 * one.double()) == float("inf")
    assert relative(one * float("nan"), one.double()) == float("inf")
    assert relative(one * float("nan"), 0 * one.double()) == float("inf")


def test_poisoned_memory_is_left_as_it_was() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with poisoned():
        assert torch.empty(5).isnan().all()
    assert torch.are_deterministic_algorithms_enabled() == before


@pytest.mark.gpu
def test_processes_on_a_gpu() -> None:
    found = examine(rows("cuda:0", ["l2_norm", "linear_attention"]), workers=2)
    assert [verdict.reason for verdict in found] == [None] * len(found)


def test_rows_of_one_kernel_are_spread() -> None:
    these = rows("cuda")
    places = spread_by_kernel(these)
    assert sorted(places) == list(range(len(these)))
    for kernel in {row.kernel for row in these}:
        turns = [turn for turn, place in enumerate(places) if these[place].kernel == kernel]
        assert [places[turn] for turn in turns] == [
            place for place, row in enumerate(these) if row.kernel == kernel
        ]
    for first in range(len(places) - 11):
        assert max(Counter(these[place].kernel for place in places[first : first + 12]).values()) <= 3
    assert spread_by_kernel([]) == []


@pytest.mark.slow
def test_verdicts_stand_in_the_order_of_their_rows_however_they_were_spread() -> None:
    these = [row for row in rows("cpu", ["l2_norm", "rotary"]) if row.precision == "fp32"]
    told: list[Row] = []
    found = examine(these, workers=2, tell=lambda verdict: told.append(verdict.row))
    assert [verdict.row for verdict in found] == these
    assert sorted(told, key=these.index) == these
    assert all(verdict.ok for verdict in found)
