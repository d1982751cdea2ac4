"""Groups of cells from beginning to end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from linbench import measure as what
from linbench.cell import Cell
from linbench.measure import measure
from linbench.plan import plan
from linbench.scores import accuracies_by_test, accuracy
from linbench.stack import Stack
from linbench.store import Result
from linbench.train import Training

TINY = {
    "protocol.batch_size": 8, "protocol.tokens": 20 * 8 * 16, "protocol.validation_examples": 64, "protocol.test_examples": 64, "protocol.evaluations": 5,
    "model.d_model": 16, "task.seq_len": 16, "task.kv_pairs": 2, "task.vocab_size": 16, "model.heads": 1,
}  # fmt: skip


def cells(model: str = "deltanet", seeds: Sequence[int] = (0, 1, 2), device: str = "cpu", **settings: Any) -> list[Cell]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return plan("mqar", [model], device=device, seeds=seeds, settings=TINY | named)


def brought(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, seeds: Sequence[int], **settings: Any) -> list[Cell]:
    """Cells of a user's module, whose class is Mine."""
    monkeypatch.chdir(folder)
    Path("mine.py").write_text(module)
    around = {name: value for name, value in TINY.items() if name != "model.heads"}
    return plan("mqar", ["./mine.py:Mine"], device="cpu", seeds=seeds, settings=around | settings)


def results(group: Sequence[Cell]) -> list[Result]:
    found = {result["id"]: result for result in measure(group, lambda report: None)}
    assert len(found) == len(group)
    return [found[cell.id] for cell in group]


def test_a_group_finds_what_its_cells_find_alone() -> None:
    group = [*cells(), *cells(seeds=[0], protocol__lr=1e-2)]
    together = results(group)
    assert [result["stack"] for result in together] == [{"size": 4, "note": None}] * 4
    for cell, result in zip(group, together, strict=True):
        (alone,) = results([cell])
        assert alone["stack"]["size"] == 1
        assert (result["id"], result["status"], result["model"]) == (alone["id"], "ok", alone["model"])
        assert result["metrics"]["nll"] == pytest.approx(alone["metrics"]["nll"], rel=1e-4)
        assert [point["loss"] for point in result["curve"]] == pytest.approx([point["loss"] for point in alone["curve"]], rel=1e-4)
        assert result["slices"]["distance"]["accuracy"]["weight"] == alone["slices"]["distance"]["accuracy"]["weight"]


def test_one_that_diverges_does_not_harm_the_others() -> None:
    group = [*cells(seeds=[0, 1]), *cells(seeds=[0], protocol__lr=1e30)]
    sound, other, broken = results(group)
    assert broken["status"] == "diverged"
    assert "the loss was" in broken["reason"]
    assert (sound["status"], other["status"]) == ("ok", "ok")
    (alone,) = results(group[:1])
    assert sound["metrics"]["nll"] == pytest.approx(alone["metrics"]["nll"], rel=1e-4)


def test_when_half_are_over_the_rest_goes_on_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[int, ...]] = []
    part = Stack.part
    monkeypatch.setattr(Stack, "part", lambda self, replicas: parts.append(tuple(replicas)) or part(self, replicas))
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


KEEPING = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear, self.kept = nn.Linear(d_model, d_model), None
    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.kept = [y, x.sum()]
        return y
