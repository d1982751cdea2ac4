"""Capo: knowledge held in weights."""

from math import log
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.people import BIRTHDAY, EMPLOYER, SEAT, VALUES, People
from linbench.tasks.random import Stream, constant

BEGIN, END, SPECIAL = 0, 1, 2
"""First and last token of a biography, and their number."""

SENTENCES = 6
"""Number of sentences: birthday, city, university, major, employer and work city."""

LENGTH = 1 + 3 + SENTENCES + len(VALUES) + 1
"""Number of tokens of a biography."""

NO_VALUE = len(VALUES)
"""Value of the slice where no value is due."""

_WORDINGS = (46, 49, 49, 52, 48, 47)
"""Published wordings of each sentence."""
_SENTENCE = (0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)
"""Sentence of each token, were sentences in order: a wording, then its values."""
_WITHIN = (0, 1, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1)
"""Place of each token in its sentence."""
_TOLD = (8, 0, 1, 2, 8, 3, 8, 4, 8, 5, 8, 6, 8, 7)
"""Number of the value that each token tells, or `NO_VALUE`."""


class CapoSettings(Settings):
    """Settings: people, their pools, and how their biographies are written."""

    people: int = Field(1000, ge=2, description="people, all of whom are trained on and tested on")
    divisor: int = Field(
        10,
        ge=1,
        le=100,
        description="what the published numbers of names, years, places and so on are divided by",
    )
    wordings: int | None = Field(
        2,
        ge=1,
        le=1 << 16,
        description="wordings of each sentence, each a token; null is as many as published, 46 to 52",
    )
    order: Literal["any", "fixed", "released"] = Field(
        "any",
        description=(
            "order of sentences; fixed: birthday, city, university, major, employer, work city; released: so,"
            " or with the last two exchanged, as in the released generator"
        ),
    )
    biographies: int = Field(1, ge=1, le=1 << 16, description="biographies in a sequence")
    people_seed: int = Field(0, ge=0, description="decides who the people are, in training and tests alike")

    @property
    def world(self) -> People:
        """The people."""
        return People(self.people, self.divisor, self.people_seed)

    @property
    def worded(self) -> tuple[int, ...]:
        """Number of wordings of each sentence."""
        return _WORDINGS if self.wordings is None else (self.wordings,) * SENTENCES

    @model_validator(mode="after")
    def _possible(self) -> Self:
        names = self.world.possible_names
        if self.people > names:
            raise ValueError(
                f"{self.people} people cannot all have different names, of which there are {names}; use fewer"
                " people or a smaller divisor"
            )
        if self.biographies > self.people:
            raise ValueError(
                f"{self.biographies} biographies in a sequence of {self.people} people would tell of somebody"
                " twice; use fewer biographies or more people"
            )
        return self


