"""Strings repeated forwards, from the middle, or backwards."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_of_rest
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.blocks.lengths import draw_length
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream

END, AGAIN, START, LETTERS = range(4)
"""Tokens, written `.`, `|` and `$`; LETTERS is the first letter."""


class StringSettings(Settings):
    """Settings: alphabet and lengths of strings."""

    min_length: int = Field(8, ge=1, description="letters of the shortest string")
    max_length: int = Field(
        24, ge=1, description="letters of the longest; lengths between are equally frequent"
    )
    letters: int = Field(26, ge=2, description="number of letters")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must be at most max_length; {self.min_length} is above {self.max_length}"
            )
        return self


class CopySettings(StringSettings):
    """Settings of the published generator."""

    variant: Literal["copy", "prefix", "suffix"] = Field(
        "copy",
        description=(
            "all of the string is due; or what follows an n-gram in it, which stands before the string or"
            " after it"
        ),
    )
    ngram: int = Field(3, ge=1, description="letters of the n-gram")
    answer: int = Field(3, ge=1, description="letters that are due after the n-gram")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.variant != "copy" and self.ngram + self.answer > self.min_length:
            raise ValueError(
                f"an n-gram of {self.ngram} letters and the {self.answer} after it need a min_length of"
                f" {self.ngram + self.answer} or more, not {self.min_length}"
            )
        if self.variant != "copy" and self.ngram >= self.letters:
            raise ValueError(
                f"an n-gram of {self.ngram} letters can only be kept unique with another letter, so letters"
                f" must be at least {self.ngram + 1}, not {self.letters}"
            )
        return self


class _Strings(Task):
    """A task with a string and letters of it again, each of which is due before the model reads it."""

    @property
    def io(self) -> IO:
        """One vocabulary for both."""
        size = LETTERS + self.settings.letters
        return IO(size, size)

    def chance(self) -> float:
        """Return 1 / letters: any letter, blind to the string, of which nothing is asked but a place."""
        return 1 / int(self.settings.letters)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with longer strings."""
        return {
            "min_length": times * self.settings.min_length,
            "max_length": times * self.settings.max_length,
        }

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        place: of the letter in what is due. distance: tokens from where it stood to where it is due.
        """
        return {"place": self.answers, "distance": self.seq_len}

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "exact": how often all letters of an example are right."""
        return super().means(batch, prediction) | {
            "exact": exact_match(batch, prediction, length=self.answers)
        }

    def explain(self, batch: Batch, row: int) -> str:
        """Return the example and what is due, as it would be written, without the middle of a long one."""
        due = batch.is_answer[row]
        at = int(batch.positions[row][due][0])
        return (
            f"The sequence is `{self._as_text(batch.inputs[row])}`; from position {at} on, where"
            f" `{self._as_text(batch.inputs[row, at : at + 1])}` stands, the letters"
            f" `{self._as_text(batch.targets[row][due])}` are due, each before it is there to be read."
        )

    def _as_text(self, tokens: Tensor) -> str:
        signs = [
            (
                ".|$"[token]
                if token < LETTERS
                else chr(ord("a") + token - LETTERS)
                if token < LETTERS + 26
                else f"<{token}>"
            )
            for token in tokens.tolist()
        ]
        return "".join(signs if len(signs) <= 120 else [*signs[:60], " ... ", *signs[-60:]])

    def _draw_string(self, stream: Stream, split: Split) -> tuple[Tensor, Tensor]:
        """Return letters [B, max_length], counted from 0, and their number [B, 1]."""
        s = self.settings
        length = draw_length(stream, s.min_length, s.max_length)
        return (
            words(stream, length, radices=(s.letters,) * s.max_length, shortest=s.min_length, split=split),
            length,
        )

    def _batch(
        self,
        head: Tensor,
        string: Tensor,
        length: Tensor,
        *,
        first: int | Tensor,
        step: int,
        count: int | Tensor,
        given: int = 0,
    ) -> Batch:
        """Return examples: head, string, `|`, letters of the string again, then `.` to the end.

        Args:
            head: tokens before the string [B, H].
            string: letters [B, max_length].
            length: number of letters [B, 1].
            first: number of the first letter that is repeated.
            step: 1 to repeat forwards, -1 backwards.
            count: how many letters are repeated.
            given: how many of these are not due.
        """
        start, device = head.shape[1], head.device
        at = torch.arange(self.seq_len - start, device=device)
        after = at - length - 1
        letter = string.gather(
            1, torch.where(after < 0, at, first + step * after).clamp(0, string.shape[1] - 1)
        )
        text = (LETTERS + letter).masked_fill(after == -1, AGAIN).masked_fill(after >= count, END)
        place = torch.arange(self.answers, device=device)
        due = (given + place < count).expand_as(length + place)
        source = (first + step * (given + place)).masked_fill(~due, 0)
        positions = start + length + given + place
        slices = {"place": place.expand_as(positions), "distance": positions - start - source}
        return Batch(
            torch.cat([head, text], dim=1),
            positions.masked_fill(~due, 0),
            (LETTERS + string.gather(1, source)).masked_fill(~due, IGNORE),
            {name: x.masked_fill(~due, 0) for name, x in slices.items()},
        )


