"""Memory capacity: how many associations fit, with key and value in one token."""

from math import ceil
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_share, most_written_share
from linbench.tasks.blocks.error_kinds import weights_on_old_values
from linbench.tasks.random import Stream


class CapacitySettings(Settings):
    """Settings: S keys, written once each, or twice on average."""

    keys: int = Field(32, ge=2, description="S, the keys there are, and the queries")
    values: int | None = Field(None, ge=2, description="values there are; null: as many as keys")
    writes: Literal["unique", "replaced"] = Field(
        "unique",
        description=(
            "unique: S writes, each of another key (setting 1); replaced: 2 S writes, each of any key, the"
            " last value is due (setting 2)"
        ),
    )
    delay: int = Field(0, ge=0, description="empty tokens between the last write and the first query")
    loss: Literal["tokens", "squared"] = Field(
        "tokens",
        description=(
            "what comes out: logits of values, or (squared, as published) a vector beside one-hot values"
        ),
    )


STEPS, EVERY, SOLVED = 100_000, 100, 0.001
"""Published training: steps at most, steps between evaluations, and the loss at which it stops.

The loss is half the squared error of a one-hot value.
"""


def _wide_enough(size: int) -> dict[str, Any]:
    """Return settings of a layer with published keys of 64 dimensions and room for `size` values."""
    return {
        "layers": 1,
        "heads": 1,
        "head_dim": 64,
        "d_model": 64 * ceil(2 * size / 64),
        "expand_k": 1.0,
        "expand_v": float(ceil(size / 64)),
    }


def _published(writes: str, size: int) -> Preset:
    length = size + (size if writes == "unique" else 2 * size)
    about = (
        f"{size} keys, each written once"
        if writes == "unique"
        else f"{2 * size} writes to {size} keys, drawn with replacement"
    )
    return Preset(
        f"{about}; keys of 64 dimensions; training as published, but for its patience",
        task={"keys": size, "writes": writes, "loss": "squared"},
        model=_wide_enough(size),
        protocol={
            "tokens": STEPS * 32 * length,
            "batch_size": 32,
            "lr": 1e-3,
            "schedule": "constant",
            "warmup": 0.0,
            "weight_decay": 0.0,
            "beta2": 0.999,
            "clip": None,
            "stop_at": 1 - 2 * SOLVED,
            "evaluations": STEPS // EVERY,
            "validation_examples": 20,
        },
    )


