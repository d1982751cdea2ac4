from collections.abc import Callable
from functools import partial
from math import log, log2
from typing import Any, get_args

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Split
from linbench.tasks.blocks.people import VALUES, People
from linbench.tasks.capo import LENGTH, Capo
from tests.helpers.tasks import assert_refused, build_task, sample, solved, task_fixture

N = 10_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": dict(Capo.presets["quick"].task),
    "bios-50k": dict(Capo.presets["bios-50k"].task),
    "fixed": {"order": "fixed", "people": 30, "divisor": 100, "wordings": 3},
    "several": {"biographies": 3, "people": 100},
}
SENTENCES = (("month", "day", "year"), *((value,) for value in VALUES[3:]))
Probability = Callable[..., float]


build = partial(build_task, Capo)


task = task_fixture(Capo, SETTINGS)


def told(task: Capo, biography: list[int]) -> tuple[tuple[int, ...], dict[str, int], list[int], list[int]]:
    """Return name, values, order of sentences and wordings of a biography, read token by token."""
    world, worded = task.settings.world, task.settings.worded
    begin, *name = biography[:4]
    assert (begin, biography[-1], len(biography)) == (0, 1, 19)
    first_value = 2 + sum(worded) + sum(world.names)
    starts = [first_value + sum(world.pools[:i]) for i in range(9)]
    found: dict[str, int] = {}
    order, wordings, at = [], [], 4
    while at < 18:
        wording, sentence = biography[at] - 2, 0
        while wording >= worded[sentence]:
            wording, sentence = wording - worded[sentence], sentence + 1
        order.append(sentence)
        wordings.append(wording)
        for value in SENTENCES[sentence]:
            at += 1
            which = VALUES.index(value)
            assert starts[which] <= biography[at] < starts[which + 1]
            found[value] = biography[at] - starts[which]
        at += 1
    assert sorted(order) == list(range(6))
    return tuple(name), found, order, wordings


def biographies(task: Capo, batch: Batch) -> list[list[int]]:
    rows: list[list[int]] = batch.inputs.reshape(-1, LENGTH).tolist()
    return rows


