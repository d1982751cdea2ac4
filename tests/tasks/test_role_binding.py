from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import Batch, Prediction
from linbench.tasks.role_binding import BY, FIRST_NAME, PAD, TO, WHO, WHOM, RoleBinding
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no room to spare": {"seq_len": 60},
    "passive": {"passive": 0.5, "seq_len": 96},
    "all passive": {"passive": 1.0, "seq_len": 72},
    "noise": {"noises": 9, "parties": 5},
    "all questions": {"names": 3, "verbs": 2, "rings": 2, "parties": 3, "questions": 12},
}
Probability = Callable[..., float]


build = partial(build_task, RoleBinding)


task = task_fixture(RoleBinding, SETTINGS)


class Event(NamedTuple):
    """An event as it is read: its place, who does what to whom, and its words."""

    at: int
    agent: int
    verb: int
    patient: int
    words: tuple[int, ...]


class Asked(NamedTuple):
    """A question as it is read: the place of its name, and its words."""

    at: int
    words: tuple[int, int, int]


def read(task: RoleBinding, inputs: Tensor) -> tuple[list[Event], list[Asked]]:
    """Token by token; all else must be filler."""
    s = task.settings
    tokens = inputs.tolist()
    verbs = FIRST_NAME + s.names
    noise = verbs + s.verbs
    events, questions, t = [], [], 0
    while t < len(tokens):
        if tokens[t] in {WHO, WHOM}:
            role, verb, name = tokens[t : t + 3]
            assert FIRST_NAME <= name < verbs <= verb < noise
            assert tokens[t + 3] == PAD or tokens[t + 3] >= noise
            questions.append(Asked(t + 2, (role, verb, name)))
            t += 3
        elif FIRST_NAME <= tokens[t] < verbs:
            words = tuple(tokens[t : t + 3 + (s.passive > 0)])
            first, verb, *voice, second = words
            assert FIRST_NAME <= second < verbs <= verb < noise
            assert voice in ([[TO], [BY]] if s.passive else [[]])
            agent, patient = (second, first) if voice == [BY] else (first, second)
            events.append(Event(t, agent, verb, patient, words))
            t += len(words)
        else:
            assert noise <= tokens[t] if s.noises else tokens[t] == PAD
            t += 1
    return events, questions


def test_labels_slices_and_facts_are_those_of_the_sequence_as_it_is_read(task: RoleBinding) -> None:
    s = task.settings
    batch = sample(task, 20)
    for row in range(20):
        events, questions = read(task, batch.inputs[row])
        assert (len(events), len(questions)) == (s.events, s.questions) == (s.rings * s.parties, task.answers)
        assert len({asked.words for asked in questions}) == s.questions
        assert max(event.at for event in events) < min(asked.at for asked in questions)
        for n, asked in enumerate(questions):
            role, verb, name = asked.words
            did, suffered = (
                [x for x in events if x.verb == verb and who(x) == name]
                for who in (lambda x: x.agent, lambda x: x.patient)
            )
            assert (len(did), len(suffered)) == (1, 1)
            event, other = (suffered[0], did[0].patient) if role == WHO else (did[0], suffered[0].agent)
            labels = {name: int(x[row, n]) for name, x in batch.slices.items()}
            assert (asked.at, event.agent if role == WHO else event.patient) == (
                int(batch.positions[row, n]),
                int(batch.targets[row, n]),
            )
            assert int(batch.facts["swapped"][row, n]) == other != int(batch.targets[row, n])
            assert labels == {
                "role": role - WHO,
                "doublings": (asked.at - event.at).bit_length() - 1,
                "verbs": len({x.verb for x in events if name in (x.agent, x.patient)}),
                "voice": int(BY in event.words),
            }


def test_the_events_of_a_verb_are_one_ring() -> None:
    for row in sample(build(parties=6, seq_len=96), 20).inputs:
        events, _ = read(build(parties=6, seq_len=96), row)
        after: dict[int, dict[int, int]] = defaultdict(dict)
        for event in events:
            after[event.verb][event.agent] = event.patient
        assert len(after) == 3
        for ring in after.values():
            name = start = next(iter(ring))
            for step in range(6):
                name = ring[name]
                assert (name == start) == (step == 5)


def test_rings_go_round_either_way_alike(chi_squared: Probability) -> None:
    """Three names make two rings; four names with three parties make eight."""
    for names, rings in ((3, 2), (4, 8)):
        task = build(names=names, verbs=1, rings=1, parties=3, questions=1, seq_len=16)
        found: Counter[frozenset[tuple[int, int]]] = Counter()
        for row in sample(task, 1600).inputs:
            found[frozenset((x.agent, x.patient) for x in read(task, row)[0])] += 1
        assert len(found) == rings
        assert chi_squared(torch.tensor(list(found.values())), torch.full((rings,), 1600 / rings)) > ALPHA


