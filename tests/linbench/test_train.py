import itertools
import math

import pytest
import torch

from linbench.cell import Cell
from linbench.measure import undertrained
from linbench.plan import plan
from linbench.protocol import Protocol, default_protocol
from linbench.train import fresh_batches, make_optimiser, rate


def cell(model: str = "gated_deltanet", **settings: object) -> Cell:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return plan("mqar", [model], device="cpu", settings=named)[0]


def test_the_rate_warms_up_then_falls_to_zero() -> None:
    protocol = Protocol.parse({**default_protocol(), "warmup": 0.1}, where="protocol")
    rates = [rate(step, 100, protocol) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert max(rates) == rates[9] == 1.0
    assert rates[54] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.0)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[9:]))


def test_a_constant_rate_stays() -> None:
    protocol = Protocol.parse({**default_protocol(), "schedule": "constant"}, where="protocol")
    assert {rate(step, 100, protocol) for step in range(5, 101)} == {1.0}


def test_steps_follow_from_the_budget() -> None:
    assert cell(protocol__tokens=64 * 32 * 100).steps == 100
    assert cell(protocol__tokens=1).steps == 20, "at least one step per evaluation"


def test_only_matrices_decay() -> None:
    chosen = cell()
    model = chosen.model.build(chosen.task, seed=0)
    optimiser = make_optimiser(model, chosen.protocol)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {group["weight_decay"]: {names[id(p)] for p in group["params"]} for group in optimiser.param_groups}
    assert set(groups) == {0.0, 0.1}
    assert sum(map(len, groups.values())) == len(names)
    assert {"embedding.weight", "mixers.0.project.linear.weight", "channel_mixers.1.up.weight"} <= groups[0.1]
    assert {"mixers.0.decay.A_log", "mixers.1.decay.dt_bias", "mixers.0.project.conv.weight", "final_norm.weight"} <= groups[0.0]
    assert not any("norm" in name or "A_log" in name for name in groups[0.1])


def test_batches_are_the_training_stream_in_order_whatever_is_drawn_at_once() -> None:
    for size in (3, 600):
        chosen = cell(protocol__batch_size=size)
        batches = fresh_batches(chosen)
        drawn = [next(batches) for _ in range(4)]
        whole = chosen.task.sample(torch.arange(4 * size), seed=0, split="train")
        assert torch.equal(torch.cat([batch.inputs for batch in drawn]), whole.inputs)
        assert torch.equal(torch.cat([batch.slices["distance"] for batch in drawn]), whole.slices["distance"])


@pytest.mark.parametrize(("gain", "marked"), [(0.0, False), (0.0099, False), (0.011, True), (-0.2, False), (math.inf, True)])
def test_a_run_that_still_gains_in_its_last_fifth_is_undertrained(gain: float, marked: bool) -> None:
    curve = [{"step": float(step), "accuracy": 0.5 if step < 100 else 0.5 + gain} for step in range(5, 101, 5)]
    assert undertrained(curve) is marked


def test_gains_before_the_last_fifth_do_not_count() -> None:
    assert not undertrained([{"step": float(step), "accuracy": min(step, 80) / 100} for step in range(5, 101, 5)])
