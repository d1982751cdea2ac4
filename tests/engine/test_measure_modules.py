"""Modules that cannot be stacked, keep what they computed, or carry more from call to call than their
tensors."""

from pathlib import Path

import pytest
import torch

from linbench.engine.measure import measure, out_of_memory
from linbench.engine.step import Training
from tests.helpers.groups import module_cells, results

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
def test_a_module_that_keeps_what_it_computed_stops_early_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int]
) -> None:
    for result in results(module_cells(tmp_path, monkeypatch, KEEPING, seeds, **{"protocol.stop_at": 0.001})):
        assert (result["status"], result["stack"]) == ("ok", {"size": len(seeds), "note": None})
        assert len(result["curve"]) < 5


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


def test_what_cannot_be_stacked_runs_one_after_another_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for result in results(module_cells(tmp_path, monkeypatch, UNSTACKABLE, [0, 1])):
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
    for result in measure(
        module_cells(tmp_path, monkeypatch, module, seeds), lambda report: None, on_checkpoint=rests.append
    ):
        assert (result["status"], result["stack"]["size"]) == ("ok", 1)
        assert f"Mine carries {attribute} from call to call" in result["stack"]["note"]
    assert not rests, "nothing is kept of what could not go on"


def test_a_buffer_assigned_anew_finds_what_one_written_in_place_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = {"protocol.stop_at": 0.001}
    assigned, in_place = (
        results(module_cells(tmp_path, monkeypatch, module, [0, 1], **stop))
        for module in (ASSIGNED, IN_PLACE)
    )
    assert [result["stack"] for result in in_place] == [{"size": 2, "note": None}] * 2
    for one, other in zip(assigned, in_place, strict=True):
        assert one["metrics"]["nll"] == pytest.approx(other["metrics"]["nll"], rel=1e-4)


def test_a_cpu_too_can_be_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = module_cells(
        tmp_path,
        monkeypatch,
        UNSTACKABLE.replace("self.linear(x)", "self.linear(x) + x.new_empty(1 << 50)"),
        [0],
    )
    (result,) = results(group)
    assert result["status"] == "oom"
    assert "can't allocate memory" in result["reason"] or "not enough memory" in result["reason"]


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (torch.OutOfMemoryError("much was asked for"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_lacks_memory_is_told_by_its_kind_or_words(error: Exception, lacks: bool) -> None:
    assert out_of_memory(error) == lacks
