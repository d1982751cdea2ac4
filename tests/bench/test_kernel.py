import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.bench import kernel, peers, timing
from linbench.bench import run as measured
from linbench.bench.case import PeerVersion, cpu_independent_id
from linbench.bench.kernel import KernelCase
from linbench.bench.operations import SHAPES, all_operations, parse_shapes
from linbench.bench.presets import PRESETS
from linbench.bench.timing import WARM_UP, DevicePeaks, Spread, time_as_called
from linbench.common.errors import UserError
from linbench.engine.workers import Outcome
from linbench.kernels import matrix_state
from linbench.kernels.family import Operation, Shape
from linbench.kernels.matrix_state.cases import recurrence_flops
from linbench.kernels.matrix_state.published import INSTANCES
from linbench.kernels.norms import cases as norms
from linbench.report.data import ReportData
from linbench.report.figures.kernels import FIGURE
from linbench.report.tables.benchmarks import bench_tables
from linbench.results.environment import environment
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import OPERATION, Store

SHAPE = Shape(2, 9, 2, 8)


@pytest.mark.parametrize("name", all_operations())
def test_every_operation_runs_at_the_shape_that_is_asked_for(name: str) -> None:
    operation = all_operations()[name]
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
    products = {
        name: recurrence_flops(instance, long) / (4096 * 2 * 64 * 64) for name, instance in INSTANCES.items()
    }
    assert products["linear_attention"] == 2  # read, write
    assert products["gated_deltanet"] == products["comba"] == 3  # and recall
    assert products["gated_deltaproduct"] == 5  # read, twice write and recall
    assert products["rwkv7"] == 4  # read, recall, write twice
    assert recurrence_flops(INSTANCES["gla"], short) == 8 * (8 * (64 + 64)), (
        "as attention: scores and their use, for half the pairs"
    )


def test_shapes() -> None:
    assert parse_shapes("B256xT256xH2xD64, b1xt2xh3xd4") == (Shape(256, 256, 2, 64), Shape(1, 2, 3, 4))
    assert str(Shape(8, 4096, 16, 128)) == "B8xT4096xH16xD128"
    for text in ("B4xT4", "B0xT4xH1xD8", "B4xT4xH1xD8,", "8x8x8x8"):
        with pytest.raises(UserError, match="--shapes takes shapes such as"):
            parse_shapes(text)


def test_plans() -> None:
    cases = kernel.plan(device="cuda:0")
    assert len(cases) == len(SHAPES["cuda"]) * len(all_operations())
    assert {(case.dtype, case.repeats) for case in cases} == {("bf16", 100)}
    (case,) = kernel.plan(device="cpu", operations=["kda"], shapes=[SHAPE], repeats=3)
    assert case == KernelCase("kda", SHAPE, "fp32", "cpu", None, 3)
    with pytest.raises(UserError, match="did you mean 'gla'"):
        kernel.plan(device="cpu", operations=["glaa"])
    with pytest.raises(UserError, match="did you mean 'bf16'"):
        kernel.plan(device="cpu", dtype="bf161")
    with pytest.raises(UserError, match="did you mean 'transformers'"):
        kernel.plan(device="cpu", peer="transformer")


def test_a_preset_is_a_shape_for_each_length() -> None:
    assert kernel.shapes_of(PRESETS["benchmark"]) == (Shape(256, 256, 2, 64),)
    assert kernel.shapes_of(PRESETS["long"])[-1] == Shape(1, 65536, 8, 128)


def test_what_names_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    case = KernelCase("kda", SHAPE, "fp32", "cpu", None, 3)
    assert case.identity["kernels"] == {"matrix_state": matrix_state.VERSION}
    assert replace(case, repeats=9).id == case.id
    others = [
        replace(case, operation="gla"),
        replace(case, shape=Shape(2, 9, 2, 4)),
        replace(case, dtype="bf16"),
        replace(case, peer=PeerVersion("fla", None)),
    ]
    assert len({case.id, *(other.id for other in others)}) == 5
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    other = replace(case)
    assert other.id != case.id, "another number of threads is another speed"
    assert cpu_independent_id(other.identity) == cpu_independent_id(case.identity)


def test_calls_are_timed_in_turn() -> None:
    heard: list[str] = []
    found = time_as_called(
        {"a": lambda: heard.append("a"), "b": lambda: heard.append("b")}, repeats=7, cuda=False
    )
    assert "".join(heard) == "ab" * 10
    assert all(
        0 < seconds.low <= seconds.median <= seconds.high and seconds.calls == 7 for seconds in found.values()
    )


