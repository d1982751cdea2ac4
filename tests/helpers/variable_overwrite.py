"""Variable overwrite, built, drawn and read."""

from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from linbench.tasks.blocks.overwriting import ASK, FIRST_KEY, PAD, SEP, SET
from linbench.tasks.variable_overwrite import VariableOverwrite
from tests.helpers.tasks import build_task

_PARTS = {"parts": 2, "shared": 1, "cluster": 2, "variables": 8, "seq_len": 128}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "padding": {"noises": 0},
    "no room to spare": {"seq_len": 34},
    "set": {"statement": "set", "noise": 0.5, "seq_len": 80},
    "fused": {"statement": "fused", "seq_len": 32, "noise": 0.5},
    "blockwise": {"schedule": "blockwise", "variables": 6, "seq_len": 80},
    "sequential": {"schedule": "sequential", "overwrites": (1, 2)},
    "decoys": {"noise": 0.75, "noise_kind": "decoy", "keys": 6, "seq_len": 96},
    "mentions": {"noise": 0.75, "noise_kind": "mention", "seq_len": 96},
    "fused mentions": {
        "statement": "fused",
        "noise": 0.75,
        "noise_kind": "mention",
        "seq_len": 32,
        "noises": 0,
    },
    "midstream": {"midstream": 9, "seq_len": 80},
    "midstream fused among decoys": {
        "midstream": 5,
        "statement": "fused",
        "noise": 0.5,
        "noise_kind": "decoy",
    },
    "few values": {"values": 5, "midstream": 3, "noise": 0.5, "noise_kind": "decoy", "seq_len": 80},
    "n-back": {"control": "n_back", "n": 3, "overwrites": (0, 2, 2, 4)},
    "return all": {"control": "return_all", "seq_len": 80},
    "return all fused": {"control": "return_all", "statement": "fused", "seq_len": 40},
    "reset": {"reset": 2, "seq_len": 128},
    "reset, return all, sequential, sets": {
        "reset": 1,
        "control": "return_all",
        "statement": "set",
        "schedule": "sequential",
        "seq_len": 160,
    },
    "reset fused blockwise": {"reset": 1, "statement": "fused", "schedule": "blockwise", "seq_len": 64},
    "parts": {**_PARTS, "seq_len": 112},
    "parts that share nothing, sets": {
        **_PARTS,
        **{"parts": 3, "shared": 0, "statement": "set", "schedule": "sequential", "seq_len": 256},
    },
    "parts among decoys": {**_PARTS, "noise": 0.5, "noise_kind": "decoy", "seq_len": 160},
    "parts and mentions": {**_PARTS, "parts": 3, "noise": 0.5, "noise_kind": "mention", "seq_len": 192},
    "parts, midstream, few values": {**_PARTS, "midstream": 9, "values": 5, "seq_len": 160},
    "parts, return all": {**_PARTS, "control": "return_all", "seq_len": 192},
    "parts, n-back": {**_PARTS, "control": "n_back"},
}


build = partial(build_task, VariableOverwrite)


class Said(NamedTuple):
    """A statement as it is read: where its key ends, its kind, its key (a tuple, if it has several parts) and
    its value or, of a question, how far back."""

    at: int
    kind: str
    key: Any = -1
    other: int = -1


def read(task: VariableOverwrite, inputs: Tensor) -> list[Said]:
    """The statements of one sequence, token by token; all else must be filler."""
    s = task.settings
    tokens = inputs.tolist()
    reset = s.reset_mark if s.reset else -1
    older = {mark: back for back, mark in enumerate(s.marks) if back}

    def of(token: int) -> str:
        bounds = (
            (FIRST_KEY, s.first_value, "key"),
            (s.first_value, s.first_noise, "value"),
            (s.first_noise, s.first_noise + s.noises, "filler"),
        )
        return next(
            (name for low, high, name in bounds if low <= token < high),
            "filler" if token == PAD and not s.noises else "mark",
        )

    def fused(t: int) -> Said | None:
        a, b = tokens[t]
        if of(a) == "key":
            kind = "write" if of(b) == "value" else "mention" if b == SEP else "ask"
            assert kind != "ask" or (b in older or b == PAD)
            return Said(t, kind, a, older.get(b, 0) if kind == "ask" else b)
        if a == reset:
            assert b == PAD
            return Said(t, "reset")
        assert of(a) == of(b) == "filler"
        return None

    def apart(t: int) -> tuple[Said | None, int]:
        here = tokens[t]
        begins = t if of(here) == "key" else t + 1
        end = begins + s.parts
        parts, rest = tuple(tokens[begins:end]), tokens[end : end + 2]
        key = parts if s.parts > 1 else parts[0] if parts else -1
        if begins == t or here in {SET, SEP, ASK, *older}:
            assert all(of(part) == "key" for part in parts)
        if here == SET:
            assert (s.statement, of(rest[0]), rest[1]) == ("set", "value", SEP)
            return Said(end - 1, "write", key, rest[0]), s.parts + 3
        if begins == t:
            assert (s.statement, of(rest[0])) == ("pair", "value")
            return Said(end - 1, "write", key, rest[0]), s.parts + 1
        if here == SEP:
            assert rest[0] == SEP
            return Said(end - 1, "mention", key), s.parts + 2
        if here == ASK or here in older:
            assert of(rest[0]) == "filler"
            return Said(end - 1, "ask", key, older.get(here, 0)), s.parts + 2
        if here == reset:
            return Said(t, "reset"), 1
        assert of(here) == "filler"
        return None, 1

    found, t = [], 0
    while t < len(tokens):
        said, length = (fused(t), 1) if s.width > 1 else apart(t)
        found += [said] if said else []
        t += length
    return found