def test_told_the_other_way_round_every_event_has_the_same_words_and_every_question_the_other_answer(
    task: RoleBinding,
) -> None:
    batch = sample(task, 50)
    turned = batch.inputs.clone()
    for row in range(50):
        for event in read(task, batch.inputs[row])[0]:
            first, last = event.at, event.at + len(event.words) - 1
            turned[row, [first, last]] = batch.inputs[row, [last, first]]
    assert not torch.equal(turned, batch.inputs)
    assert torch.equal(task.solve(batch._replace(inputs=turned)), batch.facts["swapped"])


def read_by(signature: Callable[[list[Event], Asked], Hashable], task: RoleBinding, examples: int) -> float:
    """Return the accuracy on new examples of one who counts answers to everything that looks alike."""
    answers: dict[Hashable, Counter[int]] = defaultdict(Counter)
    right = 0
    for split in ("train", "test"):
        batch = sample(task, examples, split=split)
        for row, target in zip(batch.inputs, batch.targets[:, 0].tolist(), strict=True):
            events, (asked,) = read(task, row)
            seen = answers[signature(events, asked)]
            if split == "train":
                seen[target] += 1
            else:
                right += seen.most_common(1)[0][0] == target
    return right / examples


def bag(words: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(words))


@pytest.mark.parametrize("passive", [0.0, 0.5])
def test_the_best_reader_of_bags_of_words_is_right_by_chance(passive: float) -> None:
    """It knows how often every bag of events and of the question came with every answer; who keeps the order
    of words is always right."""
    task = build(names=3, verbs=1, rings=1, parties=3, questions=1, passive=passive, seq_len=16)
    examples = 2000
    spread = 4 * (0.25 / examples) ** 0.5
    unordered = read_by(
        lambda events, asked: (frozenset(Counter(bag(x.words) for x in events).items()), bag(asked.words)),
        task,
        examples,
    )
    assert abs(unordered - task.chance()) < spread
    told_in_order = read_by(
        lambda events, asked: (tuple(bag((x.agent, x.patient)) for x in events), asked.words), task, examples
    )
    assert abs(told_in_order - task.chance()) < spread, "nor does the order of events help"
    assert (
        read_by(
            lambda events, asked: (
                frozenset(x.words for x in events if asked.words[2] in x.words),
                asked.words,
            ),
            task,
            examples,
        )
        == 1
    )


def test_any_question_may_be_asked(chi_squared: Probability) -> None:
    task = build(names=3, verbs=1, rings=1, parties=3, questions=2, seq_len=24)
    pairs = Counter(tuple(x.words for x in read(task, row)[1]) for row in sample(task, 1500).inputs)
    assert len(pairs) == 6 * 5
    assert chi_squared(torch.tensor(list(pairs.values())), torch.full((30,), 50.0)) > ALPHA


def test_the_share_of_passive_events() -> None:
    task = build(passive=0.25, seq_len=96)
    said = [BY in event.words for row in sample(task, 200).inputs for event in read(task, row)[0]]
    assert abs(sum(said) / len(said) - 0.25) < 4 * (0.1875 / len(said)) ** 0.5


def test_where_answers_come_from() -> None:
    task = build(names=4, verbs=1, rings=1, parties=3, questions=1, seq_len=16)
    a, b, c, absent, verb = FIRST_NAME, FIRST_NAME + 1, FIRST_NAME + 2, FIRST_NAME + 3, FIRST_NAME + 4
    tokens = [a, verb, b, b, verb, c, c, verb, a, WHO, verb, c, PAD, PAD, PAD, PAD]
    slices = {name: torch.zeros(1, 1, dtype=torch.int64) for name in task.slice_sizes()}
    batch = Batch(
        torch.tensor([tokens]),
        torch.tensor([[11]]),
        torch.tensor([[b]]),
        slices,
        {"swapped": torch.tensor([[a]])},
    )
    assert task.solve(batch).item() == b
    for answer, kind in (
        (b, "accuracy"),
        (a, "swapped"),
        (c, "other"),
        (absent, "alien"),
        (verb, "alien"),
        (PAD, "alien"),
    ):
        means = task.means(batch, Prediction(torch.tensor([[answer]]), torch.zeros(1, 1)))
        assert {name for name, mean in means.items() if name != "nll" and mean.value.item()} == {kind}


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"parties": 17, "seq_len": 200}, "17 parties names 16"),
        ({"parties": 2}, "parties 2 3"),
        ({"rings": 9}, "9 rings verbs 8"),
        ({"questions": 25, "seq_len": 200}, "12 24 questions 25"),
        ({"seq_len": 59}, "12 6 questions 60 seq_len 59"),
        ({"passive": 0.1, "seq_len": 71}, "12 6 questions 72 seq_len 71"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(RoleBinding, values, facts)


def test_explain_has_events_and_questions() -> None:
    for preset in RoleBinding.presets.values():
        task = build(**preset.task)
        batch = sample(task, 1)
        text = task.explain(batch, 0)
        events, questions = read(task, batch.inputs[0])
        for event in events[:24]:
            assert f"{event.agent} does {event.verb} to {event.patient}" in text
        role, verb, name = questions[0].words
        asked = f"who does {verb} to {name}" if role == WHO else f"to whom {name} does {verb}"
        assert f"at position {questions[0].at}, {asked}: {int(batch.targets[0, 0])}" in text
        assert len(text) <= 1500
