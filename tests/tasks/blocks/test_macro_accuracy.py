import pytest
import torch

from linbench.tasks.base import IGNORE, Prediction
from linbench.tasks.blocks.macro_accuracy import macro_accuracy
from linbench.tasks.selective_copy import SelectiveCopy, SelectiveCopySettings


def by_the_book(answers: list[int], targets: list[int]) -> float:
    """Compute the score of one batch from its definition."""
    due = [(a, t) for a, t in zip(answers, targets, strict=True) if t != IGNORE]
    classes = {c for pair in due for c in pair}
    recall = []
    for c in classes:
        asked = [a == t for a, t in due if t == c]
        recall.append(sum(asked) / len(asked) if asked else 0.0)
    return sum(recall) / len(recall)


def test_every_class_counts_once() -> None:
    targets = torch.tensor([[0, 0, 0, 0, 1, 1]])
    answers = torch.tensor([[0, 0, 0, 1, 1, 2]])
    # of class 0 three of four, of class 1 one of two; class 2 is answered and never asked for; class 3 is
    # neither
    assert macro_accuracy(answers, targets, classes=4).tolist() == [pytest.approx((3 / 4 + 1 / 2 + 0) / 3)]


def test_places_that_are_not_due_do_not_count() -> None:
    targets = torch.tensor([[0, IGNORE, 1]])
    assert macro_accuracy(torch.tensor([[0, 3, 1]]), targets, classes=4).tolist() == [1.0]
    assert macro_accuracy(torch.tensor([[0, 3, 2]]), targets, classes=4).tolist() == [pytest.approx(1 / 3)]


def test_batches_of_128_rows_are_averaged_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 9, (300, 5), generator=generator)
    answers = torch.where(
        torch.rand(300, 5, generator=generator) < 0.7,
        targets,
        torch.randint(0, 12, (300, 5), generator=generator),
    )
    targets = torch.where(torch.rand(300, 5, generator=generator) < 0.2, IGNORE, targets)
    expected = [
        by_the_book(answers[part].flatten().tolist(), targets[part].flatten().tolist())
        for part in (slice(0, 128), slice(128, 256), slice(256, 300))
    ]
    assert macro_accuracy(answers, targets, classes=12).tolist() == pytest.approx(expected)


def test_a_task_reports_it_beside_what_all_tasks_report() -> None:
    task = SelectiveCopy(SelectiveCopySettings(seq_len=16, num_tokens_to_copy=3))
    batch = task.sample(torch.arange(300), seed=0, split="test")
    answers = batch.targets.clone()
    answers[:, 0] = 0
    nll = torch.zeros(answers.shape)
    scores = task.score(batch, Prediction(answers, nll))
    value, weight = scores["macro_accuracy"]
    assert float(weight) == 3
    assert float(value) == pytest.approx(float(macro_accuracy(answers, batch.targets, classes=16).sum()))
    assert scores.keys() == {"accuracy", "nll", "accuracy/order", "accuracy/distance", "macro_accuracy"}
    parts = [
        task.score(
            task.sample(torch.arange(first, end), seed=0, split="test"),
            Prediction(answers[first:end], nll[first:end]),
        )
        for first, end in ((0, 128), (128, 300))
    ]
    assert sum(float(part["macro_accuracy"][0]) for part in parts) == pytest.approx(float(value)), (
        "batches add up"
    )
