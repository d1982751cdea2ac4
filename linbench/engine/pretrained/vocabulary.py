"""The tokens of a language model that stand for the ids of a task, chosen by a rule."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.hashing import digest
from linbench.tasks.base import Task

FIRST = 16
"""The first token that is used of a model without a tokenizer; its special tokens mostly come before."""

_WORD_STARTS = ("Ġ", "▁")
"""The marks of byte-level and of SentencePiece vocabularies for a token that begins a word."""

UNKNOWN_CHARACTER = "\ufffd"
"""The character that stands for bytes that are no text."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model for the ids of a task, all of them distinct.

    Args:
        inputs: the token of each input id.
        answers: the token of each answer id: that of the same input id where a task has one vocabulary.
        separator: the token between two examples; None for a model that was trained on single examples.
        begin: the token that the model's tokenizer puts before every text, if there is one.
    """

    inputs: tuple[int, ...]
    answers: tuple[int, ...]
    separator: int | None
    begin: int | None = None

    @property
    def digest(self) -> str:
        """A hash of all tokens."""
        return digest([self.inputs, self.answers, self.separator, self.begin])

    def input_tokens(self, ids: Tensor) -> Tensor:
        """Return the tokens of input ids of any shape."""
        return torch.tensor(self.inputs, device=ids.device)[ids]

    def answer_tokens(self, ids: Tensor) -> Tensor:
        """Return the tokens of answer ids of any shape."""
        return torch.tensor(self.answers, device=ids.device)[ids]


def refuse_task(task: Task) -> None:
    """Check that a language model can be asked a task.

    Raises UserError: its inputs or answers are vectors, its inputs are sums of several ids, or all its
    answers are read from one vector.
    """
    name, io = task.name, task.io
    reason = None
    if io.vocab_in is None or io.vocab_out is None:
        reason = f"the {'inputs' if io.vocab_in is None else 'answers'} of {name} are vectors"
    elif io.readout == "code":
        reason = f"all answers of {name} are read from the vector of the last token"
    elif task.sample(torch.arange(1), seed=0, split="train").inputs.dim() > 2:
        reason = f"with these settings {name} reads several ids as one token"
    if reason is not None:
        raise UserError(f"a language model cannot be asked {name}: {reason}; it reads and writes tokens.")


def choose_tokens(task: Task, size: int, tokenizer: Any | None) -> Vocabulary:
    """Return the tokens for a task by this rule: the first ones in `usable_tokens`.

    The very first is the separator. The inputs follow in the order of their ids, and the answers, unless they
    are inputs.

    Args:
        task: a task that `refuse_task` allows.
        size: number of tokens that the model has.
        tokenizer: the model's, of transformers; None: the model has none.

    Raises UserError: the model has too few tokens.
    """
    inputs, answers = task.io.vocab_in or 0, task.io.vocab_out or 0
    needed = 1 + inputs + (0 if task.one_vocabulary else answers)
    tokens = tuple(islice(usable_tokens(size, tokenizer), needed))
    if len(tokens) < needed:
        raise UserError(
            f"{task.name} needs {needed:,} distinct tokens with these settings, and the model has only"
            f" {len(tokens):,} that can be used; give the task a smaller vocabulary with --set."
        )
    of_inputs, of_answers = tokens[1 : 1 + inputs], tokens[1 + inputs :]
    begin = None if tokenizer is None else _begin(tokenizer)
    return Vocabulary(of_inputs, of_inputs if task.one_vocabulary else of_answers, tokens[0], begin)


def usable_tokens(size: int, tokenizer: Any | None) -> Iterator[int]:
    """Yield the tokens that may stand for an id, without repeats.

    These are whole words of letters, in the order of their ids, and then all others. Special and added tokens
    are left out, and tokens that decode to nothing, to unprintable text, or to the text of one before, but
    for spaces around it. Without a tokenizer it is all tokens from `FIRST` on.
    """
    if tokenizer is None:
        yield from range(FIRST, size)
        return
    left_out = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    names = {
        token: name
        for token, name in enumerate(tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer))))))
        if name is not None and token not in left_out
    }
    words = [token for token, name in names.items() if _is_word(name)]
    texts = set[str]()
    for token in dict.fromkeys([*words, *names]):
        text = tokenizer.decode([token]).strip()
        if text and text.isprintable() and UNKNOWN_CHARACTER not in text and text not in texts:
            texts.add(text)
            yield token


def _is_word(name: str) -> bool:
    return name.startswith(_WORD_STARTS) and name[1:].isalpha()


def _begin(tokenizer: Any) -> int | None:
    """Return the token that a tokenizer puts before every text; None if it puts none there."""
    begin: int | None = tokenizer.bos_token_id
    return begin if begin is not None and tokenizer("").input_ids[:1] == [begin] else None
