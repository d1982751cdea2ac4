"""Recall across noise."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split, Task
from linbench.tasks.blocks.chance import NEGLIGIBLE, boxes_holding, most_common_share
from linbench.tasks.blocks.scatter import depth_tenths, scatter
from linbench.tasks.blocks.text import zipf
from linbench.tasks.random import Stream

SET, ASK, MARK, INERT, KEYS = range(5)
"""Tokens, of which KEYS is the first key; values follow the keys, words the values."""


class NoiseRecallSettings(Settings):
    """Settings: facts, noise, and their vocabularies."""

    facts: int = Field(4, ge=1, description="facts `SET key value`, no two of the same key")
    asked: int = Field(1, ge=1, description="facts asked for at the end with `ASK key`, each once")
    noise: int = Field(64, ge=0, description="tokens of noise")
    kind: Literal["inert", "zipf", "decoys", "marked"] = Field(
        "marked",
        description=(
            "one token over and over; random words; facts nobody asks for; or these with MARK in the place"
            " of SET"
        ),
    )
    decoy_pool: Literal["facts", "words"] = Field(
        "facts", description="where keys and values of decoys come from: those of facts, or the words"
    )
    depth: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the noise that stands before the facts; null: they are scattered in it",
    )
    keys: int = Field(32, ge=1, description="number of keys")
    values: int = Field(32, ge=2, description="number of values")
    words: int = Field(128, ge=1, description="words that zipf noise is made of")
    exponent: float = Field(
        1.0, ge=0, le=4, description="word i of zipf noise is drawn with weight i^-exponent"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.asked > self.facts:
            raise ValueError(
                f"each fact is asked for once, so facts must be at least {self.asked}, not {self.facts}"
            )
        if self.facts > self.keys:
            raise ValueError(
                f"{self.facts} facts have different keys, so keys must be at least that, not {self.keys}"
            )
        if self.kind in {"decoys", "marked"} and self.decoy_pool == "facts" and self.facts == self.keys:
            raise ValueError(
                f"decoys need keys that no fact has, so keys must be more than the {self.facts} facts, not"
                f" {self.keys}; or use decoy_pool = words"
            )
        return self


class NoiseRecall(Task):
    """After so much that did not matter, which value did this key have?

    A few facts `SET key value` stand in noise, and `ASK key` at the end asks for some of them. Noise is one
    token, random words, or decoys. Decoys are facts of keys that nobody asks for, so all must be kept; or
    they have MARK instead of SET, so a gate could leave them out. It does not tell whether many facts can be
    held at once.

    Layout: noise is one token over and over, words of very different frequencies, or decoys. Answers are not
    inserted.

    Chance: the most common value among the facts, and decoys that look like them.

    linbench's own. The same model is meant to be tested with more noise than it was trained with. One fact in
    inert noise leaves so few different examples, keys * values * (noise + 1), that splits share them; they
    still cannot be learned by heart, since the value is in the example alone.
    """

    name = "noise_recall"
    skill = "filter"
    solved_by = ("suffix", "beside_last", "beside_first")
    Settings = NoiseRecallSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: 4 facts scattered among 32 marked decoys",
            task={"noise": 96, "asked": 4},
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "early": Preset(
            "4 facts, then 256 tokens of marked decoys; how long they last is seen where the noise is 1024 or"
            " 4096",
            task={"noise": 256, "asked": 4, "depth": 0.0},
            model={"form": "controlled"},
        ),
        "words": Preset(
            "4 facts scattered among 256 words",
            task={"noise": 256, "asked": 4, "kind": "zipf"},
            model={"form": "controlled"},
        ),
        "decoys": Preset(
            "4 facts scattered among 85 that nobody asks for",
            task={"noise": 256, "asked": 4, "kind": "decoys"},
            model={"form": "controlled"},
        ),
    }

    settings: NoiseRecallSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both, the same for every kind of noise."""
        size = self._words + self.settings.words
        return IO(size, size)

    @property
    def seq_len(self) -> int:
        """Three tokens for a fact, two for a question, and the noise."""
        return self._text + 2 * self.settings.asked

    @property
    def answers(self) -> int:
        """One per question."""
        return self.settings.asked

    @property
    def _text(self) -> int:
        return 3 * self.settings.facts + self.settings.noise

    @property
    def _values(self) -> int:
        return KEYS + self.settings.keys

    @property
    def _words(self) -> int:
        return self._values + self.settings.values

    @property
    def _unit(self) -> int:
        return 3 if self.settings.kind in {"decoys", "marked"} else 1

    def chance(self) -> float:
        """Return the accuracy of naming the most common value of the facts.

        Decoys count as well if nothing tells them from facts: neither MARK nor words, nor how often their key
        stands or, where `depth` is given, their place. Of a single fact, any value.
        """
        s = self.settings
        alike = s.kind == "decoys" and s.decoy_pool == "facts" and s.depth is None
        others = boxes_holding(1, s.noise // self._unit, s.keys - s.facts) if alike else [1.0]
        if s.facts == len(others) == 1:
            return 1 / s.values
        return sum(
            p * most_common_share(s.facts + count, s.values)
            for count, p in enumerate(others)
            if p > NEGLIGIBLE
        )

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more noise and the same facts."""
        return {"noise": times * self.settings.noise}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        depth: tenths of the noise before the fact. distance: tokens from the fact's key to its question.
        fact: number of facts before it.
        """
        return {"depth": 11, "distance": self.seq_len, "fact": self.settings.facts}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; places are in the order of the questions."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        order = stream.child("keys").shuffle(s.keys)  # facts have the first
        keys = KEYS + order[:, : s.facts]
        values = self._values + stream.child("values").integers(s.facts, below=s.values)
        placed = scatter(
            stream.child("places"), items=s.facts, width=3, hay=s.noise, unit=self._unit, depth=s.depth
        )
        text = placed.write_items(
            self._noise(stream.child("noise"), placed.hay, order),
            torch.stack([torch.full_like(keys, SET), keys, values], dim=2),
        )

        fact = (
            stream.child("asked")
            .permutation(s.facts)(torch.arange(s.asked, device=device))
            .expand(index.shape[0], -1)
        )
        asked = keys.gather(1, fact)
        inputs = torch.cat([text, torch.stack([torch.full_like(asked, ASK), asked], dim=2).flatten(1)], dim=1)
        positions = (self._text + 1 + 2 * torch.arange(s.asked, device=device)).expand_as(asked)
        depth = depth_tenths(placed.before, s.noise // self._unit).gather(1, fact)
        distance = positions - 1 - placed.starts.gather(1, fact)
        return Batch(
            inputs, positions, values.gather(1, fact), {"depth": depth, "distance": distance, "fact": fact}
        )

    def _noise(self, stream: Stream, hay: Tensor, order: Tensor) -> Tensor:
        """Return noise [B, text], also where facts will stand."""
        s, length = self.settings, hay.shape[1]
        if s.kind == "inert":
            return torch.full_like(hay, INERT)
        if s.kind == "zipf":
            return self._words + zipf(stream.child("words"), length, words=s.words, exponent=s.exponent)
        keys, values = stream.child("keys"), stream.child("values")
        if s.decoy_pool == "facts":
            key = KEYS + order.gather(1, s.facts + keys.integers(length, below=s.keys - s.facts))
            value = self._values + values.integers(length, below=s.values)
        else:
            key, value = (self._words + draws.integers(length, below=s.words) for draws in (keys, values))
        part = hay % 3
        decoys = torch.where(
            part == 0, SET if s.kind == "decoys" else MARK, torch.where(part == 1, key, value)
        )
        return decoys.masked_fill(hay < 0, INERT)

    def solve(self, batch: Batch) -> Tensor:
        """Return what follows the key where it follows a SET."""
        told, key, value = (batch.inputs[:, i : self._text - 2 + i] for i in range(3))
        found = [
            ((told == SET) & (key == asked[:, None])).long().argmax(dim=1)
            for asked in batch.inputs.gather(1, batch.positions).T
        ]
        return value.gather(1, torch.stack(found, dim=1))

    def explain(self, batch: Batch, row: int) -> str:
        """Return every question with the fact that answers it, at most twelve."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        due = zip(
            *(x[row].tolist() for x in (batch.positions, batch.targets, batch.slices["distance"])),
            strict=True,
        )
        said = [
            f"at position {at} ends `ASK {tokens[at]}`, and {value} is due, for `SET {tokens[at]} {value}`"
            f" begins at {at - back - 1}"
            for at, value, back in due
        ]
        left = f"; {len(said) - 12} more" if len(said) > 12 else ""
        return (
            f"Of {self.seq_len} tokens {s.noise} are noise ({s.kind}); {s.facts} facts stand in it:"
            f" {'; '.join(said[:12])}{left}."
        )
