from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.experiments.protocol import Protocol, default_protocol
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.copy import AGAIN, END, LETTERS, START, Copy, CopySettings, Palindrome, StringSettings
from linbench.tasks.random import Stream
from linbench.tasks.stack import Stack
from tests.helpers.tasks import assert_refused, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


def copy(**values: Any) -> Copy:
    return Copy(CopySettings.parse(values, where="task"))


def palindrome(**values: Any) -> Palindrome:
    return Palindrome(StringSettings.parse(values, where="task"))


def written(tokens: Tensor) -> str:
    return "".join(
        ".|$"[token] if token < LETTERS else chr(ord("a") + token - LETTERS) for token in tokens.tolist()
    )


def padded(text: str, length: int) -> str:
    """Without its last letter where nothing comes after it."""
    return text.ljust(length, ".")[:length]


def check_places(batch: Batch, row: int, first: int, answer: str, sources: list[int]) -> None:
    """Check that the answer is due from position `first` on, its letters standing at `sources`.

    Nothing else may be due.
    """
    due = len(answer)
    unused = batch.positions.shape[1] - due
    assert batch.positions[row].tolist() == [*range(first, first + due), *[0] * unused]
    assert written(batch.targets[row, :due]) == answer
    assert batch.targets[row, due:].tolist() == [IGNORE] * unused
    assert batch.slices["place"][row].tolist() == [*range(due), *[0] * unused]
    assert batch.slices["distance"][row].tolist() == [
        *(first + j - source for j, source in enumerate(sources)),
        *[0] * unused,
    ]
    assert written(batch.inputs[row, sources]) == answer


def test_a_copy_is_the_string_again() -> None:
    task = copy(min_length=3, max_length=9)
    batch = sample(task, 100)
    assert task.seq_len == 1 + 9 + 1 + 8
    for row in range(100):
        text = written(batch.inputs[row])
        string = text[1 : text.index("|")]
        assert 3 <= len(string) <= 9
        assert text == padded(f"${string}|{string}", task.seq_len)
        check_places(batch, row, len(string) + 1, string, list(range(1, 1 + len(string))))


def test_a_palindrome_goes_backwards() -> None:
    task = palindrome(min_length=1, max_length=6)
    batch = sample(task, 100)
    assert task.seq_len == 12
    for row in range(100):
        text = written(batch.inputs[row])
        string = text[: text.index("|")]
        assert 1 <= len(string) <= 6
        assert text == padded(f"{string}|{string[::-1]}", task.seq_len)
        check_places(batch, row, len(string), string[::-1], list(range(len(string)))[::-1])


@pytest.mark.parametrize("letters", [4, 26])
@pytest.mark.parametrize(("ngram", "answer"), [(1, 1), (3, 2), (2, 5)])
def test_what_follows_an_n_gram_that_stands_once(ngram: int, answer: int, letters: int) -> None:
    strings = {"min_length": 8, "max_length": 30, "letters": letters, "ngram": ngram, "answer": answer}
    prefix, suffix = copy(variant="prefix", **strings), copy(variant="suffix", **strings)
    assert prefix.seq_len == 1 + ngram + 1 + 30 + 1 + answer - 1
    assert suffix.seq_len == 1 + 30 + 1 + ngram + answer - 1
    before, after = sample(prefix, 300), sample(suffix, 300)
    for row in range(300):
        text = written(before.inputs[row])
        key, string, _ = text[1:].split("|")
        places = [i for i in range(len(string)) if string.startswith(key, i)]
        assert len(key) == ngram
        assert len(places) == 1
        follows = string[places[0] + ngram :][:answer]
        assert len(follows) == answer
        assert text == padded(f"${key}|{string}|{follows}", prefix.seq_len)
        found = 2 + ngram + places[0] + ngram
        check_places(before, row, 2 + ngram + len(string), follows, list(range(found, found + answer)))

        text = written(after.inputs[row])
        string, rest = text[1:].split("|")
        key, follows = rest[:ngram], written(after.targets[row])
        places = [i for i in range(len(string)) if string.startswith(key, i)]
        assert len(places) == 1
        assert string[places[0] :].startswith(key + follows)
        assert text == padded(f"${string}|{key}{follows}", suffix.seq_len)
        found = 1 + places[0] + ngram
        check_places(after, row, 1 + len(string) + ngram, follows, list(range(found, found + answer)))


def test_an_n_gram_stands_once_where_it_could_repeat_itself() -> None:
    task = copy(letters=2, ngram=1, answer=1, min_length=6, max_length=6, variant="suffix")
    string, first = torch.tensor([[0, 0, 0, 1, 0, 0]]), torch.tensor([[1]])
    stream = Stream(torch.zeros(1, dtype=torch.int64))
    assert task._remove_other_occurrences(stream, string, first, torch.tensor([[0]])).tolist() == [
        [1, 0, 1, 1, 1, 1]
    ]
    task = copy(letters=3, ngram=2, answer=1, min_length=6, max_length=6, variant="suffix")
    (once,) = task._remove_other_occurrences(
        stream, torch.zeros(1, 6, dtype=torch.int64), torch.tensor([[2]]), torch.tensor([[0, 0]])
    ).tolist()
    assert once[2:4] == [0, 0]
    assert 0 not in (once[1], once[4])


