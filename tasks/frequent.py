"""Words that stand more often than others."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.error_kinds import first_positions
from linbench.tasks.blocks.exact_match import exact_match
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.random import Stream, constant, inverse

ASK = 0
"""Token of the question; words follow."""


class FrequentSettings(Settings):
    """Settings: how many words there are, and how often they stand."""

    pool: int = Field(32, ge=3, description="word tokens, from which an example draws its words")
    words: int = Field(8, ge=2, description="different words in a sequence")
    common: int = Field(
        1, ge=1, description="words that stand more often; all are due, in the order of first appearance"
    )
    base: int = Field(7, ge=1, description="how often each other word stands")
    gap: int = Field(2, ge=1, description="how much more often a common word stands")

    @property
    def text(self) -> int:
        """Return how many tokens stand before the question."""
        return self.words * self.base + self.common * self.gap

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.words > self.pool:
            raise ValueError(
                f"the words of a sequence differ, so pool must be at least words = {self.words}, not"
                f" {self.pool}"
            )
        if self.common >= self.words:
            raise ValueError(
                f"common = {self.common} leaves no less common word of {self.words} words; use at most"
                f" {self.words - 1}"
            )
        return self


def _quick(about: str, tokens: int = 2_048_000, **task: int) -> Preset:
    return Preset(about, task=task, protocol={"lr": 3e-3, "tokens": tokens})


def _ruler(length: int, words: int, often: int, seldom: int) -> Preset:
    return Preset(
        f"the common words of RULER (2404.06654) in {length} tokens: 10 of {words} words stand {often} times,"
        f" the others {seldom}; the pool and the order of answers are ours",
        task={"pool": 2048, "words": words, "common": 10, "base": seldom, "gap": often - seldom},
    )


class Frequent(Task):
    """Among words that all stand several times, which one stands most often?

    Some words stand a few times more often than the others, in any order, and are due at the end. A layer
    must count all words at once, since no single token and no key tells the answer. With a wide gap half of
    the sequence is enough. It does not tell of recall, or of exact counts.

    Layout: the words in random order, then ASK, at which the common word is due. If there are several, each
    is due after the one before, in the order in which they first appear.

    Chance: any word that was not named yet. In the quick preset naming the first or the last word is right in
    .19 of cases, and naming the commonest of the last half in .42.

    After the tasks of common words in RULER (Hsieh et al. 2024, arXiv:2404.06654). There the gap is so wide
    that half of the sequence shows all of them; here it is a setting, and answers have an order.
    """

    name = "frequent"
    skill = "track"
    solved_by = ("mode", "bag")
    Settings = FrequentSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": _quick(
            "two minutes on a laptop: 8 words, one of which stands 5 times and the others 3", base=3
        ),
        "gap-2": _quick("8 words, one of which stands 9 times and the others 7"),
        "gap-1": _quick("8 words, one of which stands 8 times and the others 7", gap=1),
        "gap-4": _quick("8 words, one of which stands 10 times and the others 6", base=6, gap=4),
        "wide": _quick(
            "16 words, one of which stands 9 times and the others 7", 16_384_000, pool=64, words=16
        ),
        "list": _quick(
            "16 words, four of which stand 9 times and the others 7; all four are due",
            16_384_000,
            pool=64,
            words=16,
            common=4,
        ),
        "ruler-1024": _ruler(1024, 964, 6, 1),
        "ruler-4096": _ruler(4096, 1272, 30, 3),
    }

    settings: FrequentSettings

    @property
    def io(self) -> IO:
        """ASK and the words."""
        return IO(1 + self.settings.pool, 1 + self.settings.pool)

    @property
    def seq_len(self) -> int:
        """Words, ASK, and the answers but the last, which stands nowhere."""
        return self.settings.text + self.settings.common

    @property
    def answers(self) -> int:
        """One for each common word."""
        return self.settings.common

    def chance(self) -> float:
        """Return the accuracy of naming any word that was not named yet."""
        s = self.settings
        return sum(1 / (s.pool - named) for named in range(s.common)) / s.common

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings in which every word stands `times` as often."""
        return {"base": times * self.settings.base, "gap": times * self.settings.gap}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        late: how often the answer stands in the second half of the words. place: of the answer among all.
        """
        return {"late": self.settings.base + self.settings.gap + 1, "place": self.settings.common}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; the common words are the first that are drawn."""
        s, device, often = self.settings, index.device, self.settings.base + self.settings.gap
        stream = Stream.of(index, seed=seed, split=split)
        words = 1 + stream.child("words").permutation(s.pool)(torch.arange(s.words, device=device))
        which = constant(_repeated(often if i < s.common else s.base for i in range(s.words)), device)
        order = stream.child("order").shuffle(s.text)
        text = words.gather(1, which[order])
        stands = inverse(order)[:, : s.common * often].reshape(-1, s.common, often)
        appears = stands.amin(dim=2).argsort(dim=1)
        named = words.gather(1, appears)
        late = (stands >= s.text - s.text // 2).sum(dim=2).gather(1, appears)
        place = torch.arange(s.common, device=device).expand_as(named)
        return Batch(
            torch.cat([text, torch.full_like(named[:, :1], ASK), named[:, :-1]], dim=1),
            s.text + place,
            named,
            {"late": late, "place": place},
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "exact": how often all common words are right."""
        return super().means(batch, prediction) | {
            "exact": exact_match(batch, prediction, length=self.settings.common)
        }

    def solve(self, batch: Batch) -> Tensor:
        """Count all words; of equal counts the word that appeared first comes first."""
        s, text = self.settings, batch.inputs[:, : self.settings.text]
        counts = torch.zeros_like(batch.inputs[:, :1]).expand(-1, 1 + s.pool)
        counts = counts.scatter_add(1, text, torch.ones_like(text))
        first = first_positions(text, 1 + s.pool)
        return (first - counts * (s.text + 1)).argsort(dim=1)[:, : s.common]

    def explain(self, batch: Batch, row: int) -> str:
        """Return the words, with how often each stands, and those that are due."""
        s, counts = self.settings, dict[int, int]()
        text = batch.inputs[row, : s.text].tolist()
        for word in text:
            counts[word] = counts.get(word, 0) + 1
        told = join_examples([f"{word} {count} times" for word, count in counts.items()], 12, ", ")
        due = ", then ".join(map(str, batch.targets[row].tolist()))
        return (
            f"The words are {join_examples(list(map(str, text)), 60, ' ')}. In the order of appearance,"
            f" {told}. From position {s.text} on, with token ASK = {ASK}, the answer is {due}."
        )


def _repeated(counts: Iterable[int]) -> tuple[int, ...]:
    """Return 0, 1, ... each as often as its count says."""
    return tuple(number for number, count in enumerate(counts) for _ in range(count))