class Capo(Task):
    """Told about many people again and again, how much does a model know by heart?

    Biographies tell birthday, city, university, major, employer and work city of people. Training goes
    through all people again and again, and tests ask for the same people. So the score is what all weights
    together hold, and tables divide it by the number of parameters. It does not tell what a layer's state
    holds.

    Layout: `begin first middle last`, six sentences, `end`. A sentence is a token for its wording, then its
    value; that of the birthday has three. All tokens have labels, each the next one. Names and values are
    uniform, and no two people share a name; the work city is the seat of the employer. Each epoch has all
    people in a new order, with new wordings and new orders of sentences. Of employer and work city the second
    follows from the first, in part or in full: `accuracy` counts the first, and `implied` is the accuracy of
    the second.

    Bits: `name_nats` is p1, the cross-entropy of a name in nats, and `value_nats` is p2, that of all values
    of a person, both as means over people. With N people, N0 possible names and S0 possible values,
    `name_bits` is N log2(N0 / e^p1) and `value_bits` is N log2(S0 / e^p2). Tables add up the two, each at
    least 0, and divide by the number of parameters: `bits_per_parameter`. A model that knows all has
    log2(N0 / N) + log2(S0) bits for each person.

    Chance: the most common value among all people, blind to the sequence.

    Allen-Zhu 2025, arXiv:2512.17351 (Capo), with the bits of Allen-Zhu & Li 2024, arXiv:2404.05405. They
    write with 3,275 of GPT-2's tokens and count only their embeddings. Here each part of a name, value and
    wording is a token, there are no pronouns, so that S0 lacks a factor of 2, and each seat has about as many
    employers.
    """

    name = "capo"
    skill = "remember"
    solved_by = ("bag", "ngram")
    Settings = CapoSettings
    optimum_kind = "upper bound"
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "200 people, 200 exposures",
            task={"people": 200},
            protocol={"lr": 3e-3, "tokens": 200 * 200 * LENGTH},
        ),
        "thousand": Preset(
            "1,000 people with 37,000 bits, 100 exposures; for models of width 8 to 32",
            protocol={
                "lr": 1e-2,
                "batch_size": 16,
                "tokens": 100 * 1000 * LENGTH,
                "test_examples": 1000,
            },
        ),
        **{
            f"bios-{count // 1000}k": Preset(
                f"published: {count:,} people, 100 exposures; the batch is ours, in biographies",
                task={"people": count, "divisor": 1, "wordings": None, "order": "released"},
                protocol={
                    "lr": 1e-3,
                    "weight_decay": 0.01,
                    "batch_size": batch,
                    "tokens": 100 * count * LENGTH,
                    "test_examples": count,
                    "validation_examples": 4096,
                    "precision": "bf16",
                },
            )
            for count, batch in ((50_000, 96), (100_000, 192))
        },
    }

    settings: CapoSettings

    @property
    def io(self) -> IO:
        """Begin and end, wordings, parts of names, and values."""
        size = SPECIAL + sum(self.settings.worded) + self.settings.world.tokens
        return IO(size, size)

    @property
    def seq_len(self) -> int:
        """All biographies of a sequence."""
        return LENGTH * self.settings.biographies

    @property
    def answers(self) -> int:
        """One at every token of a biography but its last."""
        return (LENGTH - 1) * self.settings.biographies

    def chance(self) -> float:
        """Return the accuracy of the most common value; of employer and work city the first one counts."""
        share = self.settings.world.commonest()
        employer = 1.0 if self.settings.order == "fixed" else 0.5
        pair = employer * share[EMPLOYER] + (1 - employer) * share[SEAT]
        return (sum(share[:EMPLOYER]) + pair) / (EMPLOYER + 1)

    def longer(self, times: int) -> dict[str, int]:
        """Return settings with so many times as many biographies in a sequence."""
        return {"biographies": times * self.settings.biographies}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        value: month, day, year, city, university, major, employer, work city; 8 where no value is due.
        """
        return {"value": NO_VALUE + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; biography n is of a person of epoch n / people."""
        s, device, rows = self.settings, index.device, len(index)
        if isinstance(seed, Tensor) and seed.dim():
            seed = seed.repeat_interleave(s.biographies)
        each = torch.arange(s.biographies, device=device)
        number = (index[:, None] * s.biographies + each).flatten()
        epoch = Stream.of(number // s.people, seed=seed, split=split).child("people")
        person = epoch.permutation(s.people)(number[:, None] % s.people)[:, 0]
        labels, due, implied = self._write(person, Stream.of(number, seed=seed, split=split))
        inputs = torch.cat([torch.full_like(labels[:, :1], BEGIN), labels], dim=1)
        place = LENGTH * each[:, None] + torch.arange(LENGTH - 1, device=device)
        return Batch(
            inputs.view(rows, -1),
            place.flatten().repeat(rows, 1),
            labels.view(rows, -1),
            {"value": due.view(rows, -1)},
            {"implied": implied.view(rows, -1)},
        )

    def _write(self, person: Tensor, stream: Stream) -> tuple[Tensor, Tensor, Tensor]:
        """Return biographies [R, 18] without their first token, the numbers of their values, and the implied.

        The last two are as the slice "value" and the fact "implied".
        """
        s, device = self.settings, person.device
        known = SPECIAL + sum(s.worded) + s.world.describe(person)
        wording = stream.child("wordings").integers(SENTENCES, below=constant(s.worded, device)[None])
        wording = wording + self._first_wordings(device)
        sentence, told = constant(_SENTENCE, device), constant(_TOLD, device)
        values = known[:, 3:][:, told.clamp(max=NO_VALUE - 1)]
        tokens = torch.where(told == NO_VALUE, wording[:, sentence], values)

        rank = self._ranks(stream.child("order"))
        start = 3 + 2 * rank + 2 * (rank > rank[:, :1])  # a birthday has two tokens more
        at = start[:, sentence] + constant(_WITHIN, device)
        ends = torch.full_like(known[:, :1], END)
        written = torch.cat([known[:, :3], torch.zeros_like(tokens), ends], dim=1).scatter(1, at, tokens)
        due = torch.full_like(written, NO_VALUE).scatter(1, at, told.expand_as(at))
        employer, seat = rank[:, -2:].unbind(dim=1)
        implied = due == torch.where(employer < seat, SEAT, EMPLOYER)[:, None]
        return written, due, implied

    def _first_wordings(self, device: torch.device) -> Tensor:
        """Return the first token of each sentence's wordings [6]."""
        counts = self.settings.worded
        return constant(tuple(SPECIAL + sum(counts[:i]) for i in range(SENTENCES)), device)

    def _ranks(self, stream: Stream) -> Tensor:
        """Return the place of each sentence among the six [R, 6]."""
        if self.settings.order == "any":
            return stream.shuffle(SENTENCES)
        rank = torch.arange(SENTENCES, device=stream.key.device).repeat(len(stream.key), 1)
        if self.settings.order == "released":
            swapped = stream.happens(1, share=0.5)
            rank = torch.cat([rank[:, :-2], torch.where(swapped, rank[:, -2:].flip(1), rank[:, -2:])], dim=1)
        return rank

    def solve(self, batch: Batch) -> Tensor:
        """Look up each value of the person, all of whom are known; where no value is due, say the end."""
        s, device = self.settings, batch.inputs.device
        biographies = batch.inputs.view(-1, LENGTH)
        offset = SPECIAL + sum(s.worded)
        person = s.world.recognise(biographies[:, 1:4] - offset)
        known = offset + s.world.describe(person)[:, 3:]
        due = constant(self._due(), device)[biographies]
        values = known.gather(1, due.clamp(max=NO_VALUE - 1))
        answers = torch.where(due == NO_VALUE, END, values).view(len(batch.inputs), -1)
        return answers.gather(1, batch.positions)

    def _due(self) -> tuple[int, ...]:
        """Return the number of the value that is due after each token."""
        s = self.settings
        due = [NO_VALUE] * SPECIAL
        for sentence, count in enumerate(s.worded):
            due += [_TOLD[_SENTENCE.index(sentence) + 1]] * count
        due += [NO_VALUE] * sum(s.world.names)
        for value, count in enumerate(s.world.pools):
            due += [value + 1 if value + 1 < BIRTHDAY else NO_VALUE] * count
        return tuple(due)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return "accuracy" of values, "implied" of those that follow from the one before, and "nll"."""
        right, implied = prediction.answers == batch.targets, batch.facts["implied"]
        first = (batch.slices["value"] < NO_VALUE) & ~implied
        shares = {"accuracy": first, "implied": implied}
        return {
            **super().means(batch, prediction),
            **{name: WeightedMean(right & counted, counted) for name, counted in shares.items()},
        }

    def score(
        self, batch: Batch, prediction: Prediction, *, slices: bool = True
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return what `Task.score` returns, and nats and bits of names and values, as means over people."""
        s = self.settings
        scores = super().score(batch, prediction, slices=slices)
        loss = prediction.loss.double()
        people = loss.new_full((), loss.numel() // (LENGTH - 1))
        named, valued = batch.positions % LENGTH < 3, batch.slices["value"] < NO_VALUE
        possible = {"name": (named, s.world.possible_names), "value": (valued, s.world.possible_values)}
        for kind, (where, count) in possible.items():
            nats = loss.masked_fill(~where, 0).sum()
            scores[f"{kind}_nats"] = nats, people
            scores[f"{kind}_bits"] = s.people * (log(count) * people - nats) / log(2), people
        return scores

    def explain(self, batch: Batch, row: int) -> str:
        """Return the first biography in words."""
        s = self.settings
        tokens = batch.inputs[row, :LENGTH].tolist()
        told = [
            (VALUES[value], tokens[at + 1])
            for at, value in enumerate(batch.slices["value"][row, : LENGTH - 1].tolist())
            if value != NO_VALUE
        ]
        said = ", ".join(f"{value} {token}" for value, token in told)
        more = f" {s.biographies - 1} more follow." if s.biographies > 1 else ""
        name = " ".join(map(str, tokens[1:4]))
        return (
            f"After the token {BEGIN} stands a name, {name}, then sentences that say: {said}. Each begins"
            f" with a token for its wording, and {END} ends the biography.{more} Every token has a label, the"
            f" next one; values are what counts. There are {s.people} people."
        )
