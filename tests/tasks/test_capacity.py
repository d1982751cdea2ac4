import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.models.blocks.heads import head_dims
from linbench.tasks.base import Prediction
from linbench.tasks.capacity import Capacity
from tests.helpers.cells import plan
from tests.helpers.tasks import accuracy, assert_refused, build_task, sample, unanswered

ALPHA = 1e-3
N = 20_000
Probability = Callable[..., float]


build = partial(build_task, Capacity)


@pytest.mark.parametrize(
    "values",
    [
        {"keys": 5},
        {"keys": 5, "values": 3, "delay": 2},
        {"keys": 6, "writes": "replaced"},
        {"keys": 3, "writes": "replaced"},
    ],
)
def test_the_last_value_of_a_written_key_is_due(values: dict[str, Any]) -> None:
    task = build(**values)
    s, batch = task.settings, sample(task, 60)
    writes = s.keys if s.writes == "unique" else 2 * s.keys
    held, V = s.keys, s.values or s.keys
    assert task.io == IO(1 + s.keys + V, V)
    assert batch.inputs.shape == (60, writes + s.delay + held, 2) == (60, task.seq_len, 2)
    for row, tokens in enumerate(batch.inputs.tolist()):
        told, asked = tokens[:writes], tokens[writes + s.delay :]
        assert tokens[writes : writes + s.delay] == s.delay * [[0, 0]]
        assert all(1 <= key <= s.keys < value <= s.keys + V for key, value in told)
        assert batch.positions[row].tolist() == list(range(writes + s.delay, task.seq_len))
        for n, (key, none) in enumerate(asked):
            assert none == 0
            times = [t for t, (k, _) in enumerate(told) if k == key]
            assert int(batch.targets[row, n]) == told[times[-1]][1] - 1 - s.keys
            assert int(batch.slices["writes"][row, n]) == len(times)
            assert int(batch.slices["age"][row, n]) == writes - 1 - times[-1]


def test_unique_keys_are_each_written_and_asked_for_once() -> None:
    batch = sample(build(keys=7), 100)
    for keys in (batch.inputs[:, :7, 0], batch.inputs[:, 7:, 0]):
        assert torch.equal(keys.sort(dim=1).values, torch.arange(1, 8).expand(100, 7))
    assert (batch.slices["writes"] == 1).all()


def test_order_of_keys_of_values_and_of_queries_is_random(chi_squared: Probability) -> None:
    batch = sample(build(keys=4, values=5), N)
    for x, cells in (
        (batch.inputs[:, 1, 0] - 1, 4),
        (batch.inputs[:, 6, 0] - 1, 4),
        (batch.slices["age"][:, 0], 4),
        (batch.inputs[:, 2, 1] - 5, 5),
    ):
        assert chi_squared(x.bincount(minlength=cells), torch.full((cells,), N / cells)) > ALPHA
    pairs = 4 * (batch.inputs[:, 0, 0] - 1) + batch.inputs[:, 1, 0] - 1
    possible = [4 * a + b for a in range(4) for b in range(4) if a != b]
    assert chi_squared(pairs.bincount(minlength=16)[possible], torch.full((12,), N / 12)) > ALPHA


def test_replaced_keys_are_drawn_independently(chi_squared: Probability) -> None:
    task = build(keys=4, writes="replaced")
    batch = sample(task, N)
    keys = batch.inputs[:, :8, 0] - 1
    assert (
        chi_squared((4 * keys[:, 2] + keys[:, 7]).bincount(minlength=16), torch.full((16,), N / 16)) > ALPHA
    )
    values = batch.inputs[:, :8, 1] - 5
    assert (
        chi_squared((4 * values[:, 0] + values[:, 1]).bincount(minlength=16), torch.full((16,), N / 16))
        > ALPHA
    )
    # of the key of a random write: itself and seven others, each of the same key in a quarter of cases
    asked = batch.slices["writes"][:, 0]
    law = torch.distributions.Binomial(7, torch.tensor(0.25)).log_prob(torch.arange(8.0)).exp()
    law = torch.cat([law[:5], law[5:].sum().view(1)])
    counts = (asked - 1).clamp(max=5).bincount(minlength=6)
    assert chi_squared(counts, N * law.double() / law.double().sum()) > ALPHA


def test_no_write_is_asked_for_twice() -> None:
    """A key is asked for at most as often as it was written."""
    batch = sample(build(keys=5, writes="replaced"), 300)
    for key in range(1, 6):
        told, asked = ((batch.inputs[:, part, 0] == key).sum(dim=1) for part in (slice(0, 10), slice(10, 15)))
        assert (asked <= told).all()


