"""Prompts: examples of a task in tokens of a language model, with demonstrations before them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.engine.pretrained.vocabulary import Vocabulary
from linbench.tasks.base import Batch

Answers = Literal["hidden", "written"]
"""The two ways to ask: without or with answers in the asked example.

hidden: it is the sequence that linbench trains on. written: it looks as the demonstrations do, so that each
answer can be worked out from the one before; to track a state is then one step at a time.
"""

_GAP = -1
"""A place that no token takes; all are closed in the end."""


class Prompt(NamedTuple):
    """Sequences of tokens, and where answers are due.

    tokens: [B, L], filled up at the end of shorter rows. positions: [B, N], in the order of the batch.
    """

    tokens: Tensor
    positions: Tensor


def tells_answers(batch: Batch) -> bool:
    """Return whether the inputs of a task already hold every answer right after the place where it is due.

    An answer that is due at the last token is in no input.
    """
    told, _ = _told(batch)
    return bool(told.all())


def _told(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return whether the next input is the answer, at used places before the last token, and these places."""
    last = batch.inputs.shape[1] - 1
    before_last = batch.is_answer & (batch.positions < last)
    following = batch.inputs.gather(1, (batch.positions + 1).clamp(max=last))
    return (following == batch.targets)[before_last], before_last


def build_prompt(
    asked: Batch, shown: Sequence[Batch], vocabulary: Vocabulary, *, answers: Answers, told: bool
) -> Prompt:
    """Return the prompt for each row: demonstrations with their answers, then the example that is asked.

    A separator follows each demonstration. Where an answer is written, it stands right after the token at
    which it is due.

    Args:
        asked: the examples to ask [B, T].
        shown: the first demonstration of each row, the second and so on; each [B, T].
        vocabulary: the tokens. It has a separator if anything is shown.
        answers: whether the asked example holds its answers.
        told: whether the task's inputs hold the answers already, see `tells_answers`.
    """
    B = len(asked.inputs)
    column = asked.inputs.new_empty(B, 1)
    parts = [] if vocabulary.begin is None else [torch.full_like(column, vocabulary.begin)]
    for demonstration in shown:
        assert vocabulary.separator is not None
        parts += [
            _with_answers(demonstration, vocabulary, told).flatten(1),
            torch.full_like(column, vocabulary.separator),
        ]
    before = sum(part.shape[1] for part in parts)
    example = _with_answers(asked, vocabulary, told)
    if answers == "hidden":
        example[:, :, 1] = _GAP
    return _close_gaps(torch.cat([*parts, example.flatten(1)], dim=1), before + 2 * asked.positions)


def _with_answers(batch: Batch, vocabulary: Vocabulary, told: bool) -> Tensor:
    """Return the tokens of inputs, each with the token of the answer that is written after it [B, T, 2].

    The second is a gap where none is due, or where the next input is the answer.
    """
    T = batch.inputs.shape[1]
    written = batch.is_answer & (batch.positions == T - 1) if told else batch.is_answer
    answers = vocabulary.answer_tokens(batch.targets.clamp(min=0))
    after = torch.full_like(F.pad(batch.inputs, (0, 1)), _GAP)  # unused places are sent behind the end
    after = after.scatter(1, torch.where(written, batch.positions, T), answers)[:, :T]
    return torch.stack([vocabulary.input_tokens(batch.inputs), after], dim=2)


def _close_gaps(tokens: Tensor, positions: Tensor) -> Prompt:
    """Move the tokens of each row to its beginning, and positions with them; fill up with the last token."""
    used = tokens != _GAP
    places = used.cumsum(dim=1) - 1
    last = tokens.gather(1, used.long().cumsum(dim=1).argmax(dim=1, keepdim=True))
    closed = last.repeat(1, int(places.max()) + 2)
    closed.scatter_(1, torch.where(used, places, closed.shape[1] - 1), tokens)
    return Prompt(closed[:, :-1], places.gather(1, positions))
