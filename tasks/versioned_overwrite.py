"""Keys whose values carry versions and arrive in any order."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.error_kinds import error_kinds, first_positions
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.statements import statement_length, word_position, write_statement
from linbench.tasks.blocks.timeline import (
    log2_distance,
    log2_distance_size,
    place_statements,
    split_stream,
)
from linbench.tasks.random import Stream, constant, inverse

PAD, ASK, BAD, FIRST_VERSION = range(4)
"""Tokens; keys, values and noise follow the versions."""

WRITE, RETRACTED = "key version value", "key version value BAD"
"""Words of a write, and of one that does not count."""


class VersionedOverwriteSettings(Settings):
    """Settings: how many keys and versions there are, what is asked, and what does not count."""

    seq_len: int = Field(
        48, ge=4, description="length of a sequence; what statements leave of it is filler, between them"
    )
    variables: int = Field(
        4, ge=2, description="keys that are written, each of which is asked for at the end"
    )
    writes: int = Field(2, ge=2, description="writes of each key, in any order and each of another version")
    versions: int = Field(9, ge=2, description="version tokens, of which each key draws its own")
    ask: Literal["highest", "version"] = Field(
        "highest",
        description="what is asked: the value of a key's highest version; or that of a version that is named",
    )
    retracted: int = Field(
        0, ge=0, description="writes of each key that are followed by BAD, and so do not count"
    )
    keys: int = Field(32, ge=2, description="key tokens, from which an example draws its keys")
    values: int = Field(32, ge=2, description="value tokens; all values of an example differ")
    noises: int = Field(0, ge=0, description="noise tokens that filler is drawn from; 0: filler is padding")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.variables > self.keys:
            raise ValueError(
                f"{self.variables} variables have different keys, so keys must be at least {self.variables},"
                f" not {self.keys}"
            )
        if self.writes > self.versions:
            raise ValueError(
                f"the writes of a key have different versions, so versions must be at least"
                f" {self.writes}, not {self.versions}"
            )
        if self.writes - self.retracted < 1:
            raise ValueError(
                f"a write of each key must count, so retracted must be at most {self.writes - 1}, not"
                f" {self.retracted}"
            )
        if self.all_writes > self.values:
            raise ValueError(
                f"{self.all_writes} writes have different values, so values must be at least"
                f" {self.all_writes}, not {self.values}"
            )
        if self.needed > self.seq_len:
            raise ValueError(
                f"{self.all_writes} writes and {self.variables} questions take {self.needed} places, so"
                f" seq_len must be at least {self.needed}, not {self.seq_len}"
            )
        return self

    @property
    def all_writes(self) -> int:
        """Return how often any key is written."""
        return self.variables * self.writes

    @property
    def question(self) -> str:
        """Return the words of a question."""
        return "ASK key version" if self.ask == "version" else "ASK key"

    @property
    def needed(self) -> int:
        """Return how many places all statements take."""
        each = self.writes * statement_length(WRITE) + self.retracted + statement_length(self.question)
        return self.variables * each

    @property
    def first_key(self) -> int:
        """Return the first token of keys, after the versions."""
        return FIRST_VERSION + self.versions

    @property
    def first_value(self) -> int:
        """Return the first token of values, after the keys."""
        return self.first_key + self.keys

    @property
    def first_noise(self) -> int:
        """Return the first token of noise, after the values."""
        return self.first_value + self.values

    @property
    def vocab_size(self) -> int:
        """Return the number of all tokens."""
        return self.first_noise + self.noises


def _preset(about: str, steps: int, **task: Any) -> Preset:
    return Preset(
        about,
        task=task,
        model={"layers": 2, "d_model": 128, "heads": 2},
        protocol={"batch_size": 256, "tokens": steps * 256 * task["seq_len"], "lr": 3e-3},
    )


_BASE = {"seq_len": 256, "variables": 8, "writes": 4, "values": 64, "noises": 64}


class VersionedOverwrite(Task):
    """After writes that arrive in any order, which value has a key's highest version?

    Each key is written several times, every time with a version, and old versions often arrive late. A layer
    must compare what it holds with what arrives, since whoever replaces the value at every write is right by
    luck only. It does not tell of overwriting in order of time, which `variable_overwrite` asks for.

    Layout: a write is `key version value`. Writes arrive in uniform order with filler between, and versions
    are uniform without repeats. Then each key is asked for, `ASK key`, or `ASK key version` where a version
    is named. A retracted write is followed by BAD and does not count.

    Chance: naming the answer of any key. Where a version is named, only keys that have it come into question.
    The value that a key was given last is right in 1 / writes of cases: in half of them in the quick preset,
    and in a quarter in the others.

    linbench's own, after the cases named overwrite, version and anti-pollution in arXiv:2606.28876, whose
    generator is not published.
    """

    name = "versioned_overwrite"
    skill = "overwrite"
    solved_by = ("suffix",)
    Settings = VersionedOverwriteSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "two minutes on a laptop: 4 keys, written twice each in 48 tokens",
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "base": _preset("8 keys, written 4 times each; 144 of 256 tokens are noise", 5_000, **_BASE),
        "retracted": _preset(
            "base, and one of the 4 writes of each key does not count", 5_000, **_BASE, retracted=1
        ),
        "by-version": _preset(
            "base, and the version is named; all keys have the same four",
            5_000,
            **_BASE,
            ask="version",
            versions=4,
        ),
    }

    settings: VersionedOverwriteSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both."""
        return IO(self.settings.vocab_size, self.settings.vocab_size)

    @property
    def answers(self) -> int:
        """One for each key."""
        return self.settings.variables

    def chance(self) -> float:
        """Return the accuracy of naming the value of any key that the question may be about.

        A named version rules out keys that have no such version: the others each have it with probability
        (writes - retracted) / versions.
        """
        s = self.settings
        share = (s.writes - s.retracted) / s.versions if s.ask == "version" else 1
        return (1 - (1 - share) ** s.variables) / (s.variables * share)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        arrived_later: writes of the same key after the one that is due. version: of the answer, from 0 on.
        doublings: base-2 logarithm of the distance in tokens from the answer to the question, 0 for 1, 1 for
        2 and 3, 2 for 4 to 7, and so on.
        """
        s = self.settings
        return {
            "arrived_later": s.writes,
            "version": s.versions,
            "doublings": log2_distance_size(s.seq_len),
        }

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; writes are numbered key by key, of each key the retracted ones first."""
        s, device, B = self.settings, index.device, len(index)
        V, M, shape = s.variables, s.writes, (len(index), s.variables, s.writes)
        stream = Stream.of(index, seed=seed, split=split)
        every = torch.arange(s.all_writes, device=device)
        key = s.first_key + stream.child("keys").permutation(s.keys)(every[:V])
        value = s.first_value + stream.child("values").permutation(s.values)(every)
        version = split_stream(stream.child("versions"), V).permutation(s.versions)(every[:M]).view(shape)

        order = stream.child("order").shuffle(s.all_writes)  # in which writes arrive
        arrival = inverse(order)
        lengths = constant(
            tuple(statement_length(RETRACTED if w % M < s.retracted else WRITE) for w in range(len(every))),
            device,
        )[order]
        asking = torch.full((B, V), statement_length(s.question), device=device)
        starts = place_statements(
            stream.child("places"), torch.cat([lengths, asking], dim=1), s.seq_len - s.needed
        )
        written, questions = starts[:, : s.all_writes].gather(1, arrival), starts[:, s.all_writes :]

        counted = every[:M] >= s.retracted
        if s.ask == "highest":
            chosen = version.masked_fill(~counted, -1).argmax(dim=2)
        else:
            chosen = s.retracted + stream.child("chosen").integers(V, below=M - s.retracted)
        asked = stream.child("questions").shuffle(V)
        due = (M * every[:V] + chosen).gather(1, asked)

        ids = torch.full((B, s.seq_len), PAD, device=device)
        if s.noises:
            ids = s.first_noise + stream.child("filler").integers(s.seq_len, below=s.noises)
        words = {
            "key": key.repeat_interleave(M, dim=1),
            "version": FIRST_VERSION + version.flatten(1),
            "value": value,
        }
        write_statement(ids, WRITE, written, words)
        bad = written.view(shape)[:, :, : s.retracted].flatten(1)
        write_statement(ids, ". . . BAD", bad, {"BAD": BAD})
        write_statement(
            ids,
            s.question,
            questions,
            {"ASK": ASK, "key": key.gather(1, asked), "version": words["version"].gather(1, due)},
        )

        positions = questions + statement_length(s.question) - 1
        own = (M * asked[:, :, None] + every[:M]).flatten(1)  # writes of the key
        when, held = (x.gather(1, own).view(shape) for x in (arrival, value))
        newest = when.argsort(dim=2, descending=True)
        return Batch(
            ids,
            positions,
            value.gather(1, due),
            {
                "arrived_later": (when > arrival.gather(1, due)[:, :, None]).sum(dim=2),
                "version": version.flatten(1).gather(1, due),
                "doublings": log2_distance(
                    positions - word_position(WRITE, "value") - written.gather(1, due)
                ),
            },
            {"history": held.gather(2, newest), "counted": newest >= s.retracted},
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy and kinds of errors, each as a share of all answers.

        stale_arrival: the value of the key that arrived last. other_version: another of its values.
        retracted: one of its values that do not count, if there are any. cross: a value of another key.
        alien: anything else.
        """
        s, answers = self.settings, prediction.answers
        seen = first_positions(batch.inputs, s.vocab_size).gather(1, answers) < batch.positions
        found = error_kinds(
            batch, prediction, seen=seen & (answers >= s.first_value) & (answers < s.first_noise)
        )
        history, counted = batch.facts["history"], batch.facts["counted"]
        last = history.gather(2, counted.long().argmax(dim=2, keepdim=True))[:, :, 0]
        stale, retracted = found["stale"].value, ((history == answers[:, :, None]) & ~counted).any(dim=2)
        kinds = {
            "stale_arrival": stale & (answers == last),
            "other_version": stale & (answers != last) & ~retracted,
            "retracted": retracted,
            "cross": found["cross"].value,
            "alien": found["alien"].value,
        }
        if not s.retracted:
            del kinds["retracted"]
        return super().means(batch, prediction) | {name: WeightedMean(x) for name, x in kinds.items()}

    def _read(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return where a write that counts begins, its key, its version and its value: all [B, T]."""
        s = self.settings
        version, value, after = (inputs.roll(-n, dims=1) for n in (1, 2, 3))
        wrote = (inputs >= s.first_key) & (inputs < s.first_value) & (value >= s.first_value)
        wrote &= (value < s.first_noise) & (version >= FIRST_VERSION) & (version < s.first_key)
        return wrote & (after != BAD), inputs, version, value

    def solve(self, batch: Batch) -> Tensor:
        """Return the value of the key's write that counts and has the highest version, or the one named."""
        counts, key, version, value = self._read(batch.inputs)
        time = torch.arange(self.seq_len, device=key.device)
        named = int(self.settings.ask == "version")
        answers = []
        for at in torch.split(batch.positions, 1, dim=1):
            own = counts & (key == batch.inputs.gather(1, at - named)) & (time < at)
            if named:
                own &= version == batch.inputs.gather(1, at)
            answers.append(value.gather(1, (version * own).argmax(dim=1, keepdim=True)))
        return torch.cat(answers, dim=1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the writes in the order of arrival, then the questions with their answers."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        counts, *words = (x[row].tolist() for x in self._read(batch.inputs))
        told = [
            f"{key}={value} (version {version - FIRST_VERSION + 1})"
            for counted, key, version, value in zip(counts, *words, strict=True)
            if counted
        ]
        named = int(s.ask == "version")
        asked = [
            f"at position {at} for {tokens[at - named]}"
            f"{f', version {tokens[at] - FIRST_VERSION + 1}' if named else ''}: {target}"
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        ]
        bad = f"; {s.variables * s.retracted} others do not count" if s.retracted else ""
        return (
            f"Written is, in the order of arrival, {join_examples(told, 24, ', ')}{bad}. Asked is"
            f" {join_examples(asked, 12)}. All else is filler."
        )