def test_squared_loss_asks_for_one_hot_values() -> None:
    task, tokens = build(keys=6, values=4, loss="squared"), build(keys=6, values=4)
    batch, ids = sample(task, 50), sample(tokens, 50)
    assert task.io == IO(11, None, d_out=4)
    assert batch.targets.dtype == torch.float32
    assert torch.equal(batch.targets.argmax(dim=2), ids.targets)
    assert torch.equal(batch.targets.sum(dim=2), torch.ones(50, 6))
    assert torch.equal(batch.inputs, ids.inputs)
    assert torch.equal(task.solve(batch), batch.targets)
    assert accuracy(task, batch, torch.zeros_like(batch.targets)) == 0
    assert accuracy(task, batch, torch.full_like(batch.targets, 1 / 4)) == pytest.approx(1 / 4)
    assert task.chance() == pytest.approx(1 / 6 + 5 / 6 / 4)


def written(task: Capacity, tokens: list[list[int]], key: int) -> list[int]:
    """The values of a key, newest first."""
    return [value - 1 - task.settings.keys for k, value in reversed(tokens) if k == key and value]


@pytest.mark.parametrize("loss", ["tokens", "squared"])
def test_how_much_of_the_last_value_and_of_the_one_before_is_in_the_answer(loss: str) -> None:
    """Answers are noise; what the new and the old value have of it is looked up by hand, where the two
    differ."""
    task = build(keys=6, values=4, writes="replaced", delay=2, loss=loss)
    batch = sample(task, 40)
    noise = torch.randn(40, 6, 4, generator=torch.Generator().manual_seed(0))
    prediction = (
        Prediction(noise, torch.zeros(40, 6))
        if loss == "squared"
        else Prediction(noise.argmax(dim=2), torch.zeros(40, 6), noise)
    )
    shares, found = noise if loss == "squared" else noise.softmax(dim=2), task.means(batch, prediction)
    repeated = 0
    for row, tokens in enumerate(batch.inputs.tolist()):
        for n, at in enumerate(batch.positions[row].tolist()):
            values = written(task, tokens[:12], tokens[at][0])
            old = [values[1]] if len(values) > 1 and values[1] != values[0] else []
            repeated += len(values) > 1 and not old
            for j, held in enumerate([[values[0]], old]):
                mean = found[f"weight_on_old_{j}"]
                assert mean.weight is not None
                assert float(mean.weight[row, n]) == len(held)
                assert float(mean.value[row, n]) == (float(shares[row, n, held[0]]) if held else 0)
    assert repeated > 3
    assert "weight_on_old_2" not in found


def test_a_sum_has_as_much_of_the_old_as_of_the_new_and_a_delta_rule_nothing() -> None:
    task = build(keys=8, values=60, writes="replaced", loss="squared")
    batch = sample(task, 50)
    for rule, expected in {"sum": (1.0, 1.0), "delta": (1.0, 0.0), "half a delta": (0.5, 0.25)}.items():
        memory, answers = torch.zeros(50, 9, 60), []
        for key, value in (token.unbind(1) for token in batch.inputs.unbind(1)):
            at = torch.nn.functional.one_hot(key, 9).float()
            read = (at[:, :, None] * memory).sum(dim=1)
            answers.append(read)
            told = torch.nn.functional.one_hot((value - 9).clamp(min=0), 60) * (value > 0)[:, None]
            change = {"sum": told, "delta": told - read, "half a delta": (told - read) / 2}[rule] * (
                value > 0
            )[:, None]
            memory = memory + at[:, :, None] * change[:, None]
        found = task.score(
            batch,
            Prediction(
                torch.stack(answers, dim=1).gather(1, batch.positions[:, :, None].expand(-1, -1, 60)),
                torch.zeros(50, 8),
            ),
        )
        weights = [float(found[f"weight_on_old_{j}"][0] / found[f"weight_on_old_{j}"][1]) for j in (0, 1)]
        assert weights == pytest.approx(expected, abs=0.05), rule  # values come back now and then


def test_keys_written_once_have_no_old_value() -> None:
    task = build(keys=5)
    batch = sample(task, 9)
    logits = 100.0 * torch.nn.functional.one_hot(batch.targets, 5)
    found = task.means(batch, Prediction(batch.targets, torch.zeros(9, 5), logits))
    assert float(found["weight_on_old_0"].value.mean()) == pytest.approx(1)
    assert "weight_on_old_1" not in found
    assert "weight_on_old_0" not in task.means(batch, Prediction(batch.targets, torch.zeros(9, 5)))


def test_chance_is_the_commonest_value_of_all_writes() -> None:
    """Over all examples there can be."""
    once = [max(Counter(values).values()) / 4 for values in product(range(3), repeat=4)]
    assert build(keys=4, values=3).chance() == pytest.approx(fmean(once))
    again = [
        max(Counter(values[key] for key in keys).values()) / 4
        for values in product(range(3), repeat=2)
        for keys in product(range(2), repeat=4)
    ]
    assert build(keys=2, values=3, writes="replaced").chance() == pytest.approx(fmean(again))


