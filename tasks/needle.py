"""Needles in a haystack."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import NEGLIGIBLE, boxes_holding, most_common_of_rest
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.blocks.scatter import depth_tenths, scatter
from linbench.tasks.blocks.text import markov, zipf
from linbench.tasks.random import Stream

SET, ASK, AND, DIGITS = range(4)
"""Tokens, of which DIGITS is the first digit; keys follow the digits, words the keys."""

LENGTH = {"word": 1, "number": 7, "uuid": 32}
"""Tokens of a key or value."""


class NeedleSettings(Settings):
    """Settings of the published generator."""

    seq_len: int = Field(128, ge=4, description="length of a sequence")
    haystack: Literal["repeat", "zipf", "markov", "needles"] = Field(
        "zipf",
        description=(
            "all words in one order over and over; random words; words that depend on the two before them; or"
            " needles nobody asks for"
        ),
    )
    key: Literal["word", "uuid"] = Field("word", description="one token, or 32 hexadecimal digits")
    value: Literal["number", "uuid"] = Field("number", description="7 decimal digits, or 32 hexadecimal ones")
    needles: int = Field(1, ge=1, description="keys")
    values_per_key: int = Field(
        1, ge=1, description="needles of each key, all of which are due, in the order they stood"
    )
    queries: int = Field(1, ge=1, description="keys asked for at the end")
    depth: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the haystack that stands before the needles; null: they are scattered in it",
    )
    keys: int = Field(64, ge=1, description="words that are keys")
    words: int = Field(128, ge=1, description="words of a haystack")
    exponent: float = Field(
        1.0, ge=0, le=4, description="word i of a haystack is drawn with weight i^-exponent"
    )

    @property
    def needle(self) -> int:
        """Tokens of a needle."""
        return 1 + LENGTH[self.key] + LENGTH[self.value]

    @property
    def question(self) -> int:
        """Tokens of a question with its answers, which AND separates."""
        return LENGTH[self.key] + self.values_per_key * (1 + LENGTH[self.value])

    @property
    def hay(self) -> int:
        """Tokens of the haystack: what needles and questions leave.

        The very last digit is asked for and stands nowhere.
        """
        return (
            self.seq_len - self.needles * self.values_per_key * self.needle - self.queries * self.question + 1
        )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.queries > self.needles:
            raise ValueError(
                f"each query is for another key, so needles must be at least {self.queries}, not"
                f" {self.needles}"
            )
        if self.hay < 0:
            raise ValueError(
                f"needles and questions take {self.seq_len - self.hay} tokens, so seq_len must be at least"
                f" that, not {self.seq_len}"
            )
        if self.key == "word" and self.needles > self.keys:
            raise ValueError(
                f"{self.needles} needles have different keys, so keys must be at least that, not {self.keys}"
            )
        if self.key == "word" and self.haystack == "needles" and self.needles == self.keys:
            raise ValueError(
                f"a haystack of needles needs keys that are never asked for, so keys must be more than the"
                f" {self.needles} needles, not {self.keys}"
            )
        return self


class Needle(Task):
    """Somewhere in a long text this key was given a number: which one?

    Needles `SET key value` stand in a haystack. After `ASK key` at the end the value is due digit by digit,
    and the digits before each one can be read. One fact must outlast the whole text, and one wrong digit
    spoils it (`exact`). It does not tell what a trained language model makes of the same question in words.

    Layout: a haystack is a sentence that repeats, random words, words that depend on those before them, or
    other needles. A key may have several values, and several keys may be asked for.

    Chance: the most common digit among the needles that may be asked for and agree with the digits said.

    Hsieh et al. 2024 (RULER), arXiv:2404.06654, on tokens: a needle is framed by three words instead of a
    sentence, so that no tokenizer is needed. All digits are uniform. Several values are due in the order in
    which they stood; in RULER any order counts. Two uuids of 32 random digits never agree.
    """

    name = "needle"
    skill = "filter"
    solved_by = ("suffix", "beside_last", "beside_first")
    Settings = NeedleSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: one number among words", protocol={"tokens": 2_000_000, "lr": 3e-3}
        ),
        "s-niah-1": Preset(
            "a number in a sentence of 20 words that repeats",
            task={"seq_len": 512, "haystack": "repeat", "words": 20},
        ),
        "s-niah-2": Preset("a number among 2048 words", task={"seq_len": 512, "words": 2048}),
        "s-niah-3": Preset("a uuid among 2048 words", task={"seq_len": 512, "words": 2048, "value": "uuid"}),
        "mk-niah-1": Preset(
            "four keys, one of them asked for", task={"seq_len": 512, "words": 2048, "needles": 4}
        ),
        "mk-niah-2": Preset("one needle among needles", task={"seq_len": 512, "haystack": "needles"}),
        "mk-niah-3": Preset(
            "one needle among needles, of uuids",
            task={"seq_len": 512, "haystack": "needles", "key": "uuid", "value": "uuid"},
        ),
        "mv-niah": Preset(
            "four values of one key, all of them due",
            task={"seq_len": 512, "words": 2048, "values_per_key": 4},
        ),
        "mq-niah": Preset(
            "four keys, all of them asked for",
            task={"seq_len": 512, "words": 2048, "needles": 4, "queries": 4},
        ),
    }

    settings: NeedleSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both, the same for every haystack."""
        size = self._words + self.settings.words
        return IO(size, size)

    @property
    def answers(self) -> int:
        """Every digit of every value of every key that is asked for."""
        return self.settings.queries * self.settings.values_per_key * self._digits

    @property
    def _digits(self) -> int:
        return LENGTH[self.settings.value]

    @property
    def _base(self) -> int:
        return 16 if self.settings.value == "uuid" else 10

    @property
    def _keys(self) -> int:
        return DIGITS + (16 if "uuid" in (self.settings.key, self.settings.value) else 10)

    @property
    def _words(self) -> int:
        return self._keys + self.settings.keys

    @property
    def _text(self) -> int:
        return self.settings.hay + self.settings.needles * self.settings.values_per_key * self.settings.needle

    @property
    def _unit(self) -> int:
        return self.settings.needle if self.settings.haystack == "needles" else 1

    def chance(self) -> float:
        """Return the accuracy of naming the most common digit among possible needles.

        Possible are needles that no earlier answer was about and that agree with the digits said: after few
        of these it is one needle, so that `exact` tells more. A needle of the haystack is told from those
        that may be asked for by how often its key stands or, where `depth` is given, by its place. Of a
        single needle, any digit there is.
        """
        s, units = self.settings, self.settings.hay // self._unit
        others = [1.0]  # the probabilities of so many keys in the haystack that may be asked for
        if s.haystack == "needles" and s.depth is None and s.key == "word":
            others = boxes_holding(s.values_per_key, units, s.keys - s.needles)
        elif s.haystack == "needles" and s.depth is None and s.values_per_key == 1:
            others = [0.0] * units + [1.0]
        if s.needles == len(others) == 1:
            return 1 / self._base
        said = range(s.values_per_key * self._digits)
        right = 0.0
        for count, p in enumerate(others):
            for known in range(s.queries if p > NEGLIGIBLE else 0):
                right += p * sum(
                    most_common_of_rest(
                        s.needles - known + count, share=float(self._base) ** -n, values=self._base
                    )
                    for n in said
                )
        return right / self.answers

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        depth: tenths of the haystack before the needle. place: of the digit in its value.
        """
        return {"depth": 11, "place": self._digits}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order they are due."""
        s, device, rows = self.settings, index.device, index.shape[0]
        stream = Stream.of(index, seed=seed, split=split)
        items, asked = s.needles * s.values_per_key, s.queries * s.values_per_key
        order = stream.child("keys").shuffle(s.keys)
        whose = stream.child("whose").shuffle(items) // s.values_per_key
        keys = self._keys + order[:, : s.needles, None]
        if s.key == "uuid":
            keys = DIGITS + stream.child("uuids").integers(s.needles * LENGTH["uuid"], below=16).view(
                rows, s.needles, -1
            )
        values = DIGITS + stream.child("values").integers(items * self._digits, below=self._base).view(
            rows, items, -1
        )
        placed = scatter(
            stream.child("places"), items=items, width=s.needle, hay=s.hay, unit=self._unit, depth=s.depth
        )
        told = keys.gather(1, whose[:, :, None].expand(-1, -1, keys.shape[2]))
        needles = torch.cat([torch.full_like(told[:, :, :1], SET), told, values], dim=2)
        text = placed.write_items(self._haystack(stream.child("haystack"), placed.hay, order), needles)

        # needles in the order of their keys, and of one key in the order they stand: those that are due come
        # first
        due = whose.sort(dim=1, stable=True).indices[:, :asked]
        answers = values.gather(1, due[:, :, None].expand(-1, -1, self._digits))
        said = torch.cat([answers, torch.full_like(answers[:, :, :1], AND)], dim=2).view(rows, s.queries, -1)[
            :, :, :-1
        ]
        wanted = keys[:, : s.queries]
        questions = torch.cat([torch.full_like(wanted[:, :, :1], ASK), wanted, said], dim=2).flatten(1)
        depth = depth_tenths(placed.before, s.hay // self._unit).gather(1, due)[:, :, None].expand_as(answers)
        place = torch.arange(self._digits, device=device).expand_as(answers)
        slices = {"depth": depth.flatten(1), "place": place.flatten(1)}
        return Batch(
            torch.cat([text, questions[:, :-1]], dim=1),
            self._positions(rows, device),
            answers.flatten(1),
            slices,
        )

    def _haystack(self, stream: Stream, hay: Tensor, order: Tensor) -> Tensor:
        """Return the haystack [B, text], also where needles will stand."""
        s, length = self.settings, hay.shape[1]
        if s.haystack == "repeat":
            return self._words + hay % s.words
        if s.haystack != "needles":
            draw = zipf if s.haystack == "zipf" else markov
            return self._words + draw(stream, length, words=s.words, exponent=s.exponent).gather(
                1, hay.clamp(min=0)
            )
        digits = DIGITS + stream.child("values").integers(length, below=self._base)
        keys = stream.child("keys")
        if s.key == "uuid":
            key = DIGITS + keys.integers(length, below=16)
        else:
            key = self._keys + order.gather(1, s.needles + keys.integers(length, below=s.keys - s.needles))
        part = hay % s.needle
        needles = torch.where(part == 0, SET, torch.where(part <= LENGTH[s.key], key, digits))
        return needles.masked_fill(hay < 0, self._words)

    def _positions(self, rows: int, device: torch.device) -> Tensor:
        """Return where answers are due [rows, answers].

        These are the last token of a key or an AND, and all digits except the last of the value after it.
        """
        s = self.settings
        query, value, place = (
            torch.arange(n, device=device) for n in (s.queries, s.values_per_key, self._digits)
        )
        start = self._text + LENGTH[s.key] + s.question * query
        return (start[:, None, None] + (1 + self._digits) * value[:, None] + place).flatten().expand(rows, -1)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "exact": how often a value is right in all its digits."""
        return super().means(batch, prediction) | {
            "exact": exact_match(batch, prediction, length=self._digits)
        }

    def solve(self, batch: Batch) -> Tensor:
        """Return what stands behind the key where it follows a SET, in the order the values stand."""
        s, inputs = self.settings, batch.inputs
        length = LENGTH[s.key]
        digit = 1 + length + torch.arange(self._digits, device=inputs.device)
        found = []
        for query in range(s.queries):
            asked = self._text + 1 + query * s.question
            here = inputs[:, : self._text - length] == SET
            for i in range(length):
                here = here & (inputs[:, 1 + i : self._text - length + 1 + i] == inputs[:, asked + i, None])
            for value in range(s.values_per_key):
                start = (here & (here.cumsum(dim=1) == value + 1)).long().argmax(dim=1)
                found.append(inputs.gather(1, start[:, None] + digit))
        return torch.cat(found, dim=1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return every question with its values, at most six of them."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        values = batch.targets[row].view(-1, self._digits).tolist()
        due = list(
            zip(
                values,
                batch.positions[row, :: self._digits].tolist(),
                batch.slices["depth"][row, :: self._digits].tolist(),
                strict=True,
            )
        )

        def name(digits: list[int]) -> str:
            return "".join(f"{digit - DIGITS:x}" for digit in digits)

        asked = []
        for number, (value, at, depth) in enumerate(due[:6]):
            first = self._text + 1 + number // s.values_per_key * s.question
            key = tokens[first : first + LENGTH[s.key]]
            whose = name(key) if s.key == "uuid" else f"the word {key[0]}"
            said = next(i for i in range(self._text) if tokens[i : i + len(value)] == value)
            read = " ".join(map(str, tokens[max(0, said - LENGTH[s.key]) : said + len(value)]))
            asked.append(
                f"from position {at} on, {name(value)} is due, said of {whose} at depth {depth / 10} (up to"
                f" position {said + len(value) - 1}: {read})"
            )
        left = f"; {len(due) - 6} more" if len(due) > 6 else ""
        there = (
            f"Of {self.seq_len} tokens {s.hay} are a haystack ({s.haystack}); needles in it:"
            f" {s.needles * s.values_per_key}; digit 0 is token {DIGITS}."
        )
        return f"{there} Then {'; '.join(asked)}{left}."
