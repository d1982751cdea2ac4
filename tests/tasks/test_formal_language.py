from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Split
from linbench.tasks.blocks.automata import Automata
from linbench.tasks.formal_language import VISITS, FormalLanguage
from tests.helpers.tasks import assert_refused, build_task, sample, solved

ALPHA = 1e-3
Probability = Callable[..., float]
REGBENCH = dict(FormalLanguage.presets["regbench"].task)
FEW: dict[str, Any] = {"automata": 20, "held_out": 10}


build = partial(build_task, FormalLanguage)


def known(task: FormalLanguage) -> Automata:
    return task._automata(torch.device("cpu"))


def words_of(task: FormalLanguage, batch: Batch) -> list[list[list[int]]]:
    """The words of every row; the last may be cut."""
    bar, filler = task.settings.letters, task.settings.letters + 1
    rows = []
    for tokens in batch.inputs.tolist():
        kept = tokens[: tokens.index(filler)] if filler in tokens else tokens
        assert set(tokens[len(kept) :]) <= {filler}
        words: list[list[int]] = [[]]
        for token in kept:
            if token == bar:
                words.append([])
            else:
                words[-1].append(token)
        rows.append(words)
    return rows


def mean(task: FormalLanguage, batch: Batch, prediction: Prediction, name: str = "accuracy") -> float:
    value, weight = task.score(batch, prediction)[name]
    return float(value / weight)


@pytest.mark.parametrize("values", [{}, REGBENCH, {**FEW, "seq_len": 30, "max_word": 1}])
def test_every_word_is_of_the_language_of_its_row(values: dict[str, Any]) -> None:
    task = build(**values)
    for split in ("train", "validation", "test"):
        batch = sample(task, 12, split=split)  # type: ignore[arg-type]
        number = task._numbers(torch.arange(12), split)  # type: ignore[arg-type]
        letters, targets = known(task).letter[number].tolist(), known(task).target[number].tolist()
        for row, words in enumerate(words_of(task, batch)):
            place, visits = 0, dict.fromkeys(range(task.settings.nodes), 0)
            for w, word in enumerate(words):
                state = 0
                for letter in word:
                    legal = [x for x in letters[row][state] if x < task.settings.letters]
                    assert letter in legal
                    if place:
                        assert int(batch.targets[row, place - 1]) == letter
                        assert int(batch.facts["legal"][row, place - 1]) == sum(1 << x for x in legal)
                        assert int(batch.slices["word"][row, place - 1]) == w
                        assert int(batch.slices["visits"][row, place - 1]) == min(visits[state], VISITS - 1)
                    visits[state] += 1
                    state = targets[row][state][legal.index(letter)]
                    place += 1
                if 0 < place <= task.answers:
                    assert int(batch.targets[row, place - 1]) == IGNORE
                place += 1
            assert not batch.is_answer[row, place - 1 :].any()


def test_words_are_as_many_and_as_long_as_published(chi_squared: Probability) -> None:
    task = build(**REGBENCH)
    rows = words_of(task, sample(task, 500))
    counts = torch.tensor([len(words) for words in rows])
    assert chi_squared(counts.bincount(minlength=20)[10:], torch.full((10,), 50.0)) > ALPHA
    lengths = torch.tensor([len(word) for words in rows for word in words])
    assert lengths.min() == 1
    assert chi_squared(lengths.bincount(minlength=50)[1:], torch.full((49,), len(lengths) / 49)) > ALPHA


def test_the_longest_published_sequence_just_fits() -> None:
    s = build(**REGBENCH).settings
    assert s.seq_len == s.max_words * (s.max_word + 1) - 1