def test_the_solver_reads_the_writes_alone() -> None:
    task = build(keys=8, writes="replaced", delay=3)
    batch = sample(task, 40)
    bare = unanswered(batch)
    assert torch.equal(task.solve(bare), batch.targets)
    swapped = batch.inputs.clone()
    swapped[:, :16, 1] = torch.where(
        swapped[:, :16, 1] == 9, 10, torch.where(swapped[:, :16, 1] == 10, 9, swapped[:, :16, 1])
    )
    expected = torch.where(batch.targets == 0, 1, torch.where(batch.targets == 1, 0, batch.targets))
    assert torch.equal(task.solve(bare._replace(inputs=swapped)), expected)


def test_longer_sequences_delay_the_queries() -> None:
    task = build(keys=4, delay=1)
    assert task.seq_len == 9
    longer = build(keys=4, **task.longer(3))
    assert (longer.seq_len, longer.settings.delay) == (27, 19)
    assert torch.equal(sample(longer, 5).targets, sample(task, 5).targets)


def test_published_sizes() -> None:
    for name, (keys, writes, length) in {
        "schlag-1-60": (60, "unique", 120),
        "schlag-2-100": (100, "replaced", 300),
    }.items():
        preset = Capacity.presets[name]
        task = build(**preset.task)
        assert (task.settings.keys, task.settings.writes, task.seq_len, task.io.d_out) == (
            keys,
            writes,
            length,
            keys,
        )
        protocol = Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol")
        assert (
            task.settings.loss,
            protocol.steps(task.seq_len),
            protocol.evaluations,
            protocol.validation_examples,
        ) == ("squared", 100_000, 1000, 20)


@pytest.mark.parametrize("preset", [name for name in Capacity.presets if name.startswith("schlag")])
@pytest.mark.parametrize("model", ["attention", "linear_attention", "deltanet", "gated_deltanet"])
def test_published_sizes_have_keys_of_64_dimensions_and_room_for_all_values(preset: str, model: str) -> None:
    (cell,) = plan("capacity", [model], preset=preset, device="cpu")
    values, width = cell.task.io.d_out, cell.model.backbone.d_model
    (layer,) = cell.model.layers
    key, value = head_dims(layer.settings, width)
    assert values is not None
    assert (cell.preset, key, layer.settings.heads) == (preset, 64, 1)
    assert value >= values
    assert width >= 2 * values


def test_out_of_few_dimensions_come_few_values() -> None:
    """The best that 3 dimensions can do for 5 one-hot values, each due once: any projection onto them, right
    to 3 / 5."""
    task = build(keys=5, loss="squared")
    batch = sample(task, 1)._replace(targets=torch.eye(5)[None])
    onto, _ = torch.linalg.qr(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert accuracy(task, batch, batch.targets @ onto @ onto.T) == pytest.approx(3 / 5)


def test_vectors_wider_than_the_model_are_refused() -> None:
    settings = {"task.loss": "squared", "task.keys": 65}
    with pytest.raises(
        UserError, match=r"65 dimensions, but linear_attention has model\.d_model = 64; .* 65\.$"
    ):
        plan("capacity", ["linear_attention"], settings=settings, device="cpu")
    assert plan("capacity", ["linear_attention"], settings={**settings, "model.d_model": 66}, device="cpu")
    # tokens are told apart in far fewer dimensions
    assert plan("capacity", ["linear_attention"], settings={"task.keys": 65}, device="cpu")


def test_training_stops_at_the_published_loss() -> None:
    """Half the squared error of an answer, of 0.001 in the mean: errors of 0.06 and 0.02 in one number."""
    task = build(**Capacity.presets["schlag-2-20"].task)
    batch = sample(task, 2)
    error = torch.zeros_like(batch.targets)
    error[0, :, 3], error[1, :, 5] = 0.06, 0.02
    assert float(error.square().sum(dim=2).mean()) / 2 == pytest.approx(0.001)
    assert accuracy(task, batch, batch.targets + error) == pytest.approx(
        Capacity.presets["schlag-2-20"].protocol["stop_at"]
    )


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"keys": 1}, "keys 1 2"),
        ({"values": 1}, "values 1 2"),
        ({"delay": -1}, "delay 1 0"),
        ({"writes": "twice"}, "writes"),
        ({"loss": "mse"}, "loss"),
        ({"key": 3}, "keys delay loss values writes"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Capacity, values, facts)


@pytest.mark.parametrize("loss", ["tokens", "squared"])
def test_explain_names_writes_and_answers(loss: str) -> None:
    task = build(keys=3, loss=loss)
    batch, ids = sample(task, 1), sample(build(keys=3), 1)
    text = task.explain(batch, 0)
    for key, value in batch.inputs[0, :3].tolist():
        assert f"key {key} gets value {value - 4}" in text
    asked = re.findall(r"position (\d+) key (\d+)\D+(\d+)", text)
    assert [tuple(map(int, numbers)) for numbers in asked] == [
        (3 + n, int(batch.inputs[0, 3 + n, 0]), int(ids.targets[0, n])) for n in range(3)
    ]
    assert (
        len(build(keys=600, writes="replaced").explain(sample(build(keys=600, writes="replaced"), 1), 0))
        < 1500
    )
