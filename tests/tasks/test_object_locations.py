from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.object_locations import AT, DROP, MOVE, TAKE, WHERE, ObjectLocations, draw_world
from tests.helpers.story import told
from tests.helpers.tasks import accuracy, assert_refused, build_task, sample, stream, task_fixture

N = 2000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "before": {"before": True},
    "one person": {"people": 1, "objects": 3, "places": 2},
    "many": {"people": 5, "objects": 9, "places": 30, "events": 40},
}

build = partial(build_task, ObjectLocations)
task = task_fixture(ObjectLocations, SETTINGS)


@pytest.fixture(scope="module")
def quick() -> tuple[ObjectLocations, Batch]:
    task = build()
    return task, sample(task, N)


def test_every_row_is_played_through(task: ObjectLocations) -> None:
    s = task.settings
    batch = sample(task, 30)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        story = told(tokens[: 3 * s.facts], s.first_object, s.first_place)
        *questions, last = tokens[3 * s.facts :]
        asked = [questions[1], last]
        assert questions[::2] == [WHERE, WHERE]
        assert batch.positions[row].tolist() == [3 * s.facts + 1, 3 * s.facts + 3]
        targets = batch.targets[row].tolist()
        if targets == [IGNORE, IGNORE]:
            continue
        assert targets == [(story.before if s.before else story.place)[thing] for thing in asked]
        carried = [thing in story.holder for thing in asked]
        assert sorted(carried) == [False, True]
        for n, thing in enumerate(asked):
            assert thing in story.fit(carried=carried[n], before=s.before)
            now, then = story.place[story.toucher[thing]], story.touched[thing]
            other = story.place[thing] if s.before else then if carried[n] else now
            assert int(batch.facts["other"][row, n]) == other
            assert {name: int(x[row, n]) for name, x in batch.slices.items()} == {
                "carried": carried[n],
                "moves": story.moves[thing],
                "doublings": (3 * s.facts + 1 + 2 * n - story.when[thing] - 2).bit_length() - 1,
            }
    solved = task.solve(batch)
    assert torch.equal(solved[batch.is_answer], batch.targets[batch.is_answer])


def test_neither_place_of_the_last_carrier_tells_more_than_half(quick: tuple[ObjectLocations, Batch]) -> None:
    task, batch = quick
    other, due = batch.facts["other"], batch.is_answer
    carried = batch.slices["carried"] == 1
    assert not (other == batch.targets)[due].any()
    assert float(due.double().mean()) > 0.99
    # where the last carrier is now, and where they took or dropped it
    for guess in (torch.where(carried, batch.targets, other), torch.where(carried, other, batch.targets)):
        assert accuracy(task, batch, guess) == 0.5
    s = task.settings
    places = batch.inputs[:, 2 : 3 * s.facts : 3]
    named = places >= s.first_place
    last = places.gather(1, (named * torch.arange(1, s.facts + 1)).argmax(dim=1, keepdim=True))
    assert accuracy(task, batch, last.expand_as(batch.targets)) == pytest.approx(0.345, abs=0.03)


def test_without_the_balance_either_place_tells_much() -> None:
    world = draw_world(build().settings, stream(N))
    there = world.when >= 0
    for place, right in ((world.toucher, 0.81), (world.touched, 0.65)):
        assert float((place == world.place)[there].double().mean()) == pytest.approx(right, abs=0.02)


def test_events_and_first_places_are_even(
    quick: tuple[ObjectLocations, Batch], chi_squared: Callable[..., float]
) -> None:
    """Moves are a little rarer than half of the events where a world is fit to ask about."""
    task, batch = quick
    s = task.settings
    facts = batch.inputs[:, : 3 * s.facts].unflatten(1, (s.facts, 3))
    first = facts[:, : s.people + s.objects]
    assert chi_squared((first[:, :, 0] == AT).sum(dim=0), torch.full((6,), 4 * N / 6)) > ALPHA
    assert (
        chi_squared(
            (first[:, :, 2] - s.first_place).flatten().bincount(minlength=8), torch.full((8,), 6 * N / 8)
        )
        > ALPHA
    )
    events = facts[:, s.people + s.objects :]
    moves = events[events[:, :, 0] == MOVE]
    assert (
        chi_squared((moves[:, 2] - s.first_place).bincount(minlength=8), torch.full((8,), len(moves) / 8))
        > ALPHA
    )
    assert len(moves) / (12 * N) == pytest.approx(0.47, abs=0.04)
    assert ((batch.slices["carried"][:, 0] == 1).double().mean()) == pytest.approx(0.5, abs=0.04)


def test_a_hand_made_story_and_its_errors() -> None:
    """Person 5 takes object 8, moves and drops it, and moves on; person 6 takes object 7 and moves."""
    task = build(places=4)
    a, b, one, two, three, p, q, r = 5, 6, 7, 8, 9, 11, 12, 13
    facts = [
        *((MOVE, a, p), (MOVE, b, p), (AT, one, r), (AT, two, q), (AT, three, p), (AT, 10, p)),
        *((TAKE, a, two), (MOVE, a, q), (DROP, a, two), (MOVE, a, r), (TAKE, b, one), (MOVE, b, q)),
        *[(MOVE, a, p), (MOVE, a, r)] * 3,
    ]
    tokens = [token for fact in facts for token in fact] + [WHERE, two, WHERE, one]
    positions = torch.tensor([[55, 57]])
    batch = Batch(
        torch.tensor([tokens]),
        positions,
        torch.tensor([[q, q]]),
        dict.fromkeys(task.slice_sizes(), 0 * positions),
        {"other": torch.tensor([[r, p]])},
    )
    assert task.solve(batch).tolist() == [[q, q]]
    assert build(places=4, before=True).solve(batch).tolist() == [[p, p]]
    found = task.score(batch, Prediction(torch.tensor([[r, 14]]), torch.zeros(1, 2)))
    assert [[float(x) for x in found[name]] for name in ("accuracy", "confused", "elsewhere")] == [
        [0, 2],
        [1, 2],
        [1, 2],
    ]
    explained = task.explain(batch, 0)
    for said in ("person 1 takes object 2; person 1 moves to place 2", "55 for object 2: place 2 (12)"):
        assert said in explained


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"events": 11}, "events 11 12"),
        ({"people": 4}, "12 4 people events 16"),
        ({"objects": 2}, "objects 2 3"),
        ({"places": 1}, "places 1 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(ObjectLocations, values, facts)