class Capacity(Task):
    """If key and value stand in one token, which value was last written to this key?

    All writes come first, then as many queries as there are keys. With unique keys only the number of
    associations makes the task hard. With keys drawn with replacement, old values must also be replaced. The
    suite of the same name (`linbench sweep capacity`) asks mqar instead. It does not tell whether a layer can
    bind neighbouring tokens, or leave out what does not matter.

    Layout: every token has two ids, whose embeddings are summed. A write is a key and a value, a query a key
    and no value (0). Each query is the key of a randomly chosen write, no write twice. If keys are drawn with
    replacement, a query asks for the last of several values: the slice `writes` is how often the key was
    written, `age` how many writes came after. The scores "weight_on_old_0" and "weight_on_old_1" are how much
    of a key's last value, and of the one before, is in the answer: whether the old value is replaced or
    blended with the new one. No convolution is needed to bind a value to its key, and none helps.

    Chance: naming the value that most queries ask for.

    Schlag et al. 2021, arXiv:2102.11174, with the presets schlag-1 and schlag-2 for the two published
    settings. The published loss is half the squared error of a one-hot value, which is (1 - accuracy) / 2
    here if loss is squared. Training minimises its mean over values instead, which is the same up to a factor
    and makes hardly a difference to Adam. Training stops at 0.001; the published rule, to stop also after ten
    evaluations without progress, is left out. Cross-entropy and delay are linbench's own.

    If loss is squared, a model must be as wide as there are values, and so must the values that its memory
    holds: W dimensions can represent at most a share of W / values.
    """

    name = "capacity"
    version = 2
    skill = "remember"
    Settings = CapacitySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "32 keys written once, one layer, for a laptop",
            model={"layers": 1},
            protocol={"tokens": 2_048_000, "lr": 3e-3},
        ),
        "quick-replaced": Preset(
            "64 writes to 32 keys, one layer, for a laptop",
            task={"writes": "replaced"},
            model={"layers": 1},
            protocol={"tokens": 2_048_000, "lr": 3e-3},
        ),
        **{f"schlag-1-{size}": _published("unique", size) for size in (60, 200, 600)},
        **{f"schlag-2-{size}": _published("replaced", size) for size in (20, 100, 200)},
    }

    settings: CapacitySettings

    @property
    def io(self) -> IO:
        """Inputs: 0 is none, then keys, then values. Answers: values, from 0 on."""
        vocab = 1 + self.settings.keys + self._values
        return (
            IO(vocab, self._values) if self.settings.loss == "tokens" else IO(vocab, None, d_out=self._values)
        )

    @property
    def _values(self) -> int:
        return self.settings.values or self.settings.keys

    @property
    def _writes(self) -> int:
        return self.settings.keys * (1 if self.settings.writes == "unique" else 2)

    @property
    def seq_len(self) -> int:
        """Writes, delay and queries."""
        return self._writes + self.settings.delay + self.settings.keys

    @property
    def answers(self) -> int:
        """One per query."""
        return self.settings.keys

    def chance(self) -> float:
        """Return the accuracy of naming the value that most queries ask for.

        Queries are keys of randomly chosen writes, whose values are known. Where loss is squared it is the
        share that the mean over all writes explains: how often two of them lead to the same value.
        """
        s = self.settings
        if s.loss == "squared":
            same_key = (
                1 / s.keys if s.writes == "unique" else 1 / self._writes + (1 - 1 / self._writes) / s.keys
            )
            return same_key + (1 - same_key) / self._values
        return (
            most_common_share(s.keys, self._values)
            if s.writes == "unique"
            else most_written_share(s.keys, self._values, self._writes)
        )

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with a longer delay."""
        return {"delay": self.settings.delay + (times - 1) * self.seq_len}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        writes: all writes to the key. age: writes after the one that is asked for.
        """
        return {"writes": self._writes + 1, "age": self._writes}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; queries stand in the order of their places."""
        s, device, rows = self.settings, index.device, len(index)
        stream = Stream.of(index, seed=seed, split=split)
        keys = stream.child("keys")
        key = keys.shuffle(s.keys) if s.writes == "unique" else keys.integers(self._writes, below=s.keys)
        value = stream.child("values").integers(self._writes, below=self._values)
        time = torch.arange(self._writes, device=device).expand(rows, -1)
        none = torch.zeros(rows, s.keys, dtype=torch.int64, device=device)
        last = none.scatter_reduce(1, key, time, "amax")
        count = none.scatter_add(1, key, torch.ones_like(key))

        asked = key.gather(
            1, stream.child("queries").permutation(self._writes)(torch.arange(s.keys, device=device))
        )
        tells = torch.stack([1 + key, 1 + s.keys + value], dim=2)
        asks = torch.stack([1 + asked, none], dim=2)
        delay = torch.zeros(rows, s.delay, 2, dtype=torch.int64, device=device)
        at = last.gather(1, asked)
        answer = value.gather(1, at)
        targets = answer if s.loss == "tokens" else self._vectors(answer)
        positions = self._writes + s.delay + torch.arange(s.keys, device=device).expand(rows, -1)
        slices = {"writes": count.gather(1, asked), "age": self._writes - 1 - at}
        return Batch(torch.cat([tells, delay, asks], dim=1), positions, targets, slices)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy and how the answer weighs the values that its key was given.

        The weights are probabilities, or the components of the answered vector where the values have their
        ones.
        """
        shares = prediction.answers if self.settings.loss == "squared" else prediction.logits
        found = super().means(batch, prediction)
        if shares is None:
            return found
        return found | weights_on_old_values(
            self._history(batch), shares if self.settings.loss == "squared" else shares.softmax(dim=2)
        )

    def _history(self, batch: Batch) -> Tensor:
        """Return the last value of each key that is asked for, and a different earlier one: [B, N, 2].

        Without an earlier one it is `IGNORE`. Where keys are written once it is [B, N, 1].
        """
        key, value = batch.inputs.unbind(2)
        asked, number = key.gather(1, batch.positions), value - 1 - self.settings.keys
        time = torch.arange(key.shape[1], device=key.device).where(value > 0, -1)
        found: list[Tensor] = []
        for _ in range(1 if self.settings.writes == "unique" else 2):
            latest = torch.full_like(key[:, : self.settings.keys + 1], -1).scatter_reduce(
                1, key, time, "amax"
            )
            at = latest.gather(1, asked)
            found.append(number.gather(1, at.clamp(min=0)).where(at >= 0, IGNORE))
            time = time.where(time < latest.gather(1, key), -1)
        return torch.stack([found[0], *(old.where(old != found[0], IGNORE) for old in found[1:])], dim=2)

    def solve(self, batch: Batch) -> Tensor:
        """Keep a table of keys, token by token."""
        s = self.settings
        key, value = batch.inputs.unbind(2)
        table, found = torch.zeros_like(key[:, : s.keys + 1]), []
        for t in range(key.shape[1]):
            at = key[:, t : t + 1]
            held = table.gather(1, at)
            held = torch.where(value[:, t : t + 1] > 0, value[:, t : t + 1] - 1 - s.keys, held)
            table.scatter_(1, at, held)
            found.append(held)
        answers = torch.cat(found, dim=1).gather(1, batch.positions)
        return answers if s.loss == "tokens" else self._vectors(answers)

    def _vectors(self, values: Tensor) -> Tensor:
        """Return values [B, A] as unit vectors [B, A, values].

        torch's own one-hot vectors have 64 bits before they have 32.
        """
        return torch.zeros(*values.shape, self._values, device=values.device).scatter_(
            2, values[:, :, None], 1
        )

    def explain(self, batch: Batch, row: int) -> str:
        """Return the first writes and the first queries."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        answers = (
            batch.targets[row].tolist() if s.loss == "tokens" else batch.targets[row].argmax(dim=1).tolist()
        )
        told = ", ".join(
            f"key {key} gets value {value - 1 - s.keys}" for key, value in tokens[: min(self._writes, 24)]
        )
        more = f", and so on for {self._writes} writes" * (self._writes > 24)
        due = list(zip(batch.positions[row].tolist(), answers, strict=True))[:8]
        asked = "; ".join(
            f"at position {at} key {tokens[at][0]} is asked for, the answer there is {answer}"
            for at, answer in due
        )
        return (
            f"One write a token: {told}{more}. Then"
            f" {asked}{', and so on for ' + str(s.keys) + ' queries' if s.keys > 8 else ''}."
        )