def test_medians_and_fifths_on_a_clock_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], iter([9.0] * WARM_UP + [5.0, 1.0, 4.0, 2.0, 3.0, 100.0, 6.0, 0.5, 7.0, 8.0, 9.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(waits)

    monkeypatch.setattr(timing, "_BUDGET_SECONDS", 1000.0)
    assert time_as_called({"it": call}, repeats=11, cuda=False)["it"] == Spread(5.0, 2.0, 8.0, 11), (
        "warm-up is not counted, nor do two outliers matter"
    )
    waits = iter([1.0] * 100)
    monkeypatch.setattr(timing, "_BUDGET_SECONDS", 7.0)
    assert time_as_called({"it": call}, repeats=50, cuda=False)["it"].calls == 8, (
        "what takes very long is called fewer times"
    )
    waits = iter([100.0] * 2)
    assert time_as_called({"it": call}, repeats=50, cuda=False)["it"].calls == 1, (
        "and what takes longer still once, after once to warm up"
    )


def with_peer(monkeypatch: pytest.MonkeyPatch, call: Any) -> KernelCase:
    monkeypatch.setattr(peers, "operation_calls", lambda name, compiling=False: {"linear_attention": call})
    monkeypatch.setattr(peers, "unavailable_reason", lambda name, device, measured: None)
    return KernelCase("linear_attention", SHAPE, "fp32", "cpu", PeerVersion("fla", "0"), 2)


def test_a_peer_is_measured_beside_ours_and_its_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_tenth_off(x: dict[str, Tensor]) -> Tensor:
        return 1.1 * all_operations()["linear_attention"].call(x)

    found = kernel.measure(with_peer(monkeypatch, a_tenth_off))
    sides = found["sides"]
    assert found["bare"]["median"] > 0, "of a function that computes nothing"
    assert sides["linbench"]["error"] < 1e-6
    assert sides["fla"]["error"] == pytest.approx(0.1, rel=1e-3)
    assert sides["fla"]["gradient_error"] == pytest.approx(0.1, rel=1e-3)
    assert all(
        sides[side][what]["as_called"]["median"] > 0
        for side in ("linbench", "fla")
        for what in ("forward", "both")
    )
    q = 2 * 9 * 2 * 8 * 4
    assert found["cost"]["bytes"] == 11 * q, "q, k, v, o; q, k, v and four gradients"
    assert found["cost"]["flops"] == 3 * recurrence_flops(INSTANCES["linear_attention"], SHAPE)


def test_a_peer_that_raises_is_a_word_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(x: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError("not here")

    case = with_peer(monkeypatch, raising)
    assert kernel.measure(case)["sides"]["fla"] == {"reason": "NotImplementedError: not here"}
    assert set(kernel.measure(replace(case, operation="gla"))["sides"]) == {"linbench"}, (
        "the peer does not have it"
    )


@pytest.fixture
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring them takes a second."""
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))


@pytest.mark.usefixtures("known_ceilings")
def test_a_peer_that_cannot_be_had_is_told_and_installing_it_asks_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    (case,) = kernel.plan(device="cpu", operations=["l2_norm"], shapes=[SHAPE], peer="fla", repeats=1)
    (found,) = measured.run([case], Store(tmp_path), tell=lambda line: None)
    assert found["status"] == "ok"
    assert "pip install 'linbench[fla]'" in found["sides"]["fla"]["reason"]
    (words,) = bench_tables([found])
    notes = words.frame["notes"][0]  # it may say first that the machine was busy
    assert notes[notes.index("fla: ") :] == snapshot
    monkeypatch.setattr(peers, "version_of", lambda name: "0.6.0")
    (again,) = kernel.plan(device="cpu", operations=["l2_norm"], shapes=[SHAPE], peer="fla", repeats=1)
    assert again.id != case.id
    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    assert kernel.measure(again)["sides"]["fla"]["reason"] == snapshot


@pytest.mark.usefixtures("known_ceilings")
def test_an_operation_that_raises_shows_why_and_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def raising(*_: Any) -> Any:
        raise ValueError("no [such] thing")

    operations = norms.FAMILY.operations
    broken = Operation(operations["l2_norm"].inputs, raising, lambda shape: 0.0)
    monkeypatch.setitem(operations, "l2_norm", broken)
    cases = [KernelCase(name, SHAPE, "fp32", "cpu", None, 1) for name in ("l2_norm", "rms_norm")]
    first, second = measured.run(cases, Store(tmp_path), tell=lambda line: None)
    assert (first["status"], second["status"]) == ("failed", "ok")
    assert "no [such] thing" in first["reason"]
    assert len(list(tmp_path.glob("*.json"))) == 2
    (words,) = bench_tables([first, second])
    assert words.frame["notes"][0] == f"failed: {first['reason']}"
    assert words.frame["fwd+bwd"][0] == "–"


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": 0.9 * median, "high": 1.1 * median, "calls": 5}


def a_result(name: str, theirs: float, **more: Any) -> dict[str, Any]:
    """Return a result in which linbench takes 2 s as called and 1 s on the device.

    The peer takes as long both ways.
    """
    case = KernelCase(name, SHAPE, "bf16", "cpu", PeerVersion("fla", "0"), 1)
    sides = {
        OURS: {"both": {AS_CALLED: spread(2.0), REPLAYED: spread(1.0)}},
        "fla": {"both": {AS_CALLED: spread(theirs), REPLAYED: spread(theirs)}},
    }
    found = {
        "sides": sides,
        "cost": {"bytes": 50, "flops": 3.0},
        "bare": spread(0.5),
        "environment": environment("cpu"),
    }
    outcome = Outcome({**measured.empty_fields(), **found, **more})
    return measured.result_of(case, outcome, DevicePeaks(bytes_per_second=100.0, flops_per_second=10.0), None)


def test_ratios_shares_and_their_summary(snapshot: SnapshotAssertion) -> None:
    (words,) = bench_tables([a_result("gla", 4.0), a_result("kda", 16.0)])
    first = dict(words.frame.iloc[0])
    assert (first["operation"], first["fwd+bwd"], first["device fwd+bwd"]) == (
        "gla",
        "2,000 ± 10%",
        "1,000 ± 10%",
    )
    assert (first["x"], first["x device"]) == ("2.00", "4.00")
    assert (first["of bytes"], first["of arithmetic"], first["of a call"]) == ("50%", "30%", "25%"), (
        "of device time where there is one; of a call as called"
    )
    assert [part for part in words.caption.split(". ") if "geometric mean" in part] == snapshot
    assert words.to_records()[1]["x"] == 8.0
    assert words.slug.startswith("kernels-b2xt9xh2xd8-bf16-")


def test_one_shape_is_one_table_in_the_order_of_its_letters(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    store = Store(tmp_path)
    store.put(a_result("gla", 4.0))
    (kept,) = store.by_kind()[OPERATION]
    assert list(kept["bench"]["shape"]) == ["B", "D", "H", "T"], "as a file has them"
    title, _, shape = bench_tables([kept])[0].title.partition(": ")
    assert title == snapshot
    assert shape.startswith("B2xT9xH2xD8, bf16, ")


def test_drawn_beside_a_peer(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    results = [
        a_result("gla", 4.0),
        a_result("kda", 16.0),
        a_result("l2_norm", 1.0, sides={}, status="oom", reason="full"),
    ]
    (drawing,) = FIGURE.drawings(ReportData(benchmarks=results))
    (svg,) = drawing.pictures(["svg"]).values()
    text = svg.decode()
    assert all(word in text for word in ("gla", "kda", "l2_norm: oom", "fla"))
    assert re.findall(r"[^<>\n]*tokens per second[^<>\n]*", text) == snapshot
    assert [part for part in drawing.caption.split(". ") if "fla" in part] == snapshot
    assert FIGURE.drawings(ReportData(benchmarks=results[:1])) == [], "a single row is a sentence"


@pytest.mark.gpu
def test_on_a_gpu_there_is_device_time_and_memory() -> None:
    (case,) = kernel.plan(
        device="cuda:0", operations=["gated_deltanet"], shapes=[Shape(4, 64, 2, 32)], repeats=5
    )
    ours = kernel.measure(case)["sides"]["linbench"]
    forward, both = ours["forward"], ours["both"]
    assert 0 < forward["replayed"]["median"] < both["replayed"]["median"] < both["as_called"]["median"] < 1
    assert ours["peak_bytes"] >= 4 * 64 * 2 * 32 * 2
