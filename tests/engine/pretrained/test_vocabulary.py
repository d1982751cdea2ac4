"""Tokens for the ids of a task: the rule that chooses them, and how answers relate to inputs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.engine.pretrained.vocabulary import FIRST, choose_tokens, refuse_task, usable_tokens
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.registry import shipped
from linbench.tasks.base import Task


class Tokenizer:
    """A tokenizer of eleven tokens, as transformers has them."""

    NAMES = ("<s>", "a", "Ġcat", "Ġ", "Ġdog", "dog", "\x07", "Ġx1", "bird", "<pad>", "\ufffd")
    all_special_ids = (0,)
    bos_token_id = 0

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins

    def __len__(self) -> int:
        return len(self.NAMES)

    def __call__(self, text: str) -> Any:
        return SimpleNamespace(input_ids=[0] if self.begins else [])

    def get_added_vocab(self) -> dict[str, int]:
        return {"<pad>": 9}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.NAMES[i] for i in ids]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.NAMES[i] for i in ids).replace("Ġ", " ")


def build(task: str, **settings: Any) -> Task:
    return make_task(task, preset=None, settings={f"task.{n}": value for n, value in settings.items()})[0]


def test_words_come_first_and_what_is_no_text_or_there_twice_is_left_out() -> None:
    # cat and dog are words; then a, x1 and bird; dog without its space has the text of one before
    assert list(usable_tokens(100, Tokenizer(begins=True))) == [2, 4, 1, 7, 8]
    assert list(usable_tokens(8, Tokenizer(begins=True))) == [2, 4, 1, 7]


def test_the_first_token_separates_and_answers_of_one_vocabulary_are_inputs() -> None:
    chosen = choose_tokens(build("parity"), 100, Tokenizer(begins=True))
    assert (chosen.separator, chosen.inputs, chosen.answers, chosen.begin) == (2, (4, 1, 7), (4, 1, 7), 0)
    assert choose_tokens(build("parity"), 100, Tokenizer(begins=False)).begin is None


def test_without_a_tokenizer_tokens_are_numbered_from_a_fixed_one_and_counts_have_their_own() -> None:
    task = build("counter", counters=2, most=6)
    assert task.io[:2] == (7, 7), "the sizes alone do not tell that answers are no inputs"
    chosen = choose_tokens(task, 100, None)
    assert chosen.separator == FIRST
    assert chosen.inputs == tuple(range(FIRST + 1, FIRST + 8))
    assert chosen.answers == tuple(range(FIRST + 8, FIRST + 15))
    assert chosen.digest != choose_tokens(build("counter", counters=2, most=5), 100, None).digest


def test_a_model_with_too_few_tokens_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        choose_tokens(build("parity"), FIRST + 3, None)
    assert "4" in str(refused.value)
    choose_tokens(build("parity"), FIRST + 4, None)


OWN_ANSWERS = {"counter", "capacity"}
"""Tasks whose answers are no inputs: counts, and values that are numbered from 0."""

NEVER_SHOWN = {"memorization", "reachability", "regression", "stacked_mqar"}
"""Tasks whose answers are tokens of the inputs' vocabulary that never stand in an example, or vectors."""


@pytest.mark.parametrize("name", sorted(shipped("task").entries))
def test_a_task_says_whether_its_answers_are_inputs(name: str) -> None:
    task = build(name)
    if name in OWN_ANSWERS:
        assert not task.one_vocabulary
        return
    assert task.one_vocabulary == (task.io.vocab_in is not None)
    if name in NEVER_SHOWN:
        return
    batch = task.sample(torch.arange(32), seed=0, split="train")
    due = batch.targets[batch.is_answer]
    # of products of S3 with few letters, and of stacks that are empty at their end, some are no input
    assert torch.isin(due, batch.inputs).float().mean() > 0.9


def test_yes_and_no_are_no_elements_of_a_group() -> None:
    assert build("group_word").one_vocabulary
    assert not build("group_word", answer="identity", group="Z60").one_vocabulary


@pytest.mark.parametrize("name", ["regression", "stacked_mqar", "compression", "capacity"])
def test_vectors_and_sums_of_ids_cannot_be_asked(name: str) -> None:
    with pytest.raises(UserError, match=name):
        refuse_task(build(name))
    refuse_task(build("mqar"))