class Copy(_Strings):
    """Can the string be repeated, from its first letter to its last or from three given letters on?

    A sequence is `$string|string`. From `|` on every letter is due before it is read (in the variants, what
    follows an n-gram of the string). All letters must be held exactly, and a fixed state fails once strings
    outgrow it. It does not tell whether a layer could leave something out.

    Layout: the variants put an n-gram of the string before it (`$ngram|string|answer`) or after it
    (`$string|ngram answer`), and what followed it in the string is due. Places to the end are `.`. An n-gram
    that is asked for stands once in the string: letters that would repeat it are replaced by one that it
    lacks.

    Chance: any letter; for n-grams, the most common letter after all n-grams that could be asked for.

    Jelassi et al. 2024 (Repeat After Me), arXiv:2402.01032. Here a sequence has one string; there several are
    packed into 220 tokens. Strings of a length that has from 64 to 2^24 of them are divided among the splits,
    except for those with n-grams.
    """

    name = "copy"
    version = 2
    skill = "remember"
    solved_by = ("suffix", "beside_last", "beside_first")
    Settings = CopySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: strings of 8 to 24 letters", protocol={"tokens": 2_000_000, "lr": 3e-3}
        ),
        "repeat-after-me": Preset(
            "strings of 20 to 50 letters, to be tested on ten times longer ones; a model of 12 layers",
            task={"min_length": 20, "max_length": 50},
            model={"layers": 12, "d_model": 1024},
            protocol={"lr": 1e-5, "batch_size": 8},
        ),
        "prefix": Preset(
            "an n-gram, then 20 to 50 letters: what came after it?",
            task={"min_length": 20, "max_length": 50, "variant": "prefix"},
        ),
        "suffix": Preset(
            "20 to 50 letters, then an n-gram: what came after it?",
            task={"min_length": 20, "max_length": 50, "variant": "suffix"},
        ),
    }

    settings: CopySettings

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence; the last letter that is due stands nowhere."""
        said = self.answers + (self.settings.ngram if self.settings.variant == "suffix" else 0)
        return self._head + self.settings.max_length + said

    @property
    def answers(self) -> int:
        """Every letter of the longest string, or of an answer."""
        return self.settings.max_length if self.settings.variant == "copy" else self.settings.answer

    def chance(self) -> float:
        """Return the accuracy of a guess: any letter; for n-grams the most common next letter.

        For n-grams the guess counts those that stand once and agree with what was said of the answer, as if
        they did not overlap.
        """
        s = self.settings
        if s.variant == "copy" or s.max_length == s.ngram + s.answer:
            return super().chance()
        lengths = range(s.min_length, s.max_length + 1)
        once = [(1 - s.letters**-s.ngram) ** (length - s.ngram) for length in lengths]
        right = [
            most_common_of_rest(
                length - s.ngram - s.answer + 1, share=alone * s.letters**-said, values=s.letters
            )
            for length, alone in zip(lengths, once, strict=True)
            for said in range(s.answer)
        ]
        return sum(right) / len(right)

    @property
    def _head(self) -> int:
        return 2 + self.settings.ngram if self.settings.variant == "prefix" else 1

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order of the letters.

        The last places are unused where a string is short.
        """
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        string, length = self._draw_string(stream, split)
        head = torch.full_like(length, START)
        if s.variant == "copy":
            return self._batch(head, string, length, first=0, step=1, count=length)
        first = stream.child("ngram").integers(1, below=length - s.ngram - s.answer + 1)
        ngram = string.gather(1, first + torch.arange(s.ngram, device=index.device))
        string = self._remove_other_occurrences(stream.child("other letter"), string, first, ngram)
        if s.variant == "suffix":
            return self._batch(
                head, string, length, first=first, step=1, count=s.ngram + s.answer, given=s.ngram
            )
        head = torch.cat([head, LETTERS + ngram, torch.full_like(length, AGAIN)], dim=1)
        return self._batch(head, string, length, first=first + s.ngram, step=1, count=s.answer)

    def _remove_other_occurrences(
        self, stream: Stream, string: Tensor, first: Tensor, ngram: Tensor
    ) -> Tensor:
        """Return the string with the n-gram only at `first`.

        Whatever would repeat it gets a letter that the n-gram lacks, at a place outside the n-gram's own;
        with such a letter in it nothing can repeat the n-gram any more.
        """
        s = self.settings
        alike = torch.stack(
            [string[:, i : s.max_length - s.ngram + 1 + i] == ngram[:, i, None] for i in range(s.ngram)]
        ).all(dim=0)
        start = torch.arange(alike.shape[1], device=string.device)
        wrong = torch.zeros_like(string, dtype=torch.bool)
        wrong[:, : alike.shape[1]] = alike & (start < first)
        wrong[:, s.ngram - 1 :] |= alike & (start > first)
        draws = stream.bits(s.letters)
        return torch.where(wrong, draws.scatter(1, ngram, -1).argmax(dim=1, keepdim=True), string)

    def solve(self, batch: Batch) -> Tensor:
        """Return the letter as far behind the start, or the n-gram, as the place is behind its second one."""
        s, inputs = self.settings, batch.inputs
        string = inputs[:, self._head :]
        end = (string == AGAIN).long().argmax(dim=1, keepdim=True)
        if s.variant == "copy":
            return string.gather(1, (batch.positions - self._head - end).clamp(min=0))
        ngram = (
            inputs[:, 1 : 1 + s.ngram]
            if s.variant == "prefix"
            else string.gather(1, end + 1 + torch.arange(s.ngram, device=inputs.device))
        )
        windows = string.unfold(1, s.ngram, 1)
        found = (windows == ngram[:, None]).all(dim=2).long().argmax(dim=1, keepdim=True)
        return string.gather(1, found + s.ngram + torch.arange(s.answer, device=inputs.device))