def test_structure(task: Capo) -> None:
    """Every biography tells the same of the same person, whatever the split, the seed and the order."""
    s, known = task.settings, dict[tuple[int, ...], dict[str, int]]()
    count = min(s.people, 300)
    for seed, split in enumerate(get_args(Split)):
        batch = sample(task, -(-count // s.biographies), split, seed=seed)
        labels = torch.cat([batch.inputs[:, 1:], torch.zeros_like(batch.inputs[:, :1])], dim=1)
        assert torch.equal(batch.targets, labels.gather(1, batch.positions))
        assert ((batch.positions + 1) % LENGTH != 0).all()
        for row in biographies(task, batch):
            name, values, order, _ = told(task, row)
            assert known.setdefault(name, values) == values
            assert s.order == "any" or order[:4] == [0, 1, 2, 3]
            assert s.order != "fixed" or order == [0, 1, 2, 3, 4, 5]
    assert len(known) <= s.people
    assert solved(task, batch).answers.shape == batch.targets.shape


def test_every_epoch_has_all_people_once_in_another_order() -> None:
    task = build(people=50, divisor=20)
    names = [told(task, row)[0] for row in biographies(task, sample(task, 150))]
    epochs = [names[:50], names[50:100], names[100:]]
    assert [len(set(epoch)) for epoch in epochs] == [50] * 3
    assert set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]
    packed = build(people=50, divisor=20, biographies=5)
    assert biographies(packed, sample(packed, 30)) == biographies(task, sample(task, 150))


def test_people_are_uniform(chi_squared: Probability) -> None:
    world = People(N, 10, 0)
    people = world.describe(torch.arange(N))
    start = 0
    for pool, column in zip(world.names + world.pools[:7], people.unbind(dim=1), strict=False):
        counts = (column - start).bincount(minlength=pool)
        assert chi_squared(counts, torch.full((pool,), N / pool)) > ALPHA
        start += pool
    together = (people[:, 3] - people[:, 3].min()) * 10 + people[:, 8] - people[:, 8].min()
    assert chi_squared(together.bincount(minlength=120), torch.full((120,), N / 120)) > ALPHA
    assert len(people[:, :3].unique(dim=0)) == N
    assert world.describe(torch.tensor([7, 3])).tolist() == [people[7].tolist(), people[3].tolist()]
    other = People(N, 10, 1).describe(torch.arange(20))
    assert not torch.equal(other, people[:20])


def test_an_employer_has_one_seat() -> None:
    """133 different ones, each of one or two of 263 employers."""
    world = People(20_000, 1, 0)
    people = world.describe(torch.arange(20_000))
    pairs = people[:, 9:].unique(dim=0)
    assert len(pairs) == 263
    assert pairs[:, 1].unique(return_counts=True)[1].unique(return_counts=True)[1].tolist() == [3, 130]


def test_sentences_and_wordings_are_as_likely(chi_squared: Probability) -> None:
    task = build(people=100, wordings=3)
    rows = [told(task, row) for row in biographies(task, sample(task, 3000))]
    for place in (0, 5):
        found = torch.tensor([order[place] for _, _, order, _ in rows]).bincount(minlength=6)
        assert chi_squared(found, torch.full((6,), 500.0)) > ALPHA
        said = torch.tensor([wordings[place] for *_, wordings in rows]).bincount(minlength=3)
        assert chi_squared(said, torch.full((3,), 1000.0)) > ALPHA
    released = build(people=100, wordings=None, order="released")
    orders = [told(released, row)[2] for row in biographies(released, sample(released, 3000))]
    swapped = sum(order[4:] == [5, 4] for order in orders)
    assert chi_squared(torch.tensor([swapped, 3000 - swapped]), torch.full((2,), 1500.0)) > ALPHA


def test_tokens_are_as_many_as_published() -> None:
    """12, 28 and 200 for the birthday, 200 cities and so on; 400, 400 and 1,000 for names; 291 wordings."""
    assert build(**SETTINGS["bios-50k"]).io == IO(2 + 291 + 1800 + 1236, 2 + 291 + 1800 + 1236)
    small = build()
    assert small.settings.world.names == (40, 40, 100)
    assert small.settings.world.pools == (12, 28, 20, 20, 30, 10, 26, 13)
    assert (small.seq_len, build(**small.longer(2)).seq_len) == (19, 38)


def test_of_employer_and_seat_the_second_is_implied() -> None:
    task = build()
    batch = sample(task, 200)
    for row, implied in zip(biographies(task, batch), batch.facts["implied"].tolist(), strict=True):
        _, _, order, _ = told(task, row)
        (place,) = (at for at, second in enumerate(implied) if second)
        second = max(order.index(4), order.index(5))
        assert place == 4 + 2 * second + 2 * (order.index(0) < second)
    answers = torch.where(batch.facts["implied"], batch.targets, 0)
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert {name: (float(scores[name][0]), float(scores[name][1])) for name in ("accuracy", "implied")} == {
        "accuracy": (0, 7 * 200),
        "implied": (200, 200),
    }


def test_bits_of_a_model_that_knows_all_are_the_published_ceiling() -> None:
    """2.96e6 at 50,000 people and 5.82e6 at 100,000, where values have one bit more, the pronoun; 37,000 in
    the smaller world."""
    for preset, ceiling in (("bios-50k", 2.96e6), ("bios-100k", 5.82e6), ("thousand", 37_300)):
        task = build(**Capo.presets[preset].task)
        people, batch = task.settings.people, sample(task, 64, "test")
        loss = torch.zeros(batch.targets.shape, dtype=torch.float64)
        loss[:, 0] = log(people)
        scores = task.score(batch, Prediction(task.solve(batch), loss))
        found = {name: float(scores[name][0] / scores[name][1]) for name in scores if "/" not in name}
        assert found["name_nats"] == pytest.approx(log(people))
        assert found["value_nats"] == 0
        pronoun = people if preset.startswith("bios") else 0
        assert found["name_bits"] + found["value_bits"] + pronoun == pytest.approx(ceiling, rel=2e-3)
    world = build(divisor=1).settings.world
    assert log2(world.possible_values) + 1 == pytest.approx(47.59, abs=0.005)
    assert world.possible_names == 1.6e8


def test_who_knows_the_pools_alone_has_no_bits() -> None:
    task = build(order="fixed")
    world, batch = task.settings.world, sample(task, 100, "test")
    pools = [*world.names, 1, *world.pools[:3], *(x for pool in world.pools[3:7] for x in (1, pool)), 1, 1, 1]
    loss = torch.tensor(pools).double().log().expand(100, -1)
    scores = task.score(batch, Prediction(batch.targets, loss))
    assert float(scores["name_bits"][0]) == pytest.approx(0, abs=1e-3)
    assert float(scores["value_bits"][0]) == pytest.approx(0, abs=1e-3)


def test_chance_is_the_commonest_value() -> None:
    task = build(people=3, divisor=100)
    world = task.settings.world
    columns = world.describe(torch.arange(3))[:, 3:].T.tolist()
    shares = [max(column.count(value) for value in column) / 3 for column in columns]
    assert task.chance() == pytest.approx((sum(shares[:6]) + (shares[6] + shares[7]) / 2) / 7)
    fixed = build(people=3, divisor=100, order="fixed")
    assert fixed.chance() == pytest.approx(sum(shares[:7]) / 7)
    pools = build().settings.world.pools
    assert build().chance() > sum(1 / pool for pool in pools[:7]) / 7


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"people": 161, "divisor": 100}, "161 160 people divisor"),
        ({"people": 4, "biographies": 5}, "5 4 biographies people"),
        ({"people": 1}, "people 1 2"),
        ({"divisor": 101}, "divisor 101 100"),
        ({"wordings": 0}, "wordings 0 1"),
        ({"order": "anyhow"}, "order"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Capo, values, facts)


def test_explain_tells_of_the_person(task: Capo) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 0)
    tokens = batch.inputs[0].tolist()
    assert " ".join(map(str, tokens[1:4])) in text
    for at, value in enumerate(batch.slices["value"][0, :18].tolist()):
        if value < 8:
            assert f"{VALUES[value]} {tokens[at + 1]}" in text
