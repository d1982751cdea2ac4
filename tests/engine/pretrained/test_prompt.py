"""Prompts by hand, and a model that repeats what it read, which finds the answers of recall in them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.engine.pretrained.ask import PretrainedCase
from linbench.engine.pretrained.prompt import Answers, build_prompt, tells_answers
from linbench.engine.pretrained.vocabulary import Vocabulary
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.registry import shipped
from linbench.tasks.base import IGNORE, Batch
from tests.helpers.language_models import RepeatingEverywhere, ask_repeating, question, repeating_model

VOCABULARY = Vocabulary(inputs=(10, 11, 12, 13), answers=(20, 21, 22, 23), separator=99, begin=7)
SHARED = Vocabulary(inputs=(10, 11, 12, 13), answers=(10, 11, 12, 13), separator=99)


def batch(inputs: list[list[int]], positions: list[list[int]], targets: list[list[int]]) -> Batch:
    return Batch(torch.tensor(inputs), torch.tensor(positions), torch.tensor(targets), {})


ASKED = batch([[0, 1, 2], [3, 3, 3]], [[2, 0], [1, 0]], [[1, 3], [2, IGNORE]])
SHOWN = batch([[1, 1], [0, 2]], [[0], [1]], [[0], [3]])


def test_without_shots_the_prompt_is_the_input() -> None:
    prompt = build_prompt(ASKED, [], SHARED, answers="hidden", told=False)
    assert prompt.tokens.tolist() == [[10, 11, 12], [13, 13, 13]]
    assert prompt.positions.tolist() == [[2, 0], [1, 0]]


def test_answers_are_written_behind_their_places_and_shorter_rows_are_filled_up() -> None:
    prompt = build_prompt(ASKED, [SHOWN], VOCABULARY, answers="written", told=False)
    assert prompt.tokens.tolist() == [
        [7, 11, 20, 11, 99, 10, 23, 11, 12, 21],
        [7, 10, 12, 23, 99, 13, 13, 22, 13, 13],
    ]
    assert prompt.positions.tolist() == [[8, 5], [6, 5]]


def test_the_asked_example_may_hide_its_answers() -> None:
    prompt = build_prompt(ASKED, [SHOWN], VOCABULARY, answers="hidden", told=False)
    assert prompt.tokens.tolist() == [[7, 11, 20, 11, 99, 10, 11, 12], [7, 10, 12, 23, 99, 13, 13, 13]]
    assert prompt.positions.tolist() == [[7, 5], [6, 5]]


def test_an_answer_that_is_the_next_input_is_not_written_again() -> None:
    told = batch([[0, 1, 2]], [[0, 1, 2]], [[1, 2, 3]])
    assert tells_answers(told)
    prompt = build_prompt(told, [told], SHARED, answers="hidden", told=True)
    assert prompt.tokens.tolist() == [[10, 11, 12, 13, 99, 10, 11, 12]]
    assert prompt.positions.tolist() == [[5, 6, 7]]
    # one answer of three is the next input by accident
    assert not tells_answers(batch([[0, 1, 2]], [[0, 1, 2]], [[1, 1, 3]]))


TOLD = {"copy", "palindrome", "dyck", "flip_flop", "formal_language", "needle", "phonebook", "induction"}
TOLD |= {"associative_recall", "fuzzy_recall", "in_context_recall", "noisy_recall"}
TOLD |= {"brevo", "capo", "depo", "frequent", "lano", "mano"}
"""Tasks whose inputs go on with the answer, or that ask at the last token alone."""


@pytest.mark.slow
def test_which_tasks_tell_their_answers() -> None:
    found = set()
    for name in shipped("task").entries:
        task, _, _ = make_task(name, preset=None)
        if task.io.vocab_in is None or task.io.vocab_out is None or task.io.readout == "code":
            continue
        batch = task.sample(torch.arange(16), seed=0, split="train")
        if batch.inputs.dim() == 2 and tells_answers(batch):
            found.add(name)
    assert found == TOLD


@pytest.mark.parametrize(("shots", "answers"), [(0, "hidden"), (0, "written"), (2, "written"), (2, "hidden")])
def test_what_repeats_finds_every_answer_of_recall(tmp_path: Path, shots: int, answers: Answers) -> None:
    assert ask_repeating(tmp_path, question("mqar", shots=shots, answers=answers)) == 1
    assert ask_repeating(tmp_path, question("induction", shots=shots, answers=answers)) > 0.9


def test_a_model_that_computes_all_logits_gives_the_same(tmp_path: Path) -> None:
    model = repeating_model(tmp_path)
    model.__dict__["module"] = RepeatingEverywhere()
    assert PretrainedCase(model, question("mqar")).measure().metrics["accuracy"] == 1


def test_what_repeats_the_last_value_overwrites_and_what_it_cannot_do_is_not_found(tmp_path: Path) -> None:
    assert ask_repeating(tmp_path, question("variable_overwrite", shots=1, answers="written")) == 1
    assert ask_repeating(tmp_path, question("group_word", shots=1, answers="written")) < 0.4


def test_a_prompt_longer_than_the_model_reads_is_refused(tmp_path: Path) -> None:
    asked = question("mqar", examples=1)
    with pytest.raises(UserError, match="64"):
        PretrainedCase(repeating_model(tmp_path, longest=63), asked).measure()
    PretrainedCase(repeating_model(tmp_path, longest=64), asked).measure()


def test_likelihoods_that_are_no_numbers_and_a_lack_of_memory_are_told_in_a_sentence(tmp_path: Path) -> None:
    model = repeating_model(tmp_path)
    case = PretrainedCase(model, question("mqar", examples=1))

    def fail(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: not enough memory")

    def spoil(module: Any, given: Any, found: Any) -> None:
        found.logits.fill_(torch.nan)

    hook = model.module.register_forward_hook(spoil)
    with pytest.raises(UserError, match="no numbers"):
        case.measure()
    hook.remove()
    model.module.register_forward_hook(fail)
    with pytest.raises(UserError, match="does not fit"):
        case.measure()


@pytest.mark.gpu
def test_a_gpu_gives_the_scores_of_a_cpu(tmp_path: Path) -> None:
    asked = question("group_word", shots=2, answers="written")
    on_cpu, on_gpu = (
        PretrainedCase(repeating_model(tmp_path, device=device), asked).measure()
        for device in ("cpu", "cuda:0")
    )
    assert on_gpu.metrics == pytest.approx(on_cpu.metrics)
    assert on_gpu.slices.keys() == on_cpu.slices.keys()