class Palindrome(_Strings):
    """Can the string be repeated from its last letter to its first?

    A sequence is `string|gnirts`, and from `|` on every letter is due before it is read. What came first is
    due last, so each letter is kept for a different time and found by its place. Like a copy, it does not
    tell whether a layer could leave something out.

    Chance: any letter.

    Kimi Team 2025 (Kimi Linear), arXiv:2510.26692. Sequences of 256 tokens hold strings of 128, since the
    last letter stands nowhere. The number of letters is ours. Strings of a length that has from 64 to 2^24 of
    them are divided among the splits.
    """

    name = "palindrome"
    version = 2
    skill = "remember"
    Settings = StringSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: strings of 8 to 24 letters", protocol={"tokens": 2_000_000, "lr": 3e-3}
        ),
        **{
            f"kimi-{length}": Preset(
                f"{length // 2} letters in {length} tokens, for two layers of two heads, 20,000 steps at the"
                " highest of the rates tried there",
                task={"min_length": length // 2, "max_length": length // 2},
                model={"layers": 2, "heads": 2, "head_dim": 128},
                protocol={"lr": 1e-3, "tokens": 20_000 * 32 * length},
            )
            for length in (256, 512, 1024, 2048)
        },
    }

    settings: StringSettings

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence; the last letter that is due stands nowhere."""
        return 2 * self.settings.max_length

    @property
    def answers(self) -> int:
        """Every letter of the longest string."""
        return self.settings.max_length

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order they are due.

        The last places are unused where a string is short.
        """
        string, length = self._draw_string(Stream.of(index, seed=seed, split=split), split)
        return self._batch(length[:, :0], string, length, first=length - 1, step=-1, count=length)

    def solve(self, batch: Batch) -> Tensor:
        """Return the letter as far before the `|` as the place is behind it."""
        end = (batch.inputs == AGAIN).long().argmax(dim=1, keepdim=True)
        return batch.inputs.gather(1, (2 * end - 1 - batch.positions).clamp(0, self.seq_len - 1))
