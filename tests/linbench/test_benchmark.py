import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.benchmark import measure, ops, peers, timing
from linbench.benchmark.measure import Measured, Task
from linbench.benchmark.operations import OPERATIONS, SHAPES, Operation, Shape, parse_shapes, recurrence_flops
from linbench.benchmark.report import columns, sentences
from linbench.benchmark.timing import WARM_UP, Ceilings, Spread, as_called
from linbench.common.errors import UserError
from linbench.kernels.matrix_state.instances import INSTANCES
from linbench.workers import Outcome

SHAPE = Shape(2, 9, 2, 8)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_runs_at_the_shape_that_is_asked_for(name: str) -> None:
    operation = OPERATIONS[name]
    inputs = operation.inputs(Shape(5, 520, 2, 4), torch.float32, "cpu")
    assert all(x.is_contiguous() for x in inputs.values())
    output = operation.call(inputs)
    assert output.isfinite().all()
    if name in INSTANCES:
        assert output.shape == (5, 520, 2, 4)
        assert inputs["k"].shape == (5, 520 * INSTANCES[name].steps, 2, 4)
    if operation.exact is not None:
        exact = operation.exact({key: x.double() for key, x in inputs.items()})
        assert torch.allclose(output.double(), exact, atol=1e-4)


def test_the_least_arithmetic() -> None:
    long, short = Shape(1, 4096, 1, 64), Shape(1, 8, 1, 64)
    products = {name: recurrence_flops(instance, long) / (4096 * 2 * 64 * 64) for name, instance in INSTANCES.items()}
    assert products["linear_attention"] == 2  # read, write
    assert products["gated_deltanet"] == products["comba"] == 3  # and recall
    assert products["gated_deltaproduct"] == 5  # read, twice write and recall
    assert products["rwkv7"] == 4  # read, recall, write twice
    assert recurrence_flops(INSTANCES["gla"], short) == 8 * (8 * (64 + 64)), "as attention: scores and their use, for half the pairs"


def test_shapes() -> None:
    assert parse_shapes("B256xT256xH2xD64, b1xt2xh3xd4") == (Shape(256, 256, 2, 64), Shape(1, 2, 3, 4))
    assert str(Shape(8, 4096, 16, 128)) == "B8xT4096xH16xD128"
    for text in ("B4xT4", "B0xT4xH1xD8", "B4xT4xH1xD8,", "8x8x8x8"):
        with pytest.raises(UserError, match="--shapes takes shapes such as"):
            parse_shapes(text)


def test_plans() -> None:
    tasks = ops.plan(device="cuda:0")
    assert len(tasks) == len(SHAPES["cuda"]) * len(OPERATIONS)
    assert {(task.dtype, task.repeats) for task in tasks} == {("bf16", 100)}
    (task,) = ops.plan(device="cpu", operations=["kda"], shapes=[SHAPE], repeats=3)
    assert task == Task("kda", SHAPE, "fp32", "cpu", None, 3)
    with pytest.raises(UserError, match="did you mean 'gla'"):
        ops.plan(device="cpu", operations=["glaa"])
    with pytest.raises(UserError, match="did you mean 'bf16'"):
        ops.plan(device="cpu", dtype="bf161")


def test_peers_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"flash-linear-attention is not installed; pip install 'linbench\[fla\]' brings it"):
        ops.plan(device="cuda:0", peer="fla")
    with pytest.raises(UserError, match="did you mean 'transformers'"):
        ops.plan(device="cpu", peer="transformer")
    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    with pytest.raises(UserError, match="runs on a GPU only"):
        ops.plan(device="cpu", peer="fla")
    ops.plan(device="cpu", peer="transformers")


def test_calls_are_timed_in_turn() -> None:
    heard: list[str] = []
    found = as_called({"a": lambda: heard.append("a"), "b": lambda: heard.append("b")}, repeats=7, cuda=False)
    assert "".join(heard) == "ab" * 10
    assert all(0 < seconds.low <= seconds.median <= seconds.high and seconds.calls == 7 for seconds in found.values())


