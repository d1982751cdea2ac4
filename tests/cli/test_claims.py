"""`linbench claims`."""

import copy
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench import questions
from linbench.bench import run as measured
from linbench.bench.timing import DevicePeaks
from linbench.claims import claim as file
from linbench.claims.claim import read_section
from linbench.engine import measure
from linbench.results.store import Store
from tests.helpers.records import as_if_on

TEXT = {"source": "x", "published": "y", "setting": "z", "rule": "w"}

TINY: dict[str, Any] = {
    "title": "A section",
    "cells": {
        "small": {
            "tasks": ["mqar"],
            "set": {
                "task.seq_len": 16,
                "task.kv_pairs": 2,
                "task.vocab_size": 16,
                "model.d_model": 16,
                "protocol.batch_size": 4,
                "protocol.tokens": 640,
                "protocol.evaluations": 5,
                "protocol.validation_examples": 8,
                "protocol.test_examples": 16,
            },
        }
    },
    "claims": {
        "C1": TEXT
        | {
            "says": "Both learn nothing in ten steps.",
            "tier": "T1",
            "measure": {"marked": True},
            "measures": {"delta": "deltanet", "sum": "linear_attention"},
            "supported": "max(delta, sum) < 0.9",
            "refuted": "max(delta, sum) >= 0.9",
        },
        "C2": TEXT
        | {
            "says": "What is not there is better.",
            "tier": "T2-T3",
            "needs": {"models": ["no_such"]},
        },
    },
}


