from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.task_io import IO
from linbench.tasks.base import Batch
from linbench.tasks.compositional_mqar import CompositionalMQAR
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "zero": {"filler": "zero", "kv_pairs": 4, "seq_len": 30},
    "published": {"filler": "published", "vocab_size": 32},
    "no room to spare": {"seq_len": 24, "kv_pairs": 4, "vocab_size": 12},
    "tokens left over": {"seq_len": 29, "kv_pairs": 4, "vocab_size": 14},
    "smallest": {"seq_len": 6, "kv_pairs": 1, "vocab_size": 6},
}
Probability = Callable[..., float]


build = partial(build_task, CompositionalMQAR)


def by_hand() -> tuple[CompositionalMQAR, Batch]:
    """First tokens 1 and 2, second tokens 5 and 6."""
    task = build(seq_len=26, kv_pairs=4, vocab_size=15, filler="zero")
    inputs = torch.tensor(
        [[2, 5, 10, 1, 5, 13, 1, 6, 12, 2, 6, 14, 1, 6, 0, 2, 6, 0, 2, 5, 0, 1, 5, 0, 0, 0]]
    )
    slices = {"distance": torch.tensor([[18, 18, 6, 6]]), "slot": torch.tensor([[2, 3, 0, 1]])}
    return task, Batch(inputs, torch.tensor([[19, 22, 13, 16]]), torch.tensor([[10, 13, 12, 14]]), slices)


task = task_fixture(CompositionalMQAR, SETTINGS)


def test_a_sequence_is_all_cells_of_a_grid_then_queries(task: CompositionalMQAR) -> None:
    s = task.settings
    batch = sample(task, 300)
    third, context, side = s.vocab_size // 3, 3 * s.kv_pairs, round(s.kv_pairs**0.5)
    assert task.io == IO(s.vocab_size, s.vocab_size)
    assert task.slice_sizes() == {"distance": s.seq_len, "slot": (s.seq_len - context) // 3}
    for row in range(300):
        tokens = batch.inputs[row].tolist()
        assert len(tokens) == s.seq_len
        pairs = list(zip(tokens[:context:3], tokens[1:context:3], tokens[2:context:3], strict=True))
        firsts, seconds, values = (set(part) for part in zip(*pairs, strict=True))
        assert len(firsts) == len(seconds) == side
        assert len({pair[:2] for pair in pairs}) == len(values) == s.kv_pairs
        assert (
            1
            <= min(firsts)
            <= max(firsts)
            < third
            <= min(seconds)
            <= max(seconds)
            < 2 * third
            <= min(values)
            <= max(values)
            < s.vocab_size
        )
        for place, (first, second, value) in enumerate(pairs):
            at, slot = int(batch.positions[row, place]), int(batch.slices["slot"][row, place])
            assert tokens[at - 1 : at + 1] == [first, second]
            assert at - 1 == context + 3 * slot
            assert batch.targets[row, place] == value
            assert batch.slices["distance"][row, place] == at - 1 - 3 * place
        assert len(set(batch.positions[row].tolist())) == s.kv_pairs


def test_keys_stand_in_any_order(chi_squared: Probability) -> None:
    inputs = sample(build(kv_pairs=4, seq_len=24), N).inputs
    firsts, seconds = inputs[:, :12:3], inputs[:, 1:12:3]
    cells = 2 * (firsts > firsts.min(dim=1, keepdim=True).values) + (
        seconds > seconds.min(dim=1, keepdim=True).values
    )
    codes = (cells * torch.tensor([64, 16, 4, 1])).sum(dim=1).bincount(minlength=256)
    orders = [64 * a + 16 * b + 4 * c + d for a, b, c, d in permutations(range(4))]
    assert chi_squared(codes[orders], torch.full((24,), N / 24)) > ALPHA


def test_keys_and_values_are_any(chi_squared: Probability) -> None:
    inputs = sample(build(kv_pairs=1, seq_len=6, vocab_size=17), N).inputs
    for place, (first, count) in enumerate([(1, 4), (5, 5), (10, 7)]):
        assert chi_squared((inputs[:, place] - first).bincount(), torch.full((count,), N / count)) > ALPHA


def test_slots_follow_the_power_law(chi_squared: Probability) -> None:
    slots = sample(build(kv_pairs=1, seq_len=22, power_a=0.3), N).slices["slot"][:, 0]
    p = torch.arange(1, 7, dtype=torch.float64) ** -0.7
    assert chi_squared(slots.bincount(), N * p / p.sum()) > ALPHA


def test_filler_is_as_it_is_called() -> None:
    def again(kind: str) -> tuple[Batch, int, int]:
        """Tokens of keys, and keys, beyond those of pairs and queries."""
        batch = sample(build(filler=kind, vocab_size=30), 1000)
        firsts, seconds = batch.inputs[:, :27:3, None], batch.inputs[:, 1:27:3, None]
        tokens = batch.inputs[:, None]
        parts = (tokens == firsts).any(dim=1).sum() + (tokens == seconds).any(dim=1).sum()
        keys = ((tokens[:, :, :-1] == firsts) & (tokens[:, :, 1:] == seconds)).sum()
        return batch, int(parts) - 1000 * 36, int(keys) - 1000 * 18

    zero, parts, _ = again("zero")
    assert parts == 0
    assert torch.equal(zero.inputs.count_nonzero(dim=1), torch.full((1000,), 9 * 3 + 9 * 2))
    random, parts, _ = again("random")
    assert parts == 0
    assert set(random.inputs[:, 27:].flatten().tolist()) == set(range(30))
    _, parts, keys = again("published")
    assert parts > 0
    assert keys > 0


def test_the_solver_follows_an_example_by_hand() -> None:
    task, batch = by_hand()
    assert task.solve(batch).tolist() == batch.targets.tolist()
    other = batch.inputs.clone()
    other[0, 1], other[0, 10] = 6, 5  # the keys 2 5 and 2 6 change places, and so do their values
    assert task.solve(batch._replace(inputs=other)).tolist() == [[14, 13, 12, 10]]


def test_lengths_and_squares_of_presets() -> None:
    found = [
        (length := dict(preset.task).get("seq_len"), dict(preset.task).get("kv_pairs"))
        for preset in CompositionalMQAR.presets.values()
    ]
    assert length == 2048
    assert found == [(None, None), (64, 4), (128, 9), (256, 16), (256, 25), (256, 36), (2048, 256)]


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"kv_pairs": 8}, "kv_pairs 8 4 9"),
        ({"seq_len": 53}, "9 54 seq_len 53"),
        ({"vocab_size": 26}, "3 9 filler 27 26"),
        ({"kv_pairs": 1, "vocab_size": 5}, "vocab_size 5 6"),
        ({"power_a": 0}, "power_a 0"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(CompositionalMQAR, values, facts)


def test_what_is_said_to_be_allowed_is() -> None:
    assert build(seq_len=54, vocab_size=27).answers == 9


def test_explain_tells_pairs_and_answers(snapshot: SnapshotAssertion) -> None:
    task, batch = by_hand()
    assert task.explain(batch, 0) == snapshot


def test_explain_stays_short() -> None:
    task = build(**CompositionalMQAR.presets["zoology-2048-256"].task)
    assert len(task.explain(sample(task, 1), 0)) < 1500
