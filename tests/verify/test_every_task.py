"""Every task that linbench ships is trained on, as a group, and judged by all its means."""

import math

import pytest

from linbench.engine.measure import measure
from linbench.experiments.registry import SHIPPED, registry
from tests.helpers.cells import plan

TASKS = [name for name, entry in registry("task").entries.items() if entry.source == SHIPPED]
FEW = {
    "protocol.batch_size": 4,
    "protocol.evaluations": 10,
    "protocol.validation_examples": 32,
    "protocol.test_examples": 128,
    "model.d_model": 16,
    "model.heads": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_trained_on_and_judged(name: str) -> None:
    task = registry("task").find(name).cls
    length = task(task.Settings.parse(next(iter(task.presets.values())).task, where="task")).seq_len
    cells = plan(
        name,
        ["deltanet"],
        seeds=[0, 1],
        settings=FEW | {"protocol.tokens": 30 * 4 * length, "protocol.lr": 1e-2},
        device="cpu",
    )
    results = list(measure(cells, lambda report: None))
    assert [(result["status"], result["stack"]["size"]) for result in results] == [("ok", 2)] * 2, [
        result["reason"] for result in results
    ]
    for result in results:
        loss = cells[0].task.loss
        assert {"accuracy", loss} <= result["metrics"].keys()
        assert all(math.isfinite(value) for value in result["metrics"].values())
        assert result["slices"].keys() == cells[0].task.slice_sizes().keys()
        assert result["curve"][-1]["loss"] < result["curve"][0]["loss"], "nothing was learned"