@pytest.fixture(autouse=True)
def no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the results that linbench ships, which take seconds to read.

    `tests/results/test_reference.py` reads them.
    """
    monkeypatch.setattr("linbench.cli.claims.DEFAULT", (Path("results"),))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, linbench: Callable[..., Any]) -> Callable[..., Any]:
    """The verb on two claims: one that trains six tiny models, and one that waits."""
    claims = {claim.id: claim for claim in read_section(TINY, where="a.yaml")}
    monkeypatch.setattr(file, "claims", lambda: claims)
    return lambda *words: linbench("claims", *words)


def from_verdict(out: str) -> list[str]:
    """Return what a claim by its name says from its verdict on, without the table of values."""
    lines = out.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("- **"))
    return [line for line in lines[first:] if line and not line.startswith("|")]


def test_every_claim_has_a_line_in_its_section(two: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = two()
    assert (ended.code, ended.err) == (0, "")
    assert [" ".join(line.split()) for line in ended.out.splitlines()] == snapshot


def test_a_claim_by_its_name_says_what_would_decide_it(
    two: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert two("c1", "--device", "cpu").out == snapshot
    assert two("C2").out == snapshot


@pytest.mark.slow
def test_what_is_missing_is_run_and_decides_and_is_not_run_again(
    two: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    words = ("--run", "--device", "cpu", "--workers", "0", "--results", "mine/claims")
    ended = two("C1", *words)
    assert ended.code == 0, ended.err
    assert from_verdict(ended.out) == snapshot
    files = list((tmp_path / "mine" / "claims").glob("*.json"))
    assert len(files) == 28
    again = two("--run", *words[1:5], "--results", "mine")
    assert [again.out.splitlines()[-1], again.err] == snapshot
    assert "**undecided**" in two("C1").out, "the folder results has none"
    theirs = Store("theirs")
    theirs.prepare()
    for result in Store("mine/claims").all():
        if result["cell"]["seed"]:
            theirs.put(as_if_on("NVIDIA T4", result))
    (told,) = json.loads(two("C1", "--device", "t4", "--results", "theirs", "--json").out)
    ahead = told["ahead"]
    assert (ahead["device"], ahead["left"], ahead["seconds"] > 0) == ("NVIDIA T4", 2, True)
    (tmp_path / "other").mkdir()
    for path in files:
        result = json.loads(path.read_text())
        if result["label"] == "deltanet" or result["cell"]["seed"] % 2:
            path.rename(tmp_path / "other" / path.name)
        else:
            path.unlink()
    assert "1 supported" in two(*words, "--results", "other").out
    run_again = [json.loads(path.read_text()) for path in (tmp_path / "mine" / "claims").glob("*.json")]
    assert len(run_again) == 7, "not what stands in another folder"
    assert not any(result["cell"]["seed"] % 2 for result in run_again)


@pytest.mark.slow
def test_ladders_are_run_to_their_ends_and_count_once(
    monkeypatch: pytest.MonkeyPatch, linbench: Callable[..., Any], tmp_path: Path
) -> None:
    values = copy.deepcopy(TINY)
    values["cells"]["small"]["protocol"] = "converged"
    values["cells"]["small"]["set"] |= {"protocol.tokens": 320, "protocol.rungs": 2}
    claims = {claim.id: claim for claim in read_section(values, where="a.yaml")}
    monkeypatch.setattr(file, "claims", lambda: claims)
    words = ("claims", "C1", "--device", "cpu", "--workers", "0", "--results", "mine")
    ended = linbench(*words, "--run")
    assert ended.code == 0, ended.err
    assert "**supported**" in ended.out
    kept = [json.loads(path.read_text()) for path in (tmp_path / "mine").glob("*.json")]
    assert sorted(result["purpose"] for result in kept) == ["report"] * 28 + ["rung"] * 28
    (told,) = json.loads(linbench(*words[:2], "--device", "cpu", "--results", "mine", "--json").out)
    assert (told["verdict"], told["ahead"]["left"]) == ("supported", 0)
    assert len(told["devices"][0]["figures"]["delta"]["seeds"]) == 14


def test_a_run_ends_when_its_own_process_has_lost_the_gpu(
    two: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(measure, "device_responds", lambda device: False)
    monkeypatch.setattr(measure, "train", lambda *given: 1 / 0)
    ended = two("C1", "--run", "--device", "cpu", "--workers", "0", "--results", "mine")
    assert ended.code == 3
    assert re.sub(r"line \d+", "line N", ended.err) == snapshot
    assert not list((tmp_path / "mine").glob("*.json")), "that is no word on any cell"


@pytest.mark.slow
def test_layers_that_are_missing_are_timed_and_those_that_were_timed_beside_others_again(
    monkeypatch: pytest.MonkeyPatch,
    linbench: Callable[..., Any],
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    text = TINY["claims"]["C1"] | {
        "measure": {"cells": "narrow", "where": {"length": 8}, "of": "training tokens per second"},
        "supported": "delta / sum > 0", "refuted": "delta / sum <= 0",
    }  # fmt: skip
    values = {
        "title": "A section",
        "timed": {"narrow": {"preset": "tiny", "lengths": [8]}},
        "claims": {"C1": text},
    }
    claims = {claim.id: claim for claim in read_section(values, where="a.yaml")}
    marks = ["busy"]
    monkeypatch.setattr(file, "claims", lambda: claims)
    # measuring them takes a second
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))
    monkeypatch.setattr(questions, "marks", lambda began, device: list(marks))

    words = ("claims", "C1", "--device", "cpu", "--results", "mine")
    (tmp_path / "mine").mkdir()
    assert from_verdict(linbench(*words).out) == snapshot(name="untimed")
    beside_others = linbench(*words, "--run")
    assert beside_others.code == 0, beside_others.err
    assert from_verdict(beside_others.out) == snapshot(name="beside others")
    marks.clear()
    alone = linbench(*words, "--run")
    last = next(line for line in alone.err.splitlines() if line.startswith("measured 2/2"))
    assert last.split()[2:6] == ["train", "linear_attention", "B512xT8", "fp32"]
    assert from_verdict(alone.out) == snapshot(name="alone")
    assert len(list((tmp_path / "mine").glob("*.json"))) == 2
    assert linbench(*words, "--run").err == snapshot(name="again")


@pytest.mark.slow
def test_as_json_and_as_a_page(two: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    two("C1", "--run", "--device", "cpu", "--workers", "0")
    first, second = json.loads(two("--json").out)
    assert "ahead" not in first, "to foresee what is left of all takes a while"
    first, second = json.loads(two("c1", "c2", "--json", "--device", "cpu").out)
    assert first["ahead"] | {"seconds": 0.0} == {
        "device": "cpu",
        "cells": 28,
        "left": 0,
        "seconds": 0.0,
        "timings": 0,
        "untimed": 0,
        "most_to_come": 0,
        "doublings": 0,
    }
    assert second["ahead"] is None
    assert (first["id"], first["verdict"], first["devices"][0]["device"]) == ("C1", "supported", "cpu")
    assert set(first["devices"][0]["figures"]["delta"]["seeds"]) == {*map(str, range(14))}
    best = "accuracy, marked or not"
    assert first["measures"] == {"delta": f"deltanet, {best}", "sum": f"linear_attention, {best}"}
    assert {key: second[key] for key in ("verdict", "why", "needs", "devices")} == snapshot
    assert (first["needs"], second["measures"]) == ([], {})
    ended = two("--results", "results", "--save", "my page.md", "--json")
    assert json.loads(ended.out)[0]["verdict"] == "supported"
    page = (tmp_path / "my page.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("linbench claims"))
    assert shlex.split(command)[2:] == ["--results", "results", "--save", "my page.md"]
    assert "\n![C1, every seed](my%20page/C1-cpu.svg)\n" in page
    ended = two("--save", "page.md")
    assert [ended.out, ended.err] == snapshot
    page = (tmp_path / "page.md").read_text()
    assert "linbench claims --save page.md" in page
    row = next(line for line in page.splitlines() if line.startswith("| [C1](#c1) |"))
    assert row.split(" | ")[1] == "supported"
    assert "\n![C1, every seed](page/C1-cpu.svg)\n" in page
    assert "<svg" in (tmp_path / "page" / "C1-cpu.svg").read_text(encoding="utf-8")
    assert page.partition("### C2\n\n")[2].splitlines()[0] == TINY["claims"]["C2"]["says"]


def test_those_of_a_tier_and_what_is_missing_of_each(
    two: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert "1 claim: " in two("--tier", "T2").out
    assert "C1 " not in two("--tier", "T2").out
    lines = two("--all", "--device", "cpu").out.splitlines()
    assert [" ".join(line.split()) for line in lines if line.startswith("C")] == snapshot


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("C3", 2),
        ("--tier T7", 2),
        ("C1 --tier T0", 2),
        ("C1 --run --device cpu --devices 3", 2),
        ("--results nowhere", 6),
        ("--save no/such/page.md", 6),
    ],
)
def test_nothing_else_can_be_asked(
    two: Callable[..., Any], words: str, code: int, snapshot: SnapshotAssertion
) -> None:
    ended = two(*words.split())
    assert (ended.code, ended.out) == (code, "")
    assert ended.err == snapshot


@pytest.mark.parametrize(
    "name",
    [
        "C5",
        pytest.param("C6", marks=pytest.mark.slow),
        pytest.param("C18", marks=pytest.mark.slow),
        "C19",
        "C20",
        "C30",
    ],
)
def test_what_needs_no_training_is_decided_at_once(linbench: Callable[..., Any], name: str) -> None:
    """The verdicts agree with theory and with measurements elsewhere.

    So this also tests the tables and the kernels behind them.
    """
    (found,) = json.loads(linbench("claims", name, "--json").out)
    assert (found["verdict"], found["devices"][0]["device"]) == ("supported", "nothing trained")
