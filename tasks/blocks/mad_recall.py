"""Base class of MAD's recall tasks: a row of key-value pairs.

Values are asked for wherever a key comes back, or only at the end.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import IGNORE, Batch, Split
from linbench.tasks.blocks.explain import join_examples, shorten
from linbench.tasks.blocks.macro_accuracy import MacroAccuracy
from linbench.tasks.blocks.previous_occurrence import previous_occurrence
from linbench.tasks.random import Stream


class RecallSettings(Settings):
    """Settings of the published generators.

    Tokens count from 0: keys, then as many values or one more, then noise, then special tokens.
    """

    always_special: ClassVar[int] = 0

    vocab_size: int = Field(16, ge=4, description="keys, values, noise and special tokens")
    seq_len: int = Field(128, ge=6, description="length of a sequence")
    multi_query: bool = Field(
        True, description="ask wherever a key comes back; false: only for the last pair, after a copy token"
    )
    noise_vocab_size: int = Field(0, ge=0, description="tokens that are neither keys nor values")
    frac_noise: float = Field(
        0.0, ge=0, lt=1, description="share of the pairs in whose place noise tokens stand"
    )
    train_on: Literal["all", "answers"] = Field(
        "all", description="what training learns: every next token, as published, or what tests ask for"
    )

    @property
    def special(self) -> int:
        """Number of special tokens; the copy token, if there is one, is the last."""
        return self.always_special + (not self.multi_query)

    @property
    def keys(self) -> int:
        """Number of tokens for keys."""
        return (self.vocab_size - self.special - self.noise_vocab_size) // 2

    @property
    def values(self) -> int:
        """Number of tokens, after the keys, for values."""
        return self.vocab_size - self.special - self.noise_vocab_size - self.keys

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.frac_noise and not self.noise_vocab_size:
            raise ValueError(
                f"frac_noise = {self.frac_noise} needs noise tokens; noise_vocab_size must be at least 1, not"
                " 0"
            )
        if self.keys < 2:
            others = self.special + self.noise_vocab_size
            raise ValueError(
                f"two keys, two values and {others} noise and special tokens need a vocab_size of at least"
                f" {4 + others}, not {self.vocab_size}"
            )
        return self


class Pairs(NamedTuple):
    """P pairs in their order; the last is asked for at the end. All fields except the tokens are [B, P].

    names: equal for equal keys; pairs of noise or pairs left out have names of their own. begins: position of
    the first token. keys and values: tokens [B, P, K] and [B, P, V], of which the sizes say how many count;
    of pairs left out none.
    """

    names: Tensor
    begins: Tensor
    keys: Tensor
    key_sizes: Tensor
    values: Tensor
    value_sizes: Tensor


class Recall(MacroAccuracy):
    """A task whose sequences are rows of pairs.

    Inputs are all tokens except the last, targets all except the first.
    """

    settings: RecallSettings

    @property
    @abstractmethod
    def test_positions(self) -> range:
        """Positions at which a test may ask for an answer."""

    @property
    def answer_positions(self) -> range:
        """Positions at which an answer may be due."""
        return range(self.seq_len) if self.settings.train_on == "all" else self.test_positions

    @property
    def answers(self) -> int:
        """One for each answer position."""
        return len(self.answer_positions)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more pairs of the same keys and values."""
        return {"seq_len": times * self.settings.seq_len}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices; both are 0 where nothing is asked.

        seen: how often the key was shown before. distance: tokens since it was last shown.
        """
        return {"seen": self.settings.seq_len // 2, "distance": self.seq_len + 1}

    def replace_by_noise(self, tokens: Tensor, noise: Tensor, stream: Stream) -> Tensor:
        """Return tokens [B, P, W] with noise tokens in the pairs that `noise` [B, P] marks."""
        s = self.settings
        if not s.frac_noise:
            return tokens
        drawn = stream.integers(tokens[0].numel(), below=s.noise_vocab_size).view(tokens.shape)
        return torch.where(noise[:, :, None], s.keys + s.values + drawn, tokens)

    def make_batch(self, pairs: Pairs, split: Split, *, blank: int, **slices: Tensor) -> Batch:
        """Return examples made of pairs.

        Args:
            pairs: the pairs.
            split: in training also other tokens may be targets.
            blank: token wherever no pair stands.
            slices: further slices [V].
        """
        s, end = self.settings, self.seq_len + 1
        key_at = _token_places(pairs.begins, pairs.key_sizes, pairs.keys, otherwise=end)
        value_at = _token_places(
            pairs.begins + pairs.key_sizes, pairs.value_sizes, pairs.values, otherwise=end
        )
        tokens = key_at.new_full((len(key_at), end + 1), blank)
        if not s.multi_query:
            tokens = tokens.scatter(1, pairs.begins[:, -1:] - 1, s.vocab_size - 1)
        tokens = tokens.scatter(1, key_at, pairs.keys.flatten(1))
        tokens = tokens.scatter(1, value_at, pairs.values.flatten(1))

        before, seen = previous_occurrence(pairs.names)
        distance = pairs.begins - pairs.begins.gather(1, before)
        last = torch.arange(seen.shape[1], device=seen.device) == seen.shape[1] - 1
        asked = last | (seen > 0) if s.multi_query else last.expand_as(seen)
        first, stop, step = (
            self.answer_positions.start,
            self.answer_positions.stop,
            self.answer_positions.step,
        )
        following = slice(first + 1, stop + 1, step)

        def at_values(values: Tensor) -> Tensor:
            """Lay values out at the answers of the pairs that are asked for, zeros elsewhere."""
            laid = torch.where(asked[:, :, None], values, 0).expand_as(pairs.values).flatten(1)
            return torch.zeros_like(tokens).scatter(1, value_at, laid)[:, following]

        targets = tokens[:, following]
        if split != "train" or s.train_on == "answers":
            targets = torch.where(at_values(torch.ones_like(seen)[:, :, None]) > 0, targets, IGNORE)
        positions = torch.arange(first, stop, step, device=seen.device).repeat(len(seen), 1)
        found = {"seen": seen[:, :, None], "distance": distance[:, :, None], **slices}
        return Batch(
            tokens[:, : end - 1].contiguous(),
            positions,
            targets.contiguous(),
            {name: at_values(x) for name, x in found.items()},
        )

    def solve(self, batch: Batch) -> Tensor:
        """Read token by token and note what followed every key.

        For a value that is not known it names the first token that may come next.
        """
        read = torch.tensor(
            [self._read(tokens) for tokens in batch.inputs.tolist()], device=batch.inputs.device
        )
        return read.gather(1, batch.positions)

    def _read(self, tokens: list[int]) -> list[int]:
        """Return what comes next at every position, if it is a token of a value."""
        first = self.settings.keys
        end = first + self.settings.values
        known: dict[tuple[int, ...], dict[int, int]] = {}
        key: tuple[int, ...] = ()
        value: tuple[int, ...] = ()
        answers = []
        for token in tokens:
            if first <= token < end:
                known.setdefault(key, {})[len(value)] = token
                value += (token,)
            else:
                if value or token >= first:  # a new key begins, or filler
                    key = ()
                value = ()
                if token < first:
                    key += (token,)
            following = known.get(key, {}).get(len(value))
            if following is None:
                following = next((v for v in range(first, end) if v not in value), first)
            answers.append(following)
        return answers

    def explain(self, batch: Batch, row: int) -> str:
        """Return the sequence, then the answers that the context determines."""
        s = self.settings
        tokens = batch.inputs[row].tolist()
        columns = (x[row].tolist() for x in (batch.positions, batch.targets, batch.slices["seen"]))
        due = [(at, target, seen) for at, target, seen in zip(*columns, strict=True) if target != IGNORE]
        answers = [
            f"at position {at} stands {tokens[at]}, the answer there is {target}"
            for at, target, seen in due
            if seen
        ]
        first_noise, noise = s.keys + s.values, ""
        if s.noise_vocab_size:
            noise = f", {first_noise} to {first_noise + s.noise_vocab_size - 1} mean nothing"
        back = f"Keys come back: {join_examples(answers)}." if answers else "No key comes back."
        others = len(due) - len(answers)
        rest = ""
        if others:
            rest = f" At {others} other places the next token is due as well, predictable or not."
        return (
            f"Tokens 0 to {s.keys - 1} make keys, {s.keys} to {s.keys + s.values - 1} values{noise}. The"
            f" sequence is {shorten(tokens)}. {back}{rest}"
        )


def _token_places(begins: Tensor, sizes: Tensor, tokens: Tensor, *, otherwise: int) -> Tensor:
    """Return the positions [B, P W] of the tokens [B, P, W] of each pair; unused tokens go to `otherwise`."""
    slot = torch.arange(tokens.shape[2], device=tokens.device)
    return torch.where(slot < sizes[:, :, None], begins[:, :, None] + slot, otherwise).flatten(1)
