"""A language of an ambiguous grammar."""

from functools import cache
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean, Writing
from linbench.tasks.blocks.explain import shorten
from linbench.tasks.blocks.grammar import BEGIN, Grammar, sentences
from linbench.tasks.blocks.grammar_law import next_token_law
from linbench.tasks.blocks.grammar_places import commonest_share
from linbench.tasks.blocks.ngrams import Ngrams
from linbench.tasks.blocks.packing import Pack
from linbench.tasks.blocks.playground import published
from linbench.tasks.blocks.published_grammars import GRAMMARS
from linbench.tasks.random import Stream

BAYES = {
    "cfg3f": (0.618, 0.618, 0.621, 0.628),
    "cfg3j": (0.580, 0.580, 0.580, 0.582, 0.588),
    "cfg3k": (0.584, 0.586, 0.587, 0.590, 0.598),
}
"""Accuracy of the exact solver by grammar and level of the roots.

Means of the largest probability over 64,000 to 6,600,000 tokens of packed rows; standard errors are at most
.0007.
"""

ORDERS = (1, 2, 4, 8)
"""Orders of the n-grams that are baselines."""

COUNTED = 1 << 19
"""Tokens of training examples that n-grams are counted in."""


class LanoSettings(Settings):
    """Settings: the grammar, the level at which sentences begin, and length."""

    grammar: Literal["cfg3f", "cfg3j", "cfg3k"] = Field(
        "cfg3f", description="published grammar; cfg3f has six levels of rules, the others seven"
    )
    start: int = Field(
        3,
        ge=0,
        description="level whose symbols are sentences, all equally likely: 0 is the published root",
    )
    seq_len: int = Field(32, ge=2, description="tokens of a row")
    pack: Pack = False

    @property
    def rules(self) -> Grammar:
        """Return the grammar of the sentences."""
        return GRAMMARS[self.grammar].below(self.start)

    @property
    def shortest(self) -> int:
        """Return the tokens of the shortest sentence."""
        return min(self.rules.lengths()[root][0] for root in self.rules.roots)

    @property
    def longest(self) -> int:
        """Return the tokens of the longest sentence."""
        return max(self.rules.lengths()[root][1] for root in self.rules.roots)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        most = len(BAYES[self.grammar]) - 1
        if self.start > most:
            raise ValueError(
                f"start must be at most {most} with {self.grammar}, not {self.start}: symbols of lower levels"
                " have too few different sentences"
            )
        if not self.pack and self.longest >= self.seq_len:
            raise ValueError(
                f"a sentence of {self.grammar} from level {self.start} has up to {self.longest} tokens, so"
                f" seq_len must be at least {self.longest + 1}, not {self.seq_len}; or set pack, or a later"
                " start"
            )
        return self


def _published(grammar: str, seq_len: int) -> Preset:
    given = published(steps=100_000, batch_size=96, seq_len=seq_len, lr=3e-4)
    # falls in all steps but the first
    linear = {"warmup": 0.0, "schedule": "wsd", "cooldown": 0.99999, "weight_decay": 0.1}
    return Preset(
        f"{grammar} of 2512.17351; one of its four rates; without warm-up and with a linear decay to 0, as"
        " there",
        task={"grammar": grammar, "start": 0, "seq_len": seq_len, "pack": True},
        model=given["model"],
        protocol={**given["protocol"], **linear},
    )


