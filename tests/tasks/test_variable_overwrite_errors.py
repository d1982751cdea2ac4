"""Sources of wrong answers: values that were overwritten, other variables, anything else."""

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction, WeightedMean
from linbench.tasks.blocks.overwriting import ASK, PAD
from linbench.tasks.variable_overwrite import VariableOverwrite
from tests.helpers.tasks import sample, task_fixture
from tests.helpers.variable_overwrite import SETTINGS, build, read

task = task_fixture(VariableOverwrite, SETTINGS)


def hand_made() -> tuple[VariableOverwrite, Batch]:
    """Key 4 is given 20, 21, 22, 23, key 5 is given 35: both are asked for at the end, key 4 before that."""
    task = build(variables=2, overwrites=(3, 0), keys=16, values=16, noises=2, midstream=1, seq_len=24)
    assert task.settings.first_value == 20
    tokens = [4, 20, 4, 21, 5, 35, ASK, 4, 36, 4, 22, 4, 23, ASK, 4, 36, ASK, 5, 36, 37, 37, 36, 36, 37]
    history = torch.tensor([[[21, 20, IGNORE, IGNORE], [23, 22, 21, 20], [35, IGNORE, IGNORE, IGNORE]]])
    slices = {"overwrites": [1, 3, 0], "doublings": [2, 1, 3], "writes_between": [1, 0, 2]}
    targets = torch.tensor([[21, 23, 35]])
    return task, Batch(
        torch.tensor([tokens]),
        torch.tensor([[7, 14, 17]]),
        targets,
        {k: torch.tensor([v]) for k, v in slices.items()},
        {"history": history},
    )


def means_of(
    task: VariableOverwrite, batch: Batch, answers: list[int], logits: Tensor | None = None
) -> dict[str, list[float]]:
    prediction = Prediction(torch.tensor([answers]), torch.zeros(1, 3), logits)
    return {name: mean.value.double()[0].tolist() for name, mean in task.means(batch, prediction).items()}


@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        ([21, 23, 35], ["accuracy"] * 3),
        ([20, 22, 4], ["stale_previous stale_first", "stale_previous", "alien"]),
        ([35, 20, 23], ["cross", "stale_first", "cross"]),
        ([22, 21, 36], ["alien", "stale_middle", "alien"]),  # 22 had not been written by then
        ([23, 35, 0], ["alien", "cross", "alien"]),
    ],
)
def test_every_answer_has_an_origin(answers: list[int], kinds: list[str]) -> None:
    task, batch = hand_made()
    assert torch.equal(task.solve(batch), batch.targets)
    found = means_of(task, batch, answers)
    for n, kind in enumerate(kinds):
        true = {
            name
            for name in ("accuracy", "stale_previous", "stale_first", "stale_middle", "cross", "alien")
            if found[name][n]
        }
        assert true == set(kind.split())
        assert found["stale"][n] == ("stale" in kind)


