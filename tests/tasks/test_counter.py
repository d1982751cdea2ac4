from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch
from linbench.tasks.counter import Counter
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 10_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "cope-5": dict(Counter.presets["cope-5"].task),
    "smallest": {"seq_len": 20, "counters": 2, "most": 1},
    "no place to spare": {"seq_len": 66, "counters": 2, "most": 8},
    "counts further": {"largest": 10},
}
Probability = Callable[..., float]


build = partial(build_task, Counter)


task = task_fixture(Counter, SETTINGS)


def test_structure(task: Counter) -> None:
    """Played through with numbers."""
    s = task.settings
    c, count = s.counters, s.statements
    batch = sample(task, 30)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        counts, zeroed, raised = [-1] * c, [0] * c, [[0, 0] for _ in range(c)]
        others = [0] * c
        reset_at = [0] * c
        for at, token in enumerate(tokens[:count]):
            kind, which = divmod(token - 1, c)
            if token == 0:
                continue
            if kind == 0:
                zeroed[which] += 1
                assert at < count // 8 if zeroed[which] == 1 else count // 4 <= at < count // 4 + count // 2
                counts[which], reset_at[which], others[which] = 0, at, 0
            else:
                assert kind == 1
                assert counts[which] >= 0
                counts[which] += 1
                raised[which][zeroed[which] - 1] += 1
                others = [n + (other != which) for other, n in enumerate(others)]
        assert zeroed == [2] * c
        assert all(early <= s.most and late <= s.most for early, late in raised)
        asked = [token - 1 - 2 * c for token in tokens[count:]]
        assert sorted(asked) == list(range(c))
        assert batch.positions[row].tolist() == list(range(count, count + c))
        assert batch.targets[row].tolist() == [counts[which] for which in asked]
        found = {name: batch.slices[name][row].tolist() for name in task.slice_sizes()}
        assert found == {
            "count": [counts[which] for which in asked],
            "distance": [count + place - reset_at[which] for place, which in enumerate(asked)],
            "others": [others[which] for which in asked],
        }
    assert torch.equal(task.solve(batch), batch.targets)
    assert task.io == IO(3 * c + 1, (s.largest or s.most) + 1)


def test_a_hand_made_sequence() -> None:
    """zero a, zero b, add a, add b, add a, zero a, pass, add a, zero b; then b and a are asked for."""
    task = build(seq_len=20, counters=2, most=1)
    statements = [1, 2, 3, 4, 3, 1, 0, 3, 2] + [0] * 9
    batch = Batch(
        torch.tensor([[*statements, 6, 5]]),
        torch.tensor([[18, 19]]),
        torch.zeros(1, 2, dtype=torch.int64),
        {},
    )
    assert task.solve(batch).tolist() == [[0, 1]]


def test_counts_and_resets_are_even(chi_squared: Probability) -> None:
    task = build()
    batch = sample(task, N)
    counts = torch.empty_like(batch.targets).scatter(1, batch.inputs[:, 61:] - 7, batch.targets)
    for counter in range(3):
        assert chi_squared(counts[:, counter].bincount(minlength=6), torch.full((6,), N / 6)) > ALPHA
        zeros = (batch.inputs[:, :61] == 1 + counter).long()
        reset = 60 - zeros.flip(1).argmax(dim=1)
        assert chi_squared(zeros.argmax(dim=1).bincount(minlength=7), torch.full((7,), N / 7)) > ALPHA
        assert chi_squared((reset - 15).bincount(minlength=30), torch.full((30,), N / 30)) > ALPHA
        assert (
            chi_squared(batch.inputs[:, 61 + counter].sub(7).bincount(minlength=3), torch.full((3,), N / 3))
            > ALPHA
        )
    together = 6 * counts[:, 0] + counts[:, 1]
    assert chi_squared(together.bincount(minlength=36), torch.full((36,), N / 36)) > ALPHA


def test_additions_stand_anywhere_after_the_reset(chi_squared: Probability) -> None:
    """Place a single addition at every free place after the reset as often."""
    task = build(seq_len=34, counters=2, most=1)
    inputs = sample(task, N).inputs[:, :32]
    zeros, added = (inputs == 1), (inputs == 3)
    reset = 31 - zeros.long().flip(1).argmax(dim=1)
    late = added & (torch.arange(32) > reset[:, None])
    once = (reset == 20) & (late.sum(dim=1) == 1)
    other = (inputs == 2)[:, 21:].any(dim=1)
    places = late[once & ~other][:, 21:].sum(dim=0)
    assert places.sum() > 50
    assert chi_squared(places, places.sum().expand(11) / 11) > ALPHA


def test_longer_sequences_count_no_further() -> None:
    task = build(**build().longer(2))
    assert (task.seq_len, task.settings.most) == (128, 5)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"counters": 8, "most": 1}, "8 counters 56"),
        ({"most": 6}, "3 6 61"),
        ({"counters": 1}, "counters 1 2"),
        ({"most": 0}, "most 0 1"),
        ({"seq_len": 19}, "seq_len 19 20"),
        ({"largest": 4}, "largest 4 most 5"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Counter, values, facts)


def test_explain_tells_statements_and_answers(task: Counter) -> None:
    batch = sample(task, 4)
    for row in range(4):
        text = task.explain(batch, row)
        at, target = int(batch.positions[row, 0]), int(batch.targets[row, 0])
        assert f"{target} at position {at}" in text
        assert "zero a" in text
        assert len(text) < 2500