"""


@pytest.mark.parametrize("seeds", [[0], [0, 1], [0, 1, 2]])
def test_a_module_that_keeps_what_it_computed_stops_early_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int]) -> None:
    for result in results(brought(tmp_path, monkeypatch, KEEPING, seeds, **{"protocol.stop_at": 0.001})):
        assert (result["status"], result["stack"]) == ("ok", {"size": len(seeds), "note": None})
        assert len(result["curve"]) < 5


TESTS = [{}, {"seq_len": 32, "kv_pairs": 4}, {"kv_pairs": 4}]
FEW = {"protocol.tokens": 5 * 8 * 16}
"""One step for each evaluation."""


def examined(test: Sequence[dict[str, Any]], seeds: Sequence[int], **settings: Any) -> list[Cell]:
    return plan("mqar", ["deltanet"], device="cpu", seeds=seeds, settings=TINY | FEW | {"task.power_a": 1} | settings, test=test)


@pytest.mark.parametrize("seeds", [pytest.param([0], marks=pytest.mark.slow), [0, 1]])
def test_several_tests_find_what_each_finds_alone(seeds: list[int]) -> None:
    together = results(examined(TESTS, seeds))
    alone = [results(examined([test], seeds)) for test in TESTS]
    for r, result in enumerate(together):
        assert [test["metrics"] for test in result["tests"]] == [one[r]["metrics"] for one in alone]
        assert [test["slices"] for test in result["tests"]] == [one[r]["slices"] for one in alone]
        assert [test["chance"] for test in result["tests"]] == pytest.approx([1 / 2, 1 / 4, 1 / 4]) == [one[r]["chance"] for one in alone]
        assert [(test["settings"]["seq_len"], test["settings"]["kv_pairs"]) for test in result["tests"]] == [(16, 2), (32, 4), (16, 4)]
        assert not any("tests" in one[r] for one in alone)
        assert result["slices"] == {}


def test_all_tests_are_worth_their_mean() -> None:
    (result,) = results(examined(TESTS, [0]))
    alone = [results(examined([test], [0]))[0] for test in TESTS]
    for name in ("accuracy", "nll"):
        assert result["metrics"][name] == pytest.approx(sum(one["metrics"][name] for one in alone) / 3)
        for point, *others in zip(result["curve"], *(one["curve"] for one in alone), strict=True):
            assert point[name] == pytest.approx(sum(other[name] for other in others) / 3)
    assert result["chance"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 4) / 3)
    counted = [sum(test["slices"]["slot"]["accuracy"]["weight"]) for test in result["tests"]]
    assert counted == [64 * 2, 64 * 4, 64 * 4], "each test has as many examples as the protocol says"
    pooled = [(sum(test["slices"]["slot"]["accuracy"]["sum"]) / pairs, 64) for test, pairs in zip(result["tests"], (2, 4, 4), strict=True)]
    assert result["metrics"]["accuracy"] == pytest.approx(sum(right for right, _ in pooled) / sum(examples for _, examples in pooled))


def test_sizes_are_told_at_the_longest_test() -> None:
    attention = plan("mqar", ["attention"], device="cpu", settings=TINY | FEW, test=TESTS)
    (result,), (longest,) = results(attention), results(plan("mqar", ["attention"], device="cpu", settings=TINY | FEW, test=TESTS[1:2]))
    assert result["model"] == longest["model"]
    assert result["model"]["state"]["cache"] == 2 * 32 * 2 * 16


def test_what_diverges_is_at_chance_in_every_test() -> None:
    (result,) = results(examined(TESTS, [0], **{"protocol.lr": 1e30}))
    assert result["status"] == "diverged"
    assert accuracy(result) == pytest.approx(1 / 3)
    assert accuracies_by_test(result) == pytest.approx([1 / 2, 1 / 4, 1 / 4])


UNSTACKABLE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)
    def forward(self, x):
        return self.linear(x) * (1.0 if float(x.detach().sum()) > 0 else 1.0)
"""


def test_what_cannot_be_stacked_runs_one_after_another_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for result in results(brought(tmp_path, monkeypatch, UNSTACKABLE, [0, 1])):
        assert result["status"] == "ok"
        assert result["stack"]["size"] == 1
        assert "could not be stacked: " in result["stack"]["note"]
        assert "mine.py" in result["stack"]["note"]


MEAN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)
        self.register_buffer("mean", torch.zeros(d_model))
    def forward(self, x):
        if self.training:
            {}
        return self.linear(x - self.mean)
"""
ASSIGNED = MEAN.format("self.mean = 0.9 * self.mean + x.detach().mean((0, 1))")
IN_PLACE = MEAN.format("self.mean.mul_(0.9).add_(x.detach().mean((0, 1)))")
COUNTING = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear, self.seen = nn.Linear(d_model, d_model), {"calls": 0}
    def forward(self, x):
        if self.training:
            self.seen["calls"] += 1
        return self.linear(x) * min(1.0, self.seen["calls"] / 20)
"""


