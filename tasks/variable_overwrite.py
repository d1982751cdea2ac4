"""Variables that are given one value after another."""

from collections import Counter
from typing import Any, ClassVar

import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.chance import most_common_share
from linbench.tasks.blocks.error_kinds import (
    cluster_kinds,
    error_kinds,
    first_positions,
    in_top_of_history,
    target_margin,
    weights_on_old_values,
)
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.overwriting import FIRST_KEY, PAD, SEP, SET, VariableOverwriteSettings
from linbench.tasks.blocks.reading_writes import Reading, answer_questions, read_writes
from linbench.tasks.blocks.statements import statement_length, word_position, write_statement
from linbench.tasks.blocks.timeline import (
    log2_distance,
    log2_distance_size,
    order_statements,
    place_statements,
)
from linbench.tasks.blocks.write_schedule import distinct_variables, draw_values, schedule_writes
from linbench.tasks.random import Stream, constant, inverse

_EASY = {"variables": 4, "overwrites": (0, 1, 2), "seq_len": 64}
_BASE = {"variables": 8, "overwrites": (0, 1, 2, 4), "noise": 0.25, "seq_len": 256}
_HARD = {"variables": 16, "overwrites": (0, 1, 2, 4, 8), "noise": 0.5, "seq_len": 1024}
_PARTS = {
    "parts": 2,
    "variables": 8,
    "overwrites": (0, 1),
    "keys": 16,
    "values": 16,
    "noises": 0,
    "seq_len": 72,
}
_MODEL = {"layers": 2, "d_model": 128, "heads": 2}


def _preset(about: str, steps: int, task: dict[str, Any], **model: int) -> Preset:
    return Preset(
        about,
        task=task,
        model={**_MODEL, **model},
        protocol={"batch_size": 256, "tokens": steps * 256 * task["seq_len"], "lr": 3e-3},
    )


def _composite(shared: int, about: str) -> Preset:
    return Preset(
        about,
        task={**_PARTS, "shared": shared},
        model={"heads": 2, "gated_deltanet.output_gate": "none"},
        protocol={"lr": 3e-3, "batch_size": 8, "tokens": 2_457_600},
    )