def test_all_letters_that_may_come_next_are_as_likely(chi_squared: Probability) -> None:
    task = build(out_degree=3)
    batch = sample(task, 300)
    legal, target = batch.facts["legal"][batch.is_answer], batch.targets[batch.is_answer]
    # the target's rank among the legal letters
    below = sum((legal >> letter) & (letter < target).long() & 1 for letter in range(8))
    degree = sum((legal >> letter) & 1 for letter in range(8))
    assert isinstance(below, Tensor)
    assert isinstance(degree, Tensor)
    for size in (1, 2, 3):
        ranks = below[degree == size].bincount(minlength=size)
        assert len(ranks) == size
        assert size == 1 or chi_squared(ranks, torch.full((size,), int(ranks.sum()) / size)) > ALPHA


def test_every_language_has_its_turn_and_no_split_shares_one() -> None:
    task = build(**FEW, seq_len=8)
    splits: tuple[Split, ...] = ("train", "validation", "test")
    numbers = [task._numbers(torch.arange(60), split).tolist() for split in splits]
    assert [sorted(set(x)) for x in numbers] == [list(range(20)), list(range(20, 25)), list(range(25, 30))]
    assert all(x.count(number) == 60 // len(set(x)) for x in numbers for number in set(x))
    assert sorted(set(build(automata=5, held_out=3)._numbers(torch.arange(9), "test").tolist())) == [6, 7]


def test_examples_of_one_language_differ() -> None:
    task = build(**FEW)
    batch = task.sample(torch.tensor([3, 23, 43]), seed=0, split="train")
    assert len(batch.inputs.unique(dim=0)) == 3
    assert len(sample(task, 3, seed=1).inputs.unique(dim=0)) == 3


def test_any_legal_letter_is_right_and_nothing_else() -> None:
    task = build()
    batch = sample(task, 20)
    legal = batch.facts["legal"]
    for token in range(task.settings.letters + 2):
        guess = torch.full_like(batch.targets, token)
        may = ((legal >> token) & 1)[batch.is_answer].double().mean()
        assert mean(task, batch, Prediction(guess, torch.zeros(guess.shape))) == pytest.approx(float(may))
    assert mean(task, batch, Prediction(torch.full_like(batch.targets, 8), torch.zeros(legal.shape))) == 0
    assert mean(task, batch, Prediction(batch.targets.clamp(min=0), torch.zeros(legal.shape))) == 1


def test_tvd_is_the_distance_from_the_uniform_distribution_over_legal_letters() -> None:
    task = build(letters=4, automata=20, held_out=4, seq_len=8)
    places = torch.arange(3)[None]
    batch = Batch(
        torch.zeros(1, 8, dtype=torch.int64),
        places,
        torch.tensor([[0, 3, IGNORE]]),
        {"visits": 0 * places, "word": 0 * places},
        {},
    )
    batch = batch._replace(facts={"legal": torch.tensor([[0b0011, 0b1000, 0]])})
    shares = torch.tensor(
        [[[0.5, 0.25, 0.0, 0.0, 0.25, 0.0], [0.0, 0.0, 0.25, 0.75, 0.0, 0.0], [1.0, 0, 0, 0, 0, 0]]]
    )
    prediction = Prediction(shares.argmax(dim=2), torch.zeros(1, 3), shares.log())
    means = task.means(batch, prediction)
    assert means["tvd"].value[0, :2].tolist() == pytest.approx([0.25, 0.25])
    assert mean(task, batch, prediction, "tvd") == pytest.approx(0.25)
    assert task.score(batch, prediction)["tvd/word"][1][0] == 2
    assert "tvd" not in task.means(batch, prediction._replace(logits=None))


def by_hand(task: FormalLanguage, tokens: list[int]) -> list[dict[int, float]]:
    """After every token, how probable each letter is to be legal next."""
    k = known(task)
    states, weights, found = (
        dict.fromkeys(range(len(k.degree)), 0),
        dict.fromkeys(range(len(k.degree)), 1.0),
        [],
    )
    for token in tokens:
        for a in list(states):
            if token == task.settings.letters:
                states[a] = 0
                continue
            edges = dict(zip(k.letter[a, states[a]].tolist(), k.target[a, states[a]].tolist(), strict=True))
            edges.pop(task.settings.letters, None)
            if token not in edges:
                del states[a]
                continue
            weights[a] /= len(edges)
            states[a] = edges[token]
        total = sum(weights[a] for a in states)
        found.append(
            {
                x: sum(weights[a] for a in states if int(k.legal[a, states[a]]) >> x & 1) / total
                for x in range(task.settings.letters)
            }
        )
    return found


def test_the_solver_infers_the_language_as_bayes_would() -> None:
    task = build(letters=5, **FEW, seq_len=24, max_word=6)
    batch = sample(task, 6, split="test")
    answers = solved(task, batch).answers
    undecided = 0
    for row, tokens in enumerate(batch.inputs.tolist()):
        for n, probable in enumerate(by_hand(task, [x for x in tokens if x <= 5])[: task.answers]):
            assert probable[int(answers[row, n])] == pytest.approx(max(probable.values()))
            undecided += max(probable.values()) < 1
    assert undecided > 3


def test_no_baseline_reaches_the_upper_bound_and_longer_contexts_come_nearer() -> None:
    task = build()
    batch = sample(task, 60, split="test")
    baselines = task.baselines(batch)
    assert list(baselines) == ["1-gram", "2-gram", "3-gram"]
    assert task.optimum_kind == "upper bound"
    found = [mean(task, batch, baseline) for baseline in baselines.values()]
    assert task.chance() < found[0] < found[1] < found[2] < task.optimum() == pytest.approx(0.976, abs=0.003)
    distance = [mean(task, batch, baseline, "tvd") for baseline in baselines.values()]
    assert all(a > b for a, b in pairwise(distance))


def test_chance_is_a_random_letter() -> None:
    task = build(**REGBENCH)
    batch = sample(task, 400)
    guess = torch.randint(18, batch.targets.shape, generator=torch.Generator().manual_seed(0))
    assert mean(task, batch, Prediction(guess, torch.zeros(guess.shape))) == pytest.approx(
        task.chance(), abs=0.01
    )
    assert task.chance() == pytest.approx(2 / 18, abs=0.002)


def test_sequences_are_cut_and_filled() -> None:
    short = sample(build(seq_len=6, min_words=2, max_words=2, max_word=3), 50).inputs
    assert (short == 9).any()
    assert not (short[:, 0] >= 8).any()
    assert (sample(build(seq_len=20, min_words=16, max_words=16), 50).inputs < 9).all()


def test_shapes_follow_from_settings() -> None:
    task = build(letters=12, seq_len=40)
    assert task.io == IO(14, 14)
    assert (task.seq_len, task.answers) == (40, 39)
    assert task.longer(3) == {"seq_len": 120, "min_words": 24, "max_words": 48}
    assert task.slice_sizes() == {"visits": VISITS, "word": 16}


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"min_words": 5, "max_words": 4}, "min_words max_words 5 4"),
        ({"letters": 4, "automata": 400}, "automata held_out 300 4 letters out_degree 2 400 500"),
        ({"out_degree": 4}, "out_degree 4 3"),
        ({"nodes": 3}, "nodes 3 4"),
        ({"held_out": 1}, "held_out 1 2"),
        ({"words": 3}, "max_words automata held_out letters max_word min_words nodes out_degree seq_len"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(FormalLanguage, values, facts)


def test_as_many_languages_as_are_allowed_are_found() -> None:
    task = build(letters=4, automata=200, held_out=100)
    assert len(known(task).letter) == 300


def test_explain_shows_the_words_and_what_may_follow() -> None:
    task = build(seq_len=24, min_words=2, max_words=2)
    batch = sample(task, 2)
    text = task.explain(batch, 0)
    shown = "".join("abcdefgh|."[token] for token in batch.inputs[0].tolist()).rstrip(".")
    assert f"The words {shown} are of one language." in text
    assert f"and {'abcdefgh'[int(batch.targets[0][batch.is_answer[0]][0])]} does" in text
    assert len(build(**REGBENCH).explain(sample(build(**REGBENCH), 1), 0)) < 1500
