"""In-context language learning."""

from functools import cache
from math import comb
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.automata import CHOICES, EDGES, FEWEST, Automata, automata
from linbench.tasks.blocks.ngrams import ngrams
from linbench.tasks.random import Stream

VISITS = 64
"""Visits of a state are counted below this; the last number stands for all higher counts."""


class FormalLanguageSettings(Settings):
    """Settings of the published generator; its fixed lower bounds are fixed here, too."""

    seq_len: int = Field(128, ge=4, description="tokens; longer sequences are cut, shorter ones filled up")
    min_words: int = Field(8, ge=2, description="words in a sequence, at least")
    max_words: int = Field(16, ge=2, description="words in a sequence, at most")
    max_word: int = Field(15, ge=1, le=4096, description="letters of a word, from 1 on")
    letters: int = Field(
        8, ge=FEWEST, le=26, description=f"letters there are; a language uses {FEWEST} of them or more"
    )
    nodes: int = Field(
        6,
        ge=FEWEST,
        le=16,
        description="states of an automaton, at least 4, counted before unreachable ones are removed",
    )
    out_degree: int = Field(2, ge=2, le=EDGES, description="letters that may follow in a state, from 1 on")
    automata: int = Field(5000, ge=1, le=1 << 17, description="languages of the training split")
    held_out: int = Field(
        500, ge=2, le=1 << 17, description="languages of the validation and the test split, half each"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.max_words < self.min_words:
            raise ValueError(
                f"min_words must be at most max_words; {self.min_words} is above {self.max_words}"
            )
        sets = sum(comb(self.letters, count) for count in range(1, self.out_degree + 1))
        # two letters to begin with, and any sets of letters after each
        there_are = comb(self.letters, 2) * sets**2
        if 2 * (self.automata + self.held_out) > there_are:
            raise ValueError(
                f"automata + held_out must be at most {there_are // 2}, so that no two languages are alike"
                f" with {self.letters} letters and out_degree {self.out_degree}; {self.automata} and"
                f" {self.held_out} are too many"
            )
        return self


class FormalLanguage(Task):
    """Given a language by examples only, which letter may come next?

    A sequence holds words of one random automaton. At every place but the first, a letter that the automaton
    allows there is due. Tests have other languages than training, so each must be learned from its context.
    It does not tell whether states are tracked or contexts matched; n-grams, the baselines of `linbench
    untrained formal_language`, show how far matching goes.

    Layout: words are random walks from the first state of an automaton, with a bar between them:
    `abca|cab|...`. The score "tvd" is the total variation distance of the prediction (all logits count) from
    the uniform distribution over the letters that may stand there; by "visits", how often the same state was
    left before, it says how fast a model learns.

    Chance: a random letter.

    Akyürek et al. 2024 (RegBench), arXiv:2401.12973. Deviations: no two automata have the same language,
    within a split or across splits (the published sets are not compared by structure). Sequences are cut by
    tokens, not by characters with spaces. Example i of a split uses language i modulo the number of
    languages, and all seeds have the same languages. The upper bound is that of a predictor who knows all
    languages of all splits and infers which one it is. The best predictor without that knowledge would
    average over all automata that agree with the context, which are too many.
    """

    name = "formal_language"
    skill = "learn"
    solved_by = ("suffix", "ngram")
    optimum_kind = "upper bound"
    Settings = FormalLanguageSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "languages of at most 6 states and 8 letters in 128 tokens, for a laptop",
            protocol={"tokens": 2_048_000, "lr": 3e-3},
        ),
        "regbench": Preset(
            "as published: one sequence of each of 5000 languages of up to 12 states, tested on 250 others"
            " and validated on as many",
            task={
                "seq_len": 949,
                "min_words": 10,
                "max_words": 19,
                "max_word": 49,
                "letters": 18,
                "nodes": 12,
                "out_degree": 3,
            },
            model={"layers": 4, "d_model": 128},
            protocol={
                "examples": 5000,
                "epochs": 200,
                "shuffle": True,
                "batch_size": 32,
                "lr": 5e-4,
                "weight_decay": 0.1,
                "warmup": 0.1,
            },
        ),
    }

    settings: FormalLanguageSettings

    @property
    def io(self) -> IO:
        """Letters, the bar and filler."""
        return IO(self._vocab, self._vocab)

    @property
    def answers(self) -> int:
        """One for every token that has a next; unused where that is a bar or filler."""
        return self.seq_len - 1

    @property
    def _vocab(self) -> int:
        return self.settings.letters + 2

    def chance(self) -> float:
        """Return the accuracy of a random letter: about 2 of 18 as published.

        As many letters may follow as the states that words pass through have edges, on average over all
        languages. A reader of the sequence does better with the most common letter so far, the 1-gram.
        """
        s, known = self.settings, self._automata(torch.device("cpu"))
        state = torch.zeros(known.degree.shape, dtype=torch.float64).index_fill(1, torch.tensor(0), 1.0)
        edge = torch.arange(EDGES) < known.degree[:, :, None]
        edges = letters = 0.0
        for place in range(s.max_word):
            # of words that are so long; a first letter is not due
            share = 1 - place / s.max_word - (2 / (s.min_words + s.max_words) if place == 0 else 0)
            edges, letters = edges + share * float((state * known.degree).sum(dim=1).mean()), letters + share
            taken = (state / known.degree)[:, :, None] * edge
            state = torch.zeros_like(state).scatter_add(1, known.target.flatten(1), taken.flatten(1))
        return edges / letters / s.letters

    def optimum(self) -> float:
        """Return how often a letter named by `solve` is legal, measured on 256 separate test examples."""
        return _optimum(self.settings)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more words of the same language."""
        s = self.settings
        return {
            "seq_len": times * s.seq_len,
            "min_words": times * s.min_words,
            "max_words": times * s.max_words,
        }

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        visits: how often before a letter was drawn in the state that the answer is about, 63 for more. word:
        number of words before.
        """
        return {"visits": VISITS, "word": self.settings.max_words}

    def _automata(self, device: torch.device) -> Automata:
        s = self.settings
        return automata(
            s.automata + s.held_out, letters=s.letters, nodes=s.nodes, out_degree=s.out_degree, device=device
        )

    def _numbers(self, index: Tensor, split: Split) -> Tensor:
        s = self.settings
        validation = s.held_out // 2
        first, count = {
            "train": (0, s.automata),
            "validation": (s.automata, validation),
            "test": (s.automata + validation, s.held_out - validation),
        }[split]
        return first + index % count

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples. Words are drawn side by side, each with a bar at its end, and then laid out.

        Bit x of the fact `legal` says that letter x may come next.
        """
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        known, number = self._automata(device), self._numbers(index, split)
        words = s.min_words + stream.child("words").integers(1, below=s.max_words - s.min_words + 1)
        lengths = 1 + stream.child("lengths").integers(s.max_words, below=s.max_word)
        choices = (
            stream.child("steps")
            .integers(s.max_words * s.max_word, below=CHOICES)
            .view(-1, s.max_words, s.max_word)
        )

        step, state = known.step[number], torch.zeros_like(lengths)
        drawn = []  # letter * 16 + the state it was drawn in, [B, words] each
        for choice in choices.unbind(2):
            edge = step.gather(1, state * CHOICES + choice)
            drawn.append((edge & ~15) + state)
            state = edge & 15
        drawn.append(torch.zeros_like(state))
        offset = torch.arange(s.max_word + 1, device=device)
        laid = torch.where(offset < lengths[:, :, None], torch.stack(drawn, dim=2), s.letters * 16)

        begins = (lengths + 1).cumsum(dim=1) - lengths - 1
        word = torch.arange(s.max_words, device=device)
        held = (offset <= lengths[:, :, None]) & (word < words)[:, :, None]
        # no bar after the last word
        held = held & ((offset < lengths[:, :, None]) | (word < words - 1)[:, :, None])
        place = torch.where(held, begins[:, :, None] + offset, s.seq_len).clamp(max=s.seq_len)
        filler = torch.full((len(index), s.seq_len + 1), (s.letters + 1) * 16, device=device)
        laid = filler.scatter(1, place.flatten(1), laid.flatten(1))[:, :-1]

        inputs, state = laid >> 4, laid & 15
        due = inputs[:, 1:] < s.letters
        slices = {"visits": self._visits(inputs, state), "word": (inputs == s.letters).cumsum(dim=1)}
        return Batch(
            inputs,
            torch.arange(self.answers, device=device).expand_as(due),
            inputs[:, 1:].where(due, IGNORE),
            {name: x[:, 1:].where(due, 0) for name, x in slices.items()},
            {"legal": known.legal[number].gather(1, state[:, 1:]).where(due, 0)},
        )

    def _visits(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return how many letters before were drawn in the same state as this one [B, T]."""
        found = torch.zeros_like(state)
        for node in range(self.settings.nodes):
            here = (inputs < self.settings.letters) & (state == node)
            found = torch.where(here, here.cumsum(dim=1) - 1, found)
        return found.clamp(max=VISITS - 1)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy, how often the likeliest token is legal, and with logits "tvd".

        "tvd" is the total variation distance from the true distribution.
        """
        legal = batch.facts["legal"]
        found = super().means(batch, prediction) | {
            "accuracy": WeightedMean((legal >> prediction.answers) & 1)
        }
        if prediction.logits is None:
            return found
        truth = ((legal[:, :, None] >> torch.arange(self._vocab, device=legal.device)) & 1).double()
        truth = truth / truth.sum(dim=2, keepdim=True)
        return found | {
            "tvd": WeightedMean((prediction.logits.double().softmax(dim=2) - truth).abs().sum(dim=2) / 2)
        }

    def solve(self, batch: Batch) -> Tensor:
        """Return the letter that is most likely legal, given all languages with equal prior.

        Languages in which the words so far are impossible are out; the others count by how probable they make
        them.
        """
        known = self._automata(batch.inputs.device)
        letter, target, degree, legal = (
            x.flatten(0, 1) for x in (known.letter, known.target, known.degree, known.legal)
        )
        alphabet = torch.arange(self.settings.letters, device=batch.inputs.device)
        may = (legal[:, None] >> alphabet) & 1
        after = (target[:, :, None] * (letter[:, :, None] == alphabet)).sum(dim=1)  # 0 where it may not
        likeliest = torch.cat(
            [self._likeliest(inputs, letter, degree, may, after) for inputs in torch.split(batch.inputs, 256)]
        )
        return likeliest.gather(1, batch.positions)

    def _likeliest(
        self, inputs: Tensor, letter: Tensor, degree: Tensor, may: Tensor, after: Tensor
    ) -> Tensor:
        """Return the likeliest letter after each token [B, T].

        Args:
            inputs: [B, T].
            letter: letters of the edges of every state of every automaton [S, E].
            degree: number of edges [S].
            may: whether each letter may follow [S, letters].
            after: the state that it leads to [S, letters].
        """
        letters, found = self.settings.letters, []
        # where each automaton's states stand
        begin = torch.arange(0, len(letter), self.settings.nodes, device=inputs.device).expand(
            len(inputs), -1
        )
        state, weight = begin, torch.ones(begin.shape, dtype=torch.float64, device=inputs.device)
        for token in inputs.unbind(1):
            token = token[:, None]
            is_letter, drawn = token < letters, token.clamp(max=letters - 1)
            weight = torch.where(is_letter, weight * may[state, drawn] / degree[state], weight)
            weight = weight / weight.amax(dim=1, keepdim=True)
            left = max(1, int((weight > 0).sum(dim=1).max()))
            if 2 * left < weight.shape[1]:
                keep = (weight > 0).sort(dim=1, descending=True, stable=True).indices[:, :left]
                begin, state, weight = (x.gather(1, keep) for x in (begin, state, weight))
            state = begin + torch.where(is_letter, after[state, drawn], 0)
            votes = weight.new_zeros(len(inputs), letters + 1)
            for edge in letter[state].unbind(2):
                votes = votes.scatter_add(1, edge, weight)
            found.append(votes[:, :letters].argmax(dim=1))
        return torch.stack(found, dim=1)

    def baselines(self, batch: Batch) -> dict[str, Prediction]:
        """Return n-gram predictions, which back off to shorter contexts."""
        return {
            f"{order}-gram": ngrams(batch, order=order, vocab_size=self._vocab, counted=self.settings.letters)
            for order in (1, 2, 3)
        }

    def explain(self, batch: Batch, row: int) -> str:
        """Return the words, and what may follow after the first few letters."""
        s = self.settings
        names = [chr(ord("a") + letter) for letter in range(s.letters)] + ["|", "."]
        text = "".join(names[token] for token in batch.inputs[row].tolist()).rstrip(".")
        due = [n for n in range(self.answers) if batch.is_answer[row, n]]
        told = []
        for n in due[:4] + due[-1:]:
            legal = [
                names[letter]
                for letter in range(s.letters)
                if int(batch.facts["legal"][row, n]) >> letter & 1
            ]
            told.append(
                f"after position {n} {' or '.join(legal)} may stand, and {names[int(batch.targets[row, n])]}"
                " does"
            )
        shown = text if len(text) <= 900 else f"{text[:600]} ... {text[-200:]}"
        return (
            f"The words {shown} are of one language. An answer is due before every letter but the first:"
            f" {'; '.join(told)}."
        )


@cache
def _optimum(settings: FormalLanguageSettings) -> float:
    task = FormalLanguage(settings)
    batch = task.sample(torch.arange(256), seed=-1, split="test")
    right, due = task.score(batch, Prediction(task.solve(batch), torch.zeros(batch.targets.shape)))[
        "accuracy"
    ]
    return float(right / due)
