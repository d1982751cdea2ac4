from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Split
from linbench.tasks.mano import Mano
from tests.helpers.tasks import accuracy, assert_refused, build_task, sample, solved, task_fixture, unanswered

SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "packed": {"pack": True, "seq_len": 100, "operators": 4, "modulus": 23},
    "synonyms": {"pack": True, "seq_len": 64, "operators": 5, "synonyms": 2, "modulus": 3},
    "smallest": {"seq_len": 7, "operators": 1, "modulus": 2, "synonyms": 3},
}

build = partial(build_task, Mano)

task = task_fixture(Mano, SETTINGS)


def meanings(task: Mano) -> list[str]:
    """Return the meaning of each token, in the order of the vocabulary."""
    s = task.settings
    said = ["BEGIN"] + [f"{what}-{n}" for what in ("LEN", "ANS") for n in range(1, s.operators + 1)]
    words = [*said, "+", "-", "*"]
    return ["padding", *(word for word in words for _ in range(s.synonyms)), *map(str, range(s.modulus))]


def evaluate(words: list[str]) -> int:
    """The value of an expression that is read off the front of a list."""
    word = words.pop(0)
    if word not in ("+", "-", "*"):
        return int(word)
    a, b = evaluate(words), evaluate(words)
    return {"+": a + b, "-": a - b, "*": a * b}[word]


@pytest.mark.parametrize("split", ["train", "test"])
def test_structure(task: Mano, split: Split) -> None:
    s, said = task.settings, meanings(task)
    batch = sample(task, 40, split)
    counts = set()
    for row in range(40):
        tokens = batch.inputs[row].tolist()
        words = [said[token] for token in tokens]
        at, due = 0, {}
        while at < s.seq_len and words[at] != "padding":
            assert words[at] == "BEGIN"
            if at + 1 == s.seq_len:
                break
            count = int(words[at + 1].removeprefix("LEN-"))
            counts.add(count)
            end = at + 2 * count + 4
            expression = words[at + 2 : end - 1]
            if end - 1 < s.seq_len:
                assert words[end - 1] == f"ANS-{count}"
            if end < s.seq_len:
                assert int(words[end]) == evaluate(expression) % s.modulus
                assert not expression
            first = at if split == "train" else end - 1
            due |= {place: tokens[place + 1] for place in range(first, min(end, s.seq_len - 1))}
            at = end + 1
            assert s.pack or set(words[at:]) <= {"padding"}
            if not s.pack:
                break
        used = batch.is_answer[row]
        places, targets = batch.positions[row][used].tolist(), batch.targets[row][used].tolist()
        # the label of a row's last token stands beyond the row
        known = {
            place: target for place, target in zip(places, targets, strict=True) if place + 1 < s.seq_len
        }
        assert known == due
        assert len(places) - len(known) <= 1
    assert counts == ({s.operators} if split == "test" else set(range(1, s.operators + 1)))
    assert task.io == IO(len(said), len(said))


def test_a_hand_made_row() -> None:
    """- * 3 4 5 is 7, which is 0 modulo 7; then + 1 2, with the first value in between."""
    task = build(seq_len=20, operators=2, pack=True)
    ids = {meaning: token for token, meaning in enumerate(meanings(task))}
    text = "BEGIN LEN-2 - * 3 4 5 ANS-2 0 BEGIN LEN-1 + 1 2 ANS-1 3 BEGIN LEN-2 - *"
    batch = Batch(
        torch.tensor([[ids[word] for word in text.split()]]),
        torch.tensor([[7, 14, 3]]),
        torch.zeros(1, 3, dtype=torch.int64),
        {},
    )
    assert task.solve(batch)[0, :2].tolist() == [ids["0"], ids["3"]]
    explained = task.explain(batch, 0)
    assert explained.startswith(text[: text.index(" BEGIN")] + ": ")
    assert "due at position 7" in explained


def test_the_solver_computes_every_value(task: Mano) -> None:
    batch = sample(task, 200, "test")
    assert accuracy(task, batch, task.solve(unanswered(batch))) == 1


def test_synonyms_are_drawn_evenly_and_mean_the_same() -> None:
    task = build(**SETTINGS["synonyms"])
    batch = sample(task, 300, "test")
    said = meanings(task)
    counts = batch.inputs.flatten().bincount(minlength=len(said)).tolist()
    for meaning in ("BEGIN", "LEN-5", "ANS-5", "+", "-", "*"):
        one, other = (count for word, count in zip(said, counts, strict=True) if word == meaning)
        assert abs(one - other) < 4 * (one + other) ** 0.5
    assert not any(count for word, count in zip(said, counts, strict=True) if word in ("LEN-4", "ANS-4"))


def test_neither_the_first_nor_the_last_operand_is_the_value() -> None:
    """The page's scores at modulus 23 with 10 operators, to four standard errors."""
    task = build(seq_len=256, modulus=23, operators=10, pack=True)
    batch = sample(task, 1000, "test")
    number = batch.inputs >= task._ids.number
    place = torch.arange(256)
    for operand, expected in ((-1, 0.048), (0, 0.045)):
        # the last number before ANS, or the first after LEN
        if operand:
            at = batch.positions - 1
        else:
            after = torch.where(number, place, 256).flip(1).cummin(dim=1).values.flip(1)
            at = after.gather(1, (batch.positions - 21).clamp(min=0))
        found = accuracy(task, batch, batch.inputs.gather(1, at.clamp(min=0)))
        error = (found * (1 - found) / int(batch.is_answer.sum())) ** 0.5
        assert abs(found - expected) < 4 * error + 0.0015
        assert found < task.chance() == pytest.approx(0.0703, abs=5e-5)


@pytest.mark.parametrize(("operators", "tokens"), [(10, 25), (13, 31), (16, 37)])
def test_published_instances_are_as_long_as_the_page_says(operators: int, tokens: int) -> None:
    task = build(**Mano.presets[f"mano-{operators}"].task)
    assert task.settings.longest == tokens
    batch = sample(task, 4, "test")
    assert batch.is_answer.sum(dim=1).tolist() == [(1024 + 1) // tokens] * 4


def test_shapes_follow_from_settings() -> None:
    assert (build().answers, build(pack=True).answers) == (10, 16)
    assert build().longer(3) == {"seq_len": 48, "pack": True}
    assert build().slice_sizes() == {"operators": 4, "depth": 4}
    assert solved(build(), sample(build(), 3)).answers.shape == (3, 10)
    assert (sample(build(), 20, "test").targets != IGNORE).sum(dim=1).tolist() == [1] * 20


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"operators": 6}, "operators 6 17 seq_len 16"),
        ({"operators": 5, "pack": True, "seq_len": 14}, "operators 5 15 seq_len 14"),
        ({"operators": 0}, "operators 0 1"),
        ({"modulus": 1}, "modulus 1 2"),
        ({"synonyms": 0}, "synonyms 0 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Mano, values, facts)


def test_explain_tells_the_first_expression_and_what_is_due(task: Mano) -> None:
    for split, due in (("train", "after every token the next one is due"), ("test", "only values are due")):
        batch = sample(task, 4, split)  # type: ignore[arg-type]
        for row in range(4):
            text = task.explain(batch, row)
            assert text.startswith("BEGIN LEN-")
            assert text.endswith(f"Here {due}.")