def test_origins_add_up(task: VariableOverwrite) -> None:
    batch = sample(task, 64, split="test")
    noise = torch.Generator().manual_seed(0)
    answers = torch.randint(task.io.vocab_out or 0, batch.targets.shape, generator=noise)
    history = batch.facts["history"]
    old = history.gather(2, torch.randint(history.shape[2], (*batch.targets.shape, 1), generator=noise))[
        :, :, 0
    ].clamp(min=0)
    which = torch.randint(3, batch.targets.shape, generator=noise)
    answers = torch.where(
        which == 0,
        old,
        torch.where(which == 1, batch.targets[:, torch.randperm(task.answers, generator=noise)], answers),
    )
    means = task.means(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert torch.equal(
        sum(means[name].value.long() for name in ("accuracy", "stale", "cross", "alien")),
        torch.ones_like(answers),
    )
    assert ("stale_newer" in means) == (task.settings.control != "none")
    parts = sum(
        mean.value.long()
        for name, mean in means.items()
        if name.startswith("stale_") and name != "stale_excess"
    )
    assert torch.equal(parts.clamp(max=1), means["stale"].value.long())
    assert {"accuracy", "stale", "cross", "alien"} <= {
        name.partition("/")[0] for name in task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    }


def ratio(mean: WeightedMean) -> float:
    assert mean.weight is not None
    return float(mean.value.double().sum() / mean.weight.sum())


@pytest.mark.parametrize("name", ["defaults", "few values", "decoys", "midstream", "return all"])
def test_errors_at_random_have_no_excess_of_stale_values(name: str) -> None:
    """Every value of the context but the right one, each once, is answered: so the excess is exactly 1."""
    task = build(**SETTINGS[name])
    stale = weight = 0.0
    for row in range(6):
        batch = task.sample(torch.tensor([row]), seed=0, split="test")
        candidates = {x.other for x in read(task, batch.inputs[0]) if x.kind == "write"}
        for candidate in sorted(candidates):
            means = task.means(
                batch, Prediction(torch.full_like(batch.targets, candidate), torch.zeros(batch.targets.shape))
            )
            counts = ~means["alien"].value & (batch.targets != candidate)  # by then
            excess = means["stale_excess"]
            assert excess.weight is not None
            stale, weight = (
                stale + float(excess.value[counts].double().sum()),
                weight + float(excess.weight[counts].sum()),
            )
    assert stale / weight == pytest.approx(1)


def test_excess_of_stale_values_by_hand() -> None:
    task, batch = hand_made()
    found = task.means(batch, Prediction(torch.tensor([[20, 35, 23]]), torch.zeros(1, 3)))
    assert ratio(found["stale_excess"]) == pytest.approx(1 / (1 / 2 + 3 / 4 + 0))
    assert found["informed_chance"].value[0].tolist() == pytest.approx([1 / 3, 1 / 5, 1 / 5])


def test_weight_on_old_values_and_margin_by_hand() -> None:
    task, batch = hand_made()
    logits = torch.zeros(1, 3, task.io.vocab_out or 0)
    assert not {"margin", "weight_on_old_0", "recalled"} & means_of(task, batch, [0, 0, 0]).keys()
    logits[0, 1, [23, 22, 21]] = torch.tensor([50.0, 50.0, 49.0])
    logits[0, 0, 20] = 2.0
    found = task.means(batch, Prediction(batch.targets, torch.zeros(1, 3), logits))
    e = torch.e
    for j, mass in enumerate([1 / (2 + 1 / e), 1 / (2 + 1 / e), 1 / (2 * e + 1), 0.0]):
        mean = found[f"weight_on_old_{j}"]
        assert mean.weight is not None
        assert float(mean.value[0, 1]) == pytest.approx(mass, abs=1e-6)
        assert mean.weight[0].tolist() == [float(j <= r) for r in (1, 3, 0)]
        assert not mean.value[mean.weight == 0].any()
    assert "weight_on_old_4" not in found
    margin = found["margin"]
    assert margin.weight is not None
    assert margin.value[0].tolist() == [-2.0, 0.0, 0.0]
    assert margin.weight[0].tolist() == [1.0, 1.0, 0.0]


def test_the_curve_of_old_values_reaches_as_far_as_there_are_overwrites() -> None:
    task = build(variables=2, overwrites=(0, 17), seq_len=64)
    batch = sample(task, 5)
    logits = torch.full((*batch.targets.shape, task.io.vocab_out or 0), -50.0).scatter(
        2, batch.facts["history"][:, :, 17:].clamp(min=0), 50.0
    )
    found = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), logits))
    curve = {j: (round(float(x), 6), float(n)) for j in range(18) for x, n in [found[f"weight_on_old_{j}"]]}
    assert curve == {0: (0.0, 10.0), **dict.fromkeys(range(1, 17), (0.0, 5.0)), 17: (5.0, 5.0)}
    assert "weight_on_old_18" not in found


def test_values_known_without_their_order_are_recalled() -> None:
    task = build(control="return_all", seq_len=80)
    batch = sample(task, 20)
    held = batch.facts["history"].clamp(min=0)
    oldest_first = torch.arange(1.0, 6.0).expand(held.shape)
    logits = torch.zeros(*batch.targets.shape, task.io.vocab_out or 0).scatter(2, held, oldest_first)
    logits[:, :, PAD] = 0
    known = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), logits))[
        "recalled"
    ]
    none = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), -logits))[
        "recalled"
    ]
    assert float(known[0]) == float(known[1]) == 20 * 11
    assert float(none[0]) == 0