class VariableOverwrite(Task):
    """After many writes to a key, what is the last value that it was given?

    Some keys are written once and others many times more, in any order and with filler between. Then each is
    asked for. A memory must replace what it holds. Its mistakes are sorted into older values of the key
    (stale), values of another key (cross) and values that do not occur (alien). It does not tell how much a
    layer can hold; the controls do.

    Layout: a write is `key value`, a question `ASK key`. Filler stands anywhere between statements and after
    each question, so no answer is ever among the inputs. Some presets are controls: as many writes without
    repeats, a question for an older value, or questions for every value. With resets, everything before the
    last reset can be forgotten at once, which a gate does and a delta rule alone does not.

    With `parts` above 1, keys are several tokens that are alike within clusters, as in `mqar`, and a write to
    one must not change what near ones hold. Answers of another key (cross) are of the right cluster (near,
    near_stale if older) or not (far); `cluster_chance` is the score of naming what any key of the cluster
    holds.

    Chance: naming what the key that was written first now holds.

    linbench's own, after the forgetting MQAR of Zoology (arXiv:2312.04927), n-back recall in PaTH
    (arXiv:2505.16381) and PI-LLM (github.com/zhuangziGiantfish/Unable-to-Forget). Unlike these it has every
    count of overwrites in every example, never gives a key a value that it had before, and says where errors
    come from. The amount of noise follows from seq_len, since every place that no statement takes is filler.
    Inert noise statements only move filler to where the writes are; decoys and mentions take its place.

    On reading the scores: a key that is overwritten more often was written more recently, unless the schedule
    is sequential, so look at doublings beside overwrites. A gate for each channel overwrites as a delta rule
    does while the keys fit into the channels, so statements about decay need more variables than a head has
    key dimensions.
    """

    name = "variable_overwrite"
    skill = "overwrite"
    Settings = VariableOverwriteSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: 4 variables, overwritten 0, 1, 2 and 4 times in 64 tokens; controlled form",
            task={"keys": 32, "noises": 0},
            model={"heads": 4, "head_dim": 12, "form": "controlled"},
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "easy": _preset("4 variables, up to 2 overwrites", 5_000, _EASY),
        "base": _preset("8 variables, up to 4 overwrites; three tokens of four are noise", 5_000, _BASE),
        "hard": _preset(
            "16 variables, up to 8 overwrites; 870 tokens of 1024 are noise, most of them between writes",
            10_000,
            _HARD,
        ),
        "hard-4096": _preset(
            "hard, of keys and values too many to learn by heart",
            10_000,
            {**_HARD, "keys": 4096, "values": 4096},
        ),
        "many": _preset(
            "up to 32 overwrites, by doublings",
            5_000,
            {**_BASE, "variables": 7, "overwrites": (0, 1, 2, 4, 8, 16, 32), "values": 1024, "seq_len": 512},
        ),
        "fused": _preset(
            "base with key and value in one token, which needs no convolution",
            5_000,
            {**_BASE, "statement": "fused", "seq_len": 128},
        ),
        "reset": _preset(
            "64 variables, of which a RESET makes all but the last 8 irrelevant",
            5_000,
            {**_BASE, "reset": 7, "keys": 256, "values": 256, "seq_len": 512},
        ),
        "no-repeat": _preset(
            "control of base: as many writes, each of another key",
            5_000,
            {**_BASE, "variables": 22, "overwrites": (0,)},
        ),
        "n-back": _preset(
            "control of base: the value before the last", 5_000, {**_BASE, "control": "n_back"}
        ),
        "return-all": _preset(
            "control of base: every value that a key was given, by marks that say how far back",
            5_000,
            {**_BASE, "control": "return_all"},
        ),
        "path-n-back": _preset(
            "2-back recall of the size in PaTH: 32 variables in 768 tokens; how often each is written is not"
            " published, here 4 times",
            5_000,
            {"variables": 32, "overwrites": (3,), "control": "n_back", "values": 256, "seq_len": 768},
            d_model=256,
        ),
        "pi-llm": _preset(
            "the 46 keys of PI-LLM, each updated 8 times; there 2 to 400 times",
            5_000,
            {"variables": 46, "overwrites": (8,), "values": 512, "seq_len": 1024},
        ),
        **{
            f"pi-{updates}": _preset(
                f"the 46 keys of PI-LLM, each updated {updates} times, without filler between writes; to"
                " compare accuracy and `stale` over the number of updates",
                5_000,
                {"variables": 46, "overwrites": (updates,), "values": 1152, "seq_len": 92 * updates + 230},
            )
            for updates in (2, 3, 4, 6, 8, 12, 17, 24)
        },
        "composite-2-0": _composite(0, "control of composite-2-1: no two keys share a token"),
        "composite-2-1": _composite(
            1,
            "two minutes on a laptop: 8 keys of 2 tokens, clusters of 4 share the first; half of the keys get"
            " a second value",
        ),
    }

    settings: VariableOverwriteSettings

    @property
    def solved_by(self) -> tuple[str, ...]:
        """Finding what stood last beside a token of a key, or first if that is last, unless keys share it."""
        once = ("beside_first",) if self.settings.overwrites == (0,) else ()
        return ("suffix",) if self.settings.shared else ("suffix", "beside_last", *once)

    @property
    def answers(self) -> int:
        """Questions between writes, then those at the end."""
        return self.settings.counts["ask"]

    def chance(self) -> float:
        """Return the accuracy of naming what the key that was written first now holds: 1 / variables.

        Between writes it is one over the variables written so far. The key that was written first is not a
        decoy. Where a mark says how far back, there is one such guess for each mark. Where values repeat, it
        is the most common of those that may be asked for.
        """
        s = self.settings

        def share(variables: int) -> float:
            return (
                1 / variables if s.writes + s.decoys <= s.values else most_common_share(variables, s.values)
            )

        right = sum(count * share(count) for count in Counter(back for _, back in s.asked).values())
        if s.midstream:
            there = distinct_variables(s.writes_of, s.schedule)[1 : s.writes, 1:].mean(dim=0)
            right += s.midstream * sum(
                p * share(variables) for variables, p in enumerate(there.tolist(), start=1)
            )
        return right / self.answers

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        overwrites: of the key, until it is asked for. doublings: base-2 logarithm of the distance in tokens
        from the write that decides to the question, 0 for 1, 1 for 2 and 3, 2 for 4 to 7, and so on.
        writes_between: writes of other keys between the two.
        """
        s = self.settings
        return {
            "overwrites": max(s.overwrites) + 1,
            "doublings": log2_distance_size(s.seq_len),
            "writes_between": s.writes + s.decoys,
        }

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        Statements are numbered: writes in the order of time, resets, noise, questions between writes,
        questions at the end.
        """
        s, device, B = self.settings, index.device, len(index)
        stream = Stream.of(index, seed=seed, split=split)
        W, law = s.writes, s.key_law
        writes = schedule_writes(stream.child("writes"), s.writes_of, rounds=s.reset + 1, schedule=s.schedule)
        value = s.first_value + draw_values(stream.child("values"), writes, values=s.values, more=s.decoys)
        key_order = stream.child("keys").permutation(s.keys)
        cells = law.cells(stream.child("cells"))
        keys = law.spell(cells, FIRST_KEY + key_order(torch.arange(law.tokens, device=device)))

        # by the number of the write that they come after
        resets = torch.arange(1, s.reset + 1, device=device) * (W // (s.reset + 1)) - 1
        noise = stream.child("noise").integers(s.noise_statements, below=W)
        midstream = stream.child("midstream").integers(s.midstream, below=W - 1)
        others = torch.cat([resets.expand(B, -1), noise, midstream], dim=1)
        order = order_statements(stream.child("questions"), others, writes=W, questions=len(s.asked))
        kinds = tuple(kind for kind, count in s.counts.items() for _ in range(count))
        lengths = constant(tuple(statement_length(s.text(kind), width=s.width) for kind in kinds), device)
        number_at = inverse(order)
        starts = place_statements(stream.child("places"), lengths[order], s.seq_len - s.needed).gather(
            1, number_at
        )
        written, cleared, disturbed, asking = torch.split(starts, list(s.counts.values()), dim=1)

        asked = torch.cat(
            [
                writes.draw_written(stream.child("asked"), midstream),
                constant(tuple(v for v, _ in s.asked), device).expand(B, -1),
            ],
            dim=1,
        )
        back = constant((0,) * s.midstream + tuple(back for _, back in s.asked), device).expand(B, -1)
        until = torch.cat([midstream, torch.full((B, len(s.asked)), W - 1, device=device)], dim=1)
        held = writes.writes_held(asked, until)
        facts = {"history": _values(value, held)}
        if s.parts > 1:
            near = law.near(cells).take_along_dim(asked[:, :, None], dim=1)
            until = until[:, :, None].expand_as(near)
            of_near = writes.writes_held(near.flatten(1), until.flatten(1))
            facts["near"] = _values(value, of_near).view(*near.shape, -1)
        decided = held.gather(2, back[:, :, None])[:, :, 0]
        told = (
            constant(tuple(int(kind in {"write", "decoy"}) for kind in kinds), device)[order]
            .cumsum(dim=1)
            .gather(1, number_at)
        )

        ids = self._filler(stream.child("filler"))
        self._say(ids, "write", written, key=_of(keys, writes.variable), value=value[:, :W])
        self._say(ids, "reset", cleared)
        if s.decoys:
            other = stream.child("named").integers(s.decoys * s.parts, below=s.keys - law.tokens)
            named = FIRST_KEY + key_order(law.tokens + other).view(B, s.decoys, s.parts)
        else:
            named = _of(keys, stream.child("named").integers(s.noise_statements, below=law.keys))
        self._say(ids, s.noise_kind, disturbed, key=named, value=value[:, W:])
        self._say(
            ids,
            "ask",
            asking,
            key=_of(keys, asked),
            mark=constant(s.marks, device)[back.clamp(max=len(s.marks) - 1)],
        )
        at_ask, at_write = (
            word_position(s.text(kind), s.key_words[-1], width=s.width) for kind in ("ask", "write")
        )
        positions = asking + at_ask
        slices = {
            "overwrites": (held >= 0).sum(dim=2) - 1,
            "doublings": log2_distance(positions - at_write - written.gather(1, decided)),
            "writes_between": told[:, -self.answers :] - told.gather(1, decided) - back,
        }
        targets = facts["history"].gather(2, back[:, :, None])[:, :, 0]
        return Batch(
            ids if s.width == 1 else ids.view(B, s.seq_len, s.width), positions, targets, slices, facts
        )

    def _filler(self, stream: Stream) -> Tensor:
        s, count = self.settings, self.settings.seq_len * self.settings.width
        if s.noises:
            return s.first_noise + stream.integers(count, below=s.noises)
        return torch.full((len(stream.key), count), PAD, device=stream.key.device)

    def _say(
        self, ids: Tensor, kind: str, starts: Tensor, *, key: Tensor | None = None, **words: Tensor
    ) -> None:
        s = self.settings
        if key is not None:
            words |= dict(zip(s.key_words, key.unbind(dim=2), strict=True))
        write_statement(
            ids,
            s.text(kind),
            starts,
            {"PAD": PAD, "SET": SET, "SEP": SEP, "RESET": s.reset_mark, **words},
            width=s.width,
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy and what wrong answers are (`error_kinds`).

        stale_excess: how many wrong answers are stale, over how many would be, if they were any other value
        that was seen. informed_chance: the accuracy of naming any such value. From logits also the
        probability of every older value, the margin over them, and with `return_all` whether the target is
        among as many likeliest values as the key was given.
        """
        s = self.settings
        values = first_positions(batch.inputs[:, :, -1] if s.width > 1 else batch.inputs, s.vocab_size)[
            :, s.first_value : s.first_noise
        ]
        number = prediction.answers - s.first_value
        seen = values.gather(1, number.clamp(0, s.values - 1)) < batch.positions
        found = error_kinds(batch, prediction, seen=seen & (number >= 0) & (number < s.values))
        if s.control == "none":
            del found["stale_newer"]  # nothing is newer than the last value
        candidates = torch.searchsorted(values.sort(dim=1).values, batch.positions).double()
        older = batch.slices["overwrites"]
        by_chance = (prediction.answers != batch.targets) * older / (candidates - 1).clamp(min=1)
        found |= {
            "stale_excess": WeightedMean(found["stale"].value, by_chance),
            "informed_chance": WeightedMean(1 / candidates),
        }
        if s.parts > 1:
            of_others = (candidates - 1 - older).clamp(min=1)
            found |= cluster_kinds(batch, prediction, cross=found["cross"].value, others=of_others)
        if prediction.logits is not None:
            found |= weights_on_old_values(batch.facts["history"], prediction.logits.softmax(dim=-1)) | {
                "margin": target_margin(batch, prediction.logits)
            }
        if prediction.logits is not None and s.control == "return_all":
            found |= {"recalled": in_top_of_history(batch, prediction.logits)}
        return super().means(batch, prediction) | found

    def solve(self, batch: Batch) -> Tensor:
        """Return the key's write before the question, as far back as is asked."""
        return answer_questions(self.settings, batch.inputs, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the last writes and the first questions in the order they stand."""
        s = self.settings
        read = Reading(*(x[row] for x in read_writes(s, batch.inputs)))
        wrote, value = read.wrote.tolist(), read.value.tolist()
        named, key = ([",".join(map(str, parts)) for parts in x.tolist()] for x in (read.named, read.key))
        told = [
            f"{key[t]}={value[t]}" if wrote[t] else "RESET"
            for t in range(s.seq_len)
            if wrote[t] or (s.reset and read.named[t, -1] == s.reset_mark)
        ]
        before = f"{len(told) - 40} times something, then " if len(told) > 40 else ""
        history = [
            join_examples([str(value) for value in held if value != IGNORE], 5, " ")
            for held in batch.facts["history"][row].tolist()
        ]
        due = sorted(zip(batch.positions[row].tolist(), batch.targets[row].tolist(), history, strict=True))
        asked = [
            f"at position {at} for {named[at]}, the answer is {target} of {held}" for at, target, held in due
        ]
        return (
            f"Written is, one after another, {before}{' '.join(told[-40:])}. Asked is"
            f" {join_examples(asked, 8, '; ')} (newest first). All else is filler."
        )


def _of(keys: Tensor, variable: Tensor) -> Tensor:
    """Return the keys of variables: [B, V, parts] and [B, M] -> [B, M, parts]."""
    return keys.take_along_dim(variable[:, :, None], dim=1)


def _values(value: Tensor, writes: Tensor) -> Tensor:
    """Return the values of numbered writes [B, M, R], `IGNORE` where the number is -1."""
    found = value.gather(1, writes.clamp(min=0).flatten(1)).view_as(writes)
    return found.masked_fill(writes < 0, IGNORE)
