import itertools
import math
from collections.abc import Sequence

import pytest

from linbench.common.errors import UserError
from linbench.engine import train
from linbench.engine.measure import measure
from linbench.engine.progress import Report
from linbench.engine.schedule import learning_rate_factors
from linbench.experiments.cell import Cell
from linbench.experiments.protocol import Protocol, default_protocol
from tests.helpers.cells import plan


def cell(model: str = "gated_deltanet", **settings: object) -> Cell:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return plan("mqar", [model], device="cpu", settings=named)[0]


def test_the_rate_warms_up_then_falls_to_zero() -> None:
    protocol = Protocol.parse({**default_protocol(), "warmup": 0.1}, where="protocol")
    rates = learning_rate_factors(100, protocol)
    assert rates[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert max(rates) == rates[9] == 1.0
    assert rates[54] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.0)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[9:]))


def test_a_linear_rate_falls_by_as_much_at_every_step() -> None:
    protocol = Protocol.parse({**default_protocol(), "schedule": "linear", "warmup": 0.1}, where="protocol")
    rates = learning_rate_factors(100, protocol)
    rising, falling = [i / 10 for i in range(1, 11)], [i / 90 for i in reversed(range(90))]
    assert rates == pytest.approx(rising + falling)


def test_a_constant_rate_stays() -> None:
    protocol = Protocol.parse({**default_protocol(), "schedule": "constant"}, where="protocol")
    assert set(learning_rate_factors(100, protocol)[4:]) == {1.0}


def test_steps_follow_from_the_budget() -> None:
    assert cell(protocol__tokens=64 * 32 * 100).steps == 100
    assert cell(protocol__tokens=1).steps == 20, "at least one step per evaluation"


def test_the_epoch_cosine_falls_once_an_epoch() -> None:
    protocol = Protocol.parse(
        {**default_protocol(), "examples": 320, "epochs": 4, "schedule": "epoch_cosine", "warmup": 0.0},
        where="protocol",
    )
    steps = protocol.steps(64)
    assert steps == 40
    rates = learning_rate_factors(steps, protocol, epoch=10)
    assert rates == pytest.approx(
        [0.5 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4) for _ in range(10)]
    )


@pytest.mark.parametrize("setting", [{"epochs": 3}, {"shuffle": True}, {"schedule": "epoch_cosine"}])
def test_epochs_are_of_a_fixed_set(setting: dict[str, object]) -> None:
    with pytest.raises(
        UserError, match=r"protocol: .* need a fixed training set; set its size with protocol\.examples"
    ):
        Protocol.parse({**default_protocol(), **setting}, where="protocol")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "evaluations", "reads", "read_at"),
    [
        (60, 20, 200, range(3, 61, 3)),
        (50, 5, 200, [start + after for start in range(0, 50, 10) for after in (4, 8, 10)]),
        (50, 5, 10, range(5, 51, 5)),
    ],
)
def test_the_loss_is_read_at_evaluations_and_otherwise_seldom(
    steps: int, evaluations: int, reads: int, read_at: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "MOST_READS", reads)
    monkeypatch.setattr(train, "LEAST_STEPS_BETWEEN_READS", 4)
    tiny = {
        "task__seq_len": 8,
        "task__kv_pairs": 2,
        "task__vocab_size": 8,
        "model__d_model": 8,
        "model__heads": 1,
        "model__layers": 1,
    }
    few = {
        "protocol__batch_size": 1,
        "protocol__validation_examples": 1,
        "protocol__test_examples": 1,
        "protocol__evaluations": evaluations,
    }
    reports: list[Report] = []
    (result,) = measure([cell("deltanet", protocol__tokens=steps * 8, **tiny, **few)], reports.append)
    assert result["status"] == "ok"
    assert [report.step for report in reports] == list(read_at)