def test_lengths_letters_and_n_grams_are_uniform(chi_squared: Probability) -> None:
    batch = sample(copy(min_length=12, max_length=16, letters=5), N)
    assert (
        chi_squared(batch.is_answer.sum(dim=1).bincount(minlength=17)[12:], torch.full((5,), N / 5)) > ALPHA
    )
    pairs = 5 * (batch.inputs[:, 1] - LETTERS) + batch.inputs[:, 2] - LETTERS
    assert chi_squared(pairs.bincount(minlength=25), torch.full((25,), N / 25)) > ALPHA
    batch = sample(copy(min_length=9, max_length=9, variant="suffix", ngram=2, answer=3), N)
    first = batch.positions[:, 0] - batch.slices["distance"][:, 0] - 3
    assert chi_squared(first.bincount(minlength=5), torch.full((5,), N / 5)) > ALPHA


def test_repairs_are_rare_in_the_published_alphabet() -> None:
    task = copy(min_length=50, max_length=50, variant="suffix")
    plain = copy(min_length=50, max_length=50)
    changed = (
        (sample(task, 5000).inputs[:, 1:51] != sample(plain, 5000).inputs[:, 1:51]).any(dim=1).double().mean()
    )
    assert 0 < changed < 0.006  # 47 other n-grams, each alike once in 26^3


@pytest.mark.parametrize("make", [copy, palindrome])
@pytest.mark.parametrize(("length", "trained", "tested", "shared"), [(2, 9, 9, 9), (4, 41, 20, 0)])
def test_splits_share_strings_where_there_are_few(
    make: Any, length: int, trained: int, tested: int, shared: int
) -> None:
    """All splits have all of 9 strings. Train has half of 81, and the test a quarter.

    Train also has the one that is left when 81 is divided by four.
    """
    task = make(min_length=length, max_length=length, letters=3)
    train, test = (
        {tuple(row) for row in sample(task, 800, split=split).inputs.tolist()} for split in ("train", "test")
    )
    assert (len(train), len(test), len(train & test)) == (trained, tested, shared)


def test_solvers_read_the_sequence_alone() -> None:
    def solved(task: Copy | Palindrome, tokens: str, positions: list[int]) -> str:
        ids = torch.tensor(
            [[".|$".index(sign) if sign in ".|$" else LETTERS + ord(sign) - ord("a") for sign in tokens]]
        )
        assert ids.shape[1] == task.seq_len
        return written(
            task.solve(Batch(ids, torch.tensor([positions]), torch.full((1, len(positions)), IGNORE), {}))[0]
        )

    strings = {"min_length": 5, "max_length": 6}
    assert solved(copy(**strings), "$abcde|abcde.", [6, 7, 8, 9, 10]) == "abcde"
    assert solved(copy(**strings, variant="prefix", ngram=2, answer=2), "$cd|abcdef|e", [10, 11]) == "ef"
    assert solved(copy(**strings, variant="suffix", ngram=2, answer=2), "$abcde|bccd", [8, 9]) == "de"
    assert solved(palindrome(**strings), "abcde|edcba.", [5, 6, 7, 8, 9]) == "edcba"


def test_a_string_is_right_when_all_its_letters_are() -> None:
    task = copy(min_length=2, max_length=4)
    batch = sample(task, 30)
    answers = batch.targets.clone()
    answers[:10, 1] = END
    answers[~batch.is_answer] = END  # whatever is said where nothing is due
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert [float(x) for x in scores["exact"]] == [20, 30]
    assert [float(x) for x in scores["accuracy"]] == [
        int(batch.is_answer.sum()) - 10,
        int(batch.is_answer.sum()),
    ]
    assert task.chance() == 1 / 26


def test_longer_is_longer_strings() -> None:
    assert copy(**copy(min_length=20, max_length=50).longer(10)).settings.max_length == 500
    assert palindrome(**palindrome(min_length=8, max_length=8).longer(4)).seq_len == 64


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"min_length": 9, "max_length": 8}, "min_length max_length 9 8"),
        ({"variant": "prefix", "answer": 6}, "3 letters 6 min_length 9 8"),
        ({"variant": "suffix", "letters": 3}, "3 letters 4"),
        ({"variant": "backwards"}, "variant"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Copy, values, facts)


@pytest.mark.parametrize("length", [256, 512, 1024, 2048])
def test_the_two_tasks_of_kimi_linear_are_trained_alike(length: int) -> None:
    for task in (Palindrome, Stack):
        preset = task.presets[f"kimi-{length}"]
        assert (
            Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol").steps(length)
            == 20_000
        )
    assert palindrome(**Palindrome.presets[f"kimi-{length}"].task).seq_len == length


def test_explain_writes_the_example() -> None:
    task = copy(min_length=4, max_length=4)
    batch = sample(task, 1)
    string = written(batch.targets[0])
    expected = (
        f"The sequence is `${string}|{string[:3]}`; from position 5 on, where `|` stands, the letters"
        f" `{string}` are due"
    )
    assert task.explain(batch, 0).startswith(expected)
    long = palindrome(min_length=900, max_length=900, letters=300)
    assert len(long.explain(sample(long, 1), 0)) < 1500
    assert START not in sample(long, 5).inputs
    assert (sample(long, 5).inputs == AGAIN).sum() == 5
