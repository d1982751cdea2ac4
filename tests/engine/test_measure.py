"""Groups of cells from beginning to end."""

import gc
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import DeviceLostError
from linbench.engine import measure as what
from linbench.engine.cost import least_bytes
from linbench.engine.stack import Stack
from linbench.engine.step import Training
from linbench.results.schema import Result
from tests.helpers.groups import FEW, cells, results


@pytest.mark.slow
def test_a_group_finds_what_its_cells_find_alone() -> None:
    group = [*cells(), *cells(seeds=[0], protocol__lr=1e-2)]
    together = results(group)
    assert [result["stack"] for result in together] == [{"size": 4, "note": None}] * 4
    for cell, result in zip(group, together, strict=True):
        (alone,) = results([cell])
        assert alone["stack"]["size"] == 1
        assert (result["id"], result["status"], result["model"]) == (alone["id"], "ok", alone["model"])
        assert result["metrics"]["nll"] == pytest.approx(alone["metrics"]["nll"], rel=1e-4)
        assert [point["loss"] for point in result["curve"]] == pytest.approx(
            [point["loss"] for point in alone["curve"]], rel=1e-4
        )
        assert (
            result["slices"]["distance"]["accuracy"]["weight"]
            == alone["slices"]["distance"]["accuracy"]["weight"]
        )


def test_a_gpu_that_does_not_answer_is_no_fault_of_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> None:
        raise RuntimeError("Error 807: MPS server is not ready")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    (cell,) = cells(seeds=[0])
    with pytest.raises(
        DeviceLostError, match=r"the GPU does not answer this process: .*Error 807: MPS server is not ready"
    ):
        results([replace(cell, device="cuda:0")])


@pytest.mark.slow
def test_one_that_diverges_does_not_harm_the_others() -> None:
    group = [*cells(seeds=[0, 1]), *cells(seeds=[0], protocol__lr=1e30)]
    sound, other, broken = results(group)
    assert broken["status"] == "diverged"
    assert "the loss was" in broken["reason"]
    assert (sound["status"], other["status"]) == ("ok", "ok")
    (alone,) = results(group[:1])
    assert sound["metrics"]["nll"] == pytest.approx(alone["metrics"]["nll"], rel=1e-4)


@pytest.mark.slow
def test_when_half_are_over_the_rest_goes_on_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[int, ...]] = []
    part = Stack.part
    monkeypatch.setattr(
        Stack, "part", lambda self, replicas: parts.append(tuple(replicas)) or part(self, replicas)
    )
    group = [*cells(seeds=[0], protocol__lr=1e30), *cells(seeds=[1])]
    broken, sound = results(group)
    assert parts == [(1,)]
    (alone,) = results(group[1:])
    assert (broken["status"], sound["status"]) == ("diverged", "ok")
    assert sound["metrics"]["nll"] == pytest.approx(alone["metrics"]["nll"], rel=1e-4)
    assert len(sound["curve"]) == 5


def test_a_run_stops_early_where_the_protocol_says_so() -> None:
    (whole,) = results(cells(seeds=[0]))
    reached = whole["curve"][1]["accuracy"]
    group = cells(seeds=[0, 1], protocol__stop_at=max(reached, 1e-3))
    early = results(group)[0]
    assert early["status"] == "ok"
    assert len(early["curve"]) <= 2
    assert early["curve"] == [
        {
            **point,
            "loss": pytest.approx(point["loss"], rel=1e-4),
            "nll": pytest.approx(point["nll"], rel=1e-4),
            "accuracy": pytest.approx(point["accuracy"], abs=0.02),
        }
        for point in whole["curve"][: len(early["curve"])]
    ]
    assert early["marks"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("fits", "sizes"), [(2, [2, 2, 1]), (1, [1] * 5), (0, [])])
def test_what_does_not_fit_is_halved(
    monkeypatch: pytest.MonkeyPatch, fits: int, sizes: list[int], snapshot: SnapshotAssertion
) -> None:
    train = what.train

    def narrow(training: Training, *args: Any) -> Any:
        if training.stack.replicas > fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.\nmore words")
        return train(training, *args)

    monkeypatch.setattr(what, "train", narrow)
    found = results(cells(seeds=range(5), **FEW))
    if fits:
        assert sorted((result["stack"]["size"] for result in found), reverse=True) == sorted(
            (n for n in sizes for _ in range(n)), reverse=True
        )
        assert all(result["status"] == "ok" for result in found)
        assert all("were too many: " in result["stack"]["note"] for result in found)
    else:
        assert [result["status"] for result in found] == ["oom"] * 5
        assert {result["reason"] for result in found} == snapshot


@pytest.mark.gpu
def test_what_does_not_fit_a_gpu_is_halved_and_alone_it_is_out_of_memory() -> None:
    group = cells(
        seeds=range(4),
        device="cuda:0",
        protocol__batch_size=2048,
        protocol__tokens=20 * 2048 * 16,
        model__d_model=128,
    )

    def found(times: float) -> list[Result]:
        torch.cuda.empty_cache()
        most = torch.cuda.memory_reserved() + times * alone
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, most / torch.cuda.get_device_properties(0).total_memory)
        )
        try:
            return results(group)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    gc.collect()  # what other tests left would count as needed, and be gone when memory is short
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results(group[:1])
    alone = torch.cuda.max_memory_allocated() - before
    halved = found(2.9)
    assert [
        (result["status"], result["reason"], result["stack"]["note"])
        for result in halved
        if result["status"] != "ok"
    ] == []
    assert {result["stack"]["size"] for result in halved} <= {1, 2}
    assert all(
        "4 were too many: " in result["stack"]["note"] or "2 were too many: " in result["stack"]["note"]
        for result in halved
    )
    assert [(result["status"], result["stack"]["size"]) for result in found(0.5)] == [("oom", 1)] * 4
    assert [result["status"] for result in found(math.inf)] == ["ok"] * 4


def test_what_fails_alone_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(what, "train", broken)
    for result in results(cells(seeds=[0, 1])):
        assert result["status"] == "failed"
        assert result["reason"].endswith("RuntimeError: no such luck")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gated_deltanet", "attention", "linear_attention", "deltanet"])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_bf16_is_a_row_of_its_own_and_finds_about_the_same(model: str, seeds: list[int]) -> None:
    exact, rounded = (
        results(cells(model, seeds, protocol__precision=precision)) for precision in ("fp32", "bf16")
    )
    for one, other in zip(exact, rounded, strict=True):
        assert other["status"] == "ok", other["reason"]
        assert one["id"] != other["id"]
        assert one["metrics"]["nll"] != other["metrics"]["nll"]
        assert other["metrics"]["nll"] == pytest.approx(one["metrics"]["nll"], rel=0.1)


def test_what_a_cpu_has_no_memory_for_is_told_before_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    (large,) = cells(seeds=[0], protocol__batch_size=1 << 20, task__seq_len=4096, model__d_model=1024)
    (result,) = results([large])
    assert result["status"] == "oom"
    assert re.sub(r"[\d,.]+ GiB", "SIZE", result["reason"]) == snapshot
    several = cells(seeds=[0, 1])
    monkeypatch.setattr(what, "total_memory", lambda: int(1.5 * least_bytes(several[0])))
    assert [(found["status"], found["stack"]["size"]) for found in results(several)] == [("ok", 1)] * 2