def test_medians_and_fifths_on_a_clock_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], iter([9.0] * WARM_UP + [5.0, 1.0, 4.0, 2.0, 3.0, 100.0, 6.0, 0.5, 7.0, 8.0, 9.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(waits)

    monkeypatch.setattr(timing, "_ENOUGH_SECONDS", 1000.0)
    assert as_called({"it": call}, repeats=11, cuda=False)["it"] == Spread(5.0, 2.0, 8.0, 11), "warm-up is not counted, nor do two outliers matter"
    waits = iter([1.0] * 100)
    monkeypatch.setattr(timing, "_ENOUGH_SECONDS", 7.0)
    assert as_called({"it": call}, repeats=50, cuda=False)["it"].calls == 8, "what takes very long is called fewer times"
    waits = iter([100.0] * 2)
    assert as_called({"it": call}, repeats=50, cuda=False)["it"].calls == 1, "and what takes longer still once, after once to warm up"


def with_peer(monkeypatch: pytest.MonkeyPatch, call: Any) -> Task:
    monkeypatch.setattr(peers, "calls", lambda name, compiling=False: {"linear_attention": call})
    return Task("linear_attention", SHAPE, "fp32", "cpu", "fla", 2)


def test_a_peer_is_measured_beside_ours_and_its_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_tenth_off(x: dict[str, Tensor]) -> Tensor:
        return 1.1 * OPERATIONS["linear_attention"].call(x)

    found = measure.measure(with_peer(monkeypatch, a_tenth_off))
    assert found.call > 0, "of a function that computes nothing"
    assert found.sides["linbench"]["error"] < 1e-6
    assert found.sides["fla"]["error"] == pytest.approx(0.1, rel=1e-3)
    assert found.sides["fla"]["gradient_error"] == pytest.approx(0.1, rel=1e-3)
    assert all(found.sides[side][what] > 0 for side in ("linbench", "fla") for what in ("forward", "both"))
    q = 2 * 9 * 2 * 8 * 4
    assert found.bytes == 11 * q, "q, k, v, o; q, k, v and four gradients"
    assert found.flops == 3 * recurrence_flops(INSTANCES["linear_attention"], SHAPE)


def test_a_peer_that_raises_is_a_word_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(x: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError("not here")

    task = with_peer(monkeypatch, raising)
    found = measure.measure(task)
    assert found.sides["fla"] == {"reason": "NotImplementedError: not here"}
    row = ops.row_of(task, Outcome(found), Ceilings(1e9, 1e9))
    names, (words,) = columns([row], "fla")
    assert dict(zip(names, words, strict=True))["reason"] == "fla NotImplementedError: not here"
    other = measure.measure(task._replace(operation="gla"))
    assert set(other.sides) == {"linbench"}, "the peer does not have it"


@pytest.fixture
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring them takes a second."""
    monkeypatch.setattr(ops, "ceilings", lambda device: Ceilings(1e10, 1e11))


@pytest.mark.usefixtures("known_ceilings")
def test_what_breaks_with_a_peer_is_measured_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(measure, "_add_peer", breaking)
    said: list[str] = []
    tasks = [Task(name, SHAPE, "fp32", "cpu", "fla", 1) for name in ("l2_norm", "rms_norm")]
    found = ops.run(tasks, tell=said.append)
    assert [row["reason"] for row in found["rows"]] == [None, None]
    assert all(row["sides"]["fla"]["reason"] == "RuntimeError: the device is gone" for row in found["rows"])
    assert said[-1].startswith("measured 2/2 rms_norm")


@pytest.mark.usefixtures("known_ceilings")
def test_an_operation_that_raises_shows_why_and_the_rest_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> Any:
        raise ValueError("no [such] thing")

    broken = Operation(OPERATIONS["l2_norm"].inputs, raising, lambda shape: 0.0)
    monkeypatch.setitem(OPERATIONS, "l2_norm", broken)
    kept: list[int] = []
    tasks = [Task(name, SHAPE, "fp32", "cpu", None, 1) for name in ("l2_norm", "rms_norm")]
    found = ops.run(tasks, tell=lambda line: None, keep=lambda found: kept.append(len(found["rows"])))
    assert [row["reason"] for row in found["rows"]] == ["ValueError: no [such] thing", None]
    assert kept[:2] == [1, 2]
    assert columns(found["rows"], None)[1][0][-1] == "ValueError: no [such] thing"


def test_ratios_shares_and_their_summary() -> None:
    best = Ceilings(bytes_per_second=100.0, flops_per_second=10.0)
    rows = []
    for name, theirs in (("gla", 4.0), ("kda", 16.0)):
        sides = {"linbench": {"both": 2.0, "device_both": 1.0}, "fla": {"both": theirs, "device_both": theirs}}
        rows.append(ops.row_of(Task(name, SHAPE, "bf16", "cuda:0", "fla", 1), Outcome(Measured(sides, 50, 3.0, 0.5)), best))
    assert rows[0]["ratios"] == {"both": 2.0, "device_both": 4.0}
    assert rows[0]["shares"] == pytest.approx({"bytes": 0.5, "flops": 0.3, "call": 0.25}), "of device time where there is one; of a call as called"
    both, device = ops.summary(rows, "fla")
    assert (both["least"], both["least_of"]) == (2.0, "gla")
    assert both["geometric_mean"] == pytest.approx(math.sqrt(2 * 8))
    assert device["what"] == "device_both"
    said = sentences({"summary": [both, device], "ceilings": best._asdict(), "notes": ["a note"]})
    assert said[0] == "B2xT9xH2xD8, fla / ours as called: geometric mean 4.00, least 2.00 (gla)."
    assert said[-1] == "a note"


@pytest.mark.gpu
def test_on_a_gpu_there_is_device_time_and_memory() -> None:
    (task,) = ops.plan(device="cuda:0", operations=["gated_deltanet"], shapes=[Shape(4, 64, 2, 32)], repeats=5)
    ours = measure.measure(task).sides["linbench"]
    assert 0 < ours["device_forward"] < ours["device_both"] < ours["both"] < 1
    assert ours["peak_bytes"] >= 4 * 64 * 2 * 32 * 2