class Lano(Task):
    """Does a model of a language know which token may come next, and how likely it is?

    Sentences are drawn from a fixed grammar whose rules overlap: the same few tokens may belong to several
    symbols, and only what stands far before tells which. So a good prediction weighs all trees that the
    sentence so far may have, on six or seven levels at once. It does not tell of learning in context, since
    every sentence has the same grammar.

    Layout: `BEGIN`, the tokens 1, 2 and 3 of a sentence, and `BEGIN` again, which ends the sentence and
    begins the next. After every token the next one is due. Rules of a symbol are equally likely. With `pack`
    sentences follow one another and the last one is cut off; else there is one in a row, and nothing is due
    after its end.

    Scores: "kl" is the divergence of the prediction from the true law of the next token, in nats per token,
    and 0 is optimal. "legal" is how often the likeliest token is possible at all. "scaled_to_bayes" is the
    probability of the likeliest token, scaled so that the commonest token of the language has 0 and the exact
    solver 1. "generated" is the share of sentences of the language among those that the model writes by
    itself in tests, each token drawn by its probability. Accuracy cannot be 1: the optimum is that of the
    exact solver, which knows the law.

    Chance: the commonest token at each place of a row.

    Allen-Zhu 2025 (Physics of Language Models, part 4.1), arXiv:2512.17351, with grammars after Allen-Zhu and
    Li 2023, arXiv:2305.13673. Their score is what "generated" measures. The exact solver and the settings
    `start` are linbench's own.
    """

    name = "lano"
    skill = "track"
    solved_by = ("ngram", "suffix", "bag")
    Settings = LanoSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "sentences of 8 to 27 tokens, from the fourth level of cfg3f, packed into rows of 64",
            task={"seq_len": 64, "pack": True},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "quick-2": Preset(
            "sentences of 16 to 81 tokens, from the third level of cfg3f",
            task={"start": 2, "seq_len": 96},
            protocol={"lr": 3e-3, "tokens": 4_000_000},
        ),
        **{
            grammar: _published(grammar, seq_len)
            for grammar, seq_len in (("cfg3f", 512), ("cfg3j", 1536), ("cfg3k", 1536))
        },
    }

    settings: LanoSettings

    @property
    def io(self) -> IO:
        """`BEGIN` and the terminals."""
        tokens = 1 + self.settings.rules.terminals
        return IO(tokens, tokens)

    @property
    def answers(self) -> int:
        """One for every token."""
        return self.settings.seq_len

    def chance(self) -> float:
        """Return the accuracy of naming the commonest token of each place."""
        s = self.settings
        return commonest_share(s.rules, s.seq_len, packed=s.pack)

    def optimum(self) -> float:
        """Return the accuracy of the exact solver, as measured once for every grammar and level."""
        return BAYES[self.settings.grammar][self.settings.start]

    @property
    def optimum_places(self) -> int:
        """Three: it was measured."""
        return 3

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more sentences in a row."""
        return {"seq_len": times * self.seq_len, "pack": True}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        place: tokens of the sentence before the one that is due. ended: how many nested parts of the sentence
        end before it; all at the end of the sentence.
        """
        s = self.settings
        return {"place": min(s.seq_len, 1 + s.longest), "ended": 1 + len(s.rules.levels)}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; those that are scored have the true law of the next token as the fact `law`."""
        s, stream = self.settings, Stream.of(index, seed=seed, split=split)
        count = -(-s.seq_len // (1 + s.shortest)) if s.pack else 1
        drawn = sentences(s.rules, stream, count=count, width=s.seq_len + 1)
        inputs, targets = drawn.tokens[:, :-1], drawn.tokens[:, 1:]
        begins, at = inputs == BEGIN, torch.arange(s.seq_len, device=index.device)
        due = torch.ones_like(begins) if s.pack else begins.cumsum(dim=1) == 1
        place = at - torch.where(begins, at, 0).cummax(dim=1).values
        return Batch(
            inputs,
            at.expand_as(inputs),
            targets.where(due, IGNORE),
            {"place": place.where(due, 0), "ended": drawn.ended[:, 1:].where(due, 0)},
            # nothing is scored in training
            {} if split == "train" else {"law": next_token_law(s.rules, inputs).float()},
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy; where the law is known also "legal", "scaled_to_bayes", and with logits "kl"."""
        if "law" not in batch.facts:
            return super().means(batch, prediction)
        law = batch.facts["law"].double()
        found = law.gather(2, prediction.answers[:, :, None])[:, :, 0]
        common = law[:, :, _commonest(self.settings.rules)]
        means = super().means(batch, prediction) | {
            "legal": WeightedMean(found > 0),
            "scaled_to_bayes": WeightedMean(found - common, law.amax(dim=2) - common),
        }
        if prediction.logits is None:
            return means
        predicted = prediction.logits.double().log_softmax(dim=2)
        divergence = torch.special.xlogy(law, law) - law * predicted
        return means | {"kl": WeightedMean(divergence.masked_fill(law == 0, 0).sum(dim=2))}

    def solve(self, batch: Batch) -> Tensor:
        """Return the likeliest token by the exact law."""
        return next_token_law(self.settings.rules, batch.inputs).argmax(dim=2).gather(1, batch.positions)

    @property
    def writing(self) -> Writing:
        """A sentence that is drawn from the model, and its end."""
        return Writing(min(self.settings.longest + 1, self.seq_len - 1), BEGIN, drawn=True)

    def prompts(self, batch: Batch) -> Tensor:
        """Return 1: a row begins with `BEGIN`."""
        return torch.ones_like(batch.inputs[:, 0])

    def judge(self, batch: Batch, written: Tensor) -> Tensor:
        """Tell which rows begin with a sentence: all of its tokens may come, and then `BEGIN`.

        A row that is too short for its sentence need not have the end.
        """
        law = next_token_law(self.settings.rules, written)
        legal = law[:, :-1].gather(2, written[:, 1:, None])[:, :, 0] > 0
        ends = written[:, 1:] == BEGIN
        later = ends.cumsum(dim=1) > ends.long()  # than the end of the first sentence
        whole = ends.any(dim=1) | (self.settings.longest >= self.seq_len)
        return (legal | later).all(dim=1) & whole

    def baselines(self, batch: Batch) -> dict[str, Prediction]:
        """Return predictions of n-grams that were counted in training examples."""
        counted = _counted(self.settings)
        return {f"{order}-gram": counted.predict(batch, order=order) for order in ORDERS}

    def explain(self, batch: Batch, row: int) -> str:
        """Return the tokens, and the law at the first of them and at the end of the first sentence."""
        s, targets = self.settings, batch.targets[row].tolist()
        law = next_token_law(s.rules, batch.inputs[row : row + 1])[0].tolist()
        end = targets.index(BEGIN) if BEGIN in targets else len(targets) - 1
        told = []
        for at in (0, 1, end):
            shares = ", ".join(f"{p:.3f} for {_say(token)}" for token, p in enumerate(law[at]) if p > 0)
            told.append(f"after position {at} the law is {shares}, and {_say(targets[at])} comes")
        text = shorten(batch.inputs[row].tolist()[: None if s.pack else end + 1], 40)
        return (
            f"The row is {text}, where 0 is BEGIN. The next token is due after each of them:"
            f" {'; '.join(told)}."
        )


def _say(token: int) -> str:
    return "BEGIN" if token == BEGIN else str(token)


def _commonest(grammar: Grammar) -> int:
    counts = grammar.counts()
    return max(range(1, 1 + grammar.terminals), key=lambda terminal: counts[terminal])


@cache
def _counted(settings: LanoSettings) -> Ngrams:
    task = Lano(settings)
    examples = torch.arange(max(1, COUNTED // settings.seq_len))
    batch = task.sample(examples, seed=-1, split="train")
    return Ngrams.counted(batch, order=max(ORDERS), vocab_size=1 + settings.rules.terminals)
