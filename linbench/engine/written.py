"""Rows that trained models write by themselves, beside the metrics of a test."""

from collections.abc import Sequence

import torch
from torch import Tensor

from linbench.engine.batches import Streams, replica
from linbench.engine.evaluate import EXAMPLES, EvaluationResult
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.tasks.base import Task, Writing
from linbench.tasks.random import Stream

NAME = "generated"
"""Metric of the share of rows that are right to their end."""

ROWS = 1024
"""Rows of each test that are written, at most: each of their tokens takes a pass of the model."""

ROUND = 16
"""Tokens that lengths of rows are rounded up to, so that a kernel sees few lengths."""


def add_generated(
    results: Sequence[EvaluationResult], stack: Stack, cells: Sequence[Cell]
) -> Sequence[EvaluationResult]:
    """Add the share of rows that are written right to the metrics of every test, and return the results.

    Tasks in which nothing is written have none.

    Args:
        results: of each replica.
        stack: the trained models.
        cells: the group's, one for each replica.
    """
    for place, task in enumerate(cells[0].tested_on):
        if task.writing:
            for result, share in zip(results, _shares(task, task.writing, stack, cells), strict=True):
                result.tests[place].metrics[NAME] = share
    return results


def _shares(task: Task, writing: Writing, stack: Stack, cells: Sequence[Cell]) -> list[float]:
    """Return the share of each replica."""
    streams, examples = Streams(task, cells), min(ROWS, cells[0].protocol.test_examples)
    right = torch.zeros(len(cells), device=streams.device)
    stack.model.eval()
    for numbers in torch.split(torch.arange(examples, device=streams.device), EXAMPLES):
        batch = streams.spread(streams.draw(numbers, "test"))
        of_each = [replica(batch, r) for r in range(len(cells))]
        prompts = torch.stack([task.prompts(one) for one in of_each])
        draws = Stream.of(numbers, seed=0, split="written") if writing.drawn else None
        with arithmetic(cells[0].protocol.precision, streams.device):
            written = write(stack, batch.inputs, prompts, writing, draws)
        right += torch.stack([task.judge(*pair).sum() for pair in zip(of_each, written, strict=True)])
    stack.model.train()
    return [share / examples for share in right.tolist()]


@torch.no_grad()
def write(stack: Stack, inputs: Tensor, prompts: Tensor, writing: Writing, draws: Stream | None) -> Tensor:
    """Let models go on with rows, token by token, until each has ended or its row is full.

    Every token takes a pass over all of the row: no state is carried, so that this is right for any mixer.

    Args:
        stack: R models.
        inputs: rows [R, N, T], of which only the prompts are read.
        prompts: tokens that are given of each [R, N].
        writing: how they go on.
        draws: randomness of the rows [N], the same for all models; None: the likeliest token is taken.

    Returns the rows [R, N, T], with zeros after their ends.
    """
    length, prompts = inputs.shape[2], prompts[:, :, None]
    longest = int(prompts.max())
    rows = torch.where(torch.arange(length, device=inputs.device) < prompts, inputs, 0)
    going = torch.ones_like(prompts, dtype=torch.bool)
    for step in range(writing.tokens):
        place = prompts + step
        going = going & (place < length)
        if not going.any():
            break
        place = place.clamp(max=length - 1)
        used = min(length, -(-(longest + step) // ROUND) * ROUND)
        logits = stack(rows[:, :, :used], place - 1).double()[:, :, 0]
        if draws is not None:
            waiting = draws.child(str(step)).exponentials(logits.shape[2]).clamp(min=1)
            logits = logits - waiting.double().log()  # the largest is a draw by the softmax of logits
        token = logits.argmax(dim=2, keepdim=True)
        rows = rows.scatter(2, place, torch.where(going, token, rows.gather(2, place)))
        going = going & (token != writing.end)
    return rows