@pytest.mark.parametrize(("module", "attribute"), [(ASSIGNED, "mean"), (COUNTING, "seen")])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_a_module_that_carries_more_than_its_tensors_trains_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, attribute: str, seeds: list[int]
) -> None:
    rests: list[Training] = []
    for result in measure(brought(tmp_path, monkeypatch, module, seeds), lambda report: None, on_rest=rests.append):
        assert (result["status"], result["stack"]["size"]) == ("ok", 1)
        assert f"Mine carries {attribute} from call to call" in result["stack"]["note"]
    assert not rests, "nothing is kept of what could not go on"


def test_a_buffer_assigned_anew_finds_what_one_written_in_place_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = {"protocol.stop_at": 0.001}
    assigned, in_place = (results(brought(tmp_path, monkeypatch, module, [0, 1], **stop)) for module in (ASSIGNED, IN_PLACE))
    assert [result["stack"] for result in in_place] == [{"size": 2, "note": None}] * 2
    for one, other in zip(assigned, in_place, strict=True):
        assert one["metrics"]["nll"] == pytest.approx(other["metrics"]["nll"], rel=1e-4)


@pytest.mark.parametrize(("fits", "sizes"), [(2, [2, 2, 1]), (1, [1] * 5), (0, [])])
def test_what_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch, fits: int, sizes: list[int]) -> None:
    train = what.train

    def narrow(training: Training, *args: Any) -> Any:
        if training.stack.replicas > fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.\nmore words")
        return train(training, *args)

    monkeypatch.setattr(what, "train", narrow)
    found = results(cells(seeds=range(5), **FEW))
    if fits:
        assert sorted((result["stack"]["size"] for result in found), reverse=True) == sorted((n for n in sizes for _ in range(n)), reverse=True)
        assert all(result["status"] == "ok" for result in found)
        assert all("were too many: " in result["stack"]["note"] for result in found)
    else:
        assert [(result["status"], result["reason"]) for result in found] == [("oom", "CUDA out of memory. Tried to allocate much.")] * 5


@pytest.mark.gpu
def test_what_does_not_fit_a_gpu_is_halved_and_alone_it_is_out_of_memory() -> None:
    group = cells(seeds=range(4), device="cuda:0", protocol__batch_size=2048, protocol__tokens=20 * 2048 * 16, model__d_model=128)

    def found(share: float) -> list[Result]:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share)
        try:
            return results(group)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.reset_peak_memory_stats()
    results(group[:1])
    alone = torch.cuda.max_memory_allocated()
    halved = found(2.9 * alone / whole)
    assert [result["status"] for result in halved] == ["ok"] * 4
    assert {result["stack"]["size"] for result in halved} <= {1, 2}
    assert all("4 were too many: " in result["stack"]["note"] or "2 were too many: " in result["stack"]["note"] for result in halved)
    assert [(result["status"], result["stack"]["size"]) for result in found(0.5 * alone / whole)] == [("oom", 1)] * 4
    assert [result["status"] for result in found(1.0)] == ["ok"] * 4


def test_a_cpu_too_can_be_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = brought(tmp_path, monkeypatch, UNSTACKABLE.replace("self.linear(x)", "self.linear(x) + x.new_empty(1 << 50)"), [0])
    (result,) = results(group)
    assert result["status"] == "oom"
    assert "can't allocate memory" in result["reason"] or "not enough memory" in result["reason"]


def test_what_fails_alone_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(what, "train", broken)
    for result in results(cells(seeds=[0, 1])):
        assert result["status"] == "failed"
        assert result["reason"].endswith("RuntimeError: no such luck")


@pytest.mark.parametrize("model", ["gated_deltanet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("attention", "linear_attention", "deltanet"))])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_bf16_is_a_row_of_its_own_and_finds_about_the_same(model: str, seeds: list[int]) -> None:
    exact, rounded = (results(cells(model, seeds, protocol__precision=precision)) for precision in ("fp32", "bf16"))
    for one, other in zip(exact, rounded, strict=True):
        assert other["status"] == "ok", other["reason"]
        assert one["id"] != other["id"]
        assert one["metrics"]["nll"] != other["metrics"]["nll"]
        assert other["metrics"]["nll"] == pytest.approx(one["metrics"]["nll"], rel=0.1)
