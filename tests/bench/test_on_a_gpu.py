"""On a GPU: in processes of their own, compiled first, and replayed where that can be."""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench import case as asked
from linbench.bench import compile as compiling
from linbench.bench import layer_timing, timing
from linbench.bench import run as measured
from linbench.bench.case import PeerVersion
from linbench.bench.layer import LayerCase
from linbench.bench.length import cases as length_cases
from linbench.bench.presets import layer_cases
from linbench.bench.timing import DevicePeaks, Spread
from linbench.engine.workers import Outcome
from linbench.results.speed_labels import OURS
from tests.helpers.bench import SMALL, a_case, run
from tests.helpers.records import ENVIRONMENT


class Rehearsal:
    """A GPU that is not there: what would be called in which processes, and what came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiled: list[str] = []
        self.measured: list[str] = []
        self.dying: set[str] = set()
        self.large: set[str] = set()
        monkeypatch.setattr(measured, "outcomes", self.outcomes)
        monkeypatch.setattr(compiling, "outcomes", self.outcomes)
        monkeypatch.setattr(
            measured, "environment", lambda device: {**ENVIRONMENT, "device": {"name": "a GPU"}}
        )
        monkeypatch.setattr(asked, "device_class", lambda device: "a GPU")

    def outcomes(
        self, function: Any, arguments: Any, *, workers: int, seconds: float, fresh: bool = False
    ) -> Iterator[tuple[int, Outcome]]:
        assert workers > 0
        for place, argument in enumerate(arguments):
            if function is measured.ceilings:
                yield place, Outcome(DevicePeaks(1e10, 1e11))
            elif getattr(function, "args", None) == (measured.precompile,):
                self.compiled.append(str(argument))
                crowded = workers > 1 and str(argument) in self.large
                yield (
                    place,
                    Outcome(failure="OutOfMemoryError: CUDA out of memory.") if crowded else Outcome(5.0),
                )
            else:
                self.measured.append(f"{argument} {argument.peer and argument.peer[0]}")
                if argument.peer is not None and argument.peer[0] in self.dying:
                    yield place, Outcome(failure="its process died with SIGSEGV")
                else:
                    sides = {OURS: {"as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 5}}}
                    yield (
                        place,
                        Outcome(
                            {
                                **measured.empty_fields(),
                                "sides": sides,
                                "first_call": 0.1,
                                "environment": ENVIRONMENT,
                            }
                        ),
                    )


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    return Rehearsal(monkeypatch)


def on_a_gpu(case: LayerCase) -> LayerCase:
    return replace(case, cell=replace(case.cell, device="cuda:0"))


def test_on_a_gpu_everything_is_compiled_first_and_once(rehearsal: Rehearsal, tmp_path: Path) -> None:
    cases = [on_a_gpu(case) for case in length_cases(layer_cases(["deltanet"], SMALL, device="cpu"), SMALL)]
    cases.append(replace(cases[-1], length=2))  # memory alone
    found = run(cases, tmp_path)
    assert [name.split()[0] for name in rehearsal.compiled] == [
        "train",
        "prefill",
        "train",
        "prefill",
        "memory",
    ]
    assert len(rehearsal.measured) == len(cases)
    assert all(datetime.fromisoformat(one["when"]).tzinfo == UTC for one in found)
    assert [one["first_call"] for one in found] == [5.0, 5.0, 0.1, 5.0, 5.0, 0.1, 5.0], (
        "that of the step that compiled, where there was one"
    )


def test_what_needs_much_memory_is_compiled_again_alone(
    rehearsal: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    case, other = (on_a_gpu(replace(a_case(), length=length)) for length in (64, 32))
    rehearsal.large.add(str(case))
    assert [found["first_call"] for found in run([case, other], tmp_path)] == [5.0, 5.0]
    assert rehearsal.compiled == [str(case), str(other), str(case)]


def test_a_peer_that_breaks_the_process_costs_its_own_side(
    rehearsal: Rehearsal, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rehearsal.dying.add("fla")
    case = on_a_gpu(replace(a_case(), peer=PeerVersion("fla", "0.6")))
    (found,) = run([case], tmp_path)
    assert rehearsal.measured == [f"{case} fla", f"{case} None"]
    assert found["status"] == "ok"
    assert found["sides"]["fla"] == snapshot
    assert found["bench"]["peer"] == {"name": "fla", "version": "0.6"}


def test_long_calls_are_not_captured_and_those_that_cannot_be_say_why(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    medians = {"short": 0.01, "refusing": 0.02, "long": 1.5}
    monkeypatch.setattr(
        layer_timing,
        "time_as_called",
        lambda calls, **_: {name: Spread(medians[name], 0.0, 2.0, 5) for name in calls},
    )
    asked: list[str] = []

    def replay(calls: Any, *, repeats: int) -> Any:
        asked.extend(calls)
        return {"short": Spread(0.005, 0.005, 0.005, repeats)}, {
            "refusing": "not captured: it looks at a number"
        }

    monkeypatch.setattr(layer_timing, "time_replayed_if_possible", replay)
    found = layer_timing._time_calls(on_a_gpu(a_case()), dict.fromkeys(medians, lambda: None))
    assert asked == ["short", "refusing"]
    assert found["short"]["replayed"]["median"] == 0.005
    assert {name: side.get("note") for name, side in found.items()} == snapshot


def test_what_cannot_be_captured_together_is_tried_alone(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def replay(calls: Any, *, repeats: int) -> Any:
        if "bad" in calls:
            raise RuntimeError("could not be captured: it waits")
        return {name: Spread(1.0, 1.0, 1.0, repeats) for name in calls}

    monkeypatch.setattr(timing, "time_replayed", replay)
    seconds, reasons = timing.time_replayed_if_possible({"good": int, "bad": int, "fine": int}, repeats=3)
    assert list(seconds) == ["good", "fine"]
    assert reasons == snapshot


@pytest.mark.gpu
@pytest.mark.parametrize("question", ["train", "prefill", "decode", "memory"])
def test_on_a_gpu_calls_are_replayed_too(question: str, tmp_path: Path) -> None:
    cases = [
        replace(
            layer_cases([model], SMALL, device="cuda:0", repeats=5)[0], question=question, batch=2, length=64
        )
        for model in ("attention", "gated_deltanet")
    ]
    for found in run(cases, tmp_path):
        assert (found["status"], found["reason"]) == ("ok", None)
        if question == "memory":
            assert found["sides"][OURS]["peak_bytes"] > 0
        else:
            assert 0 < found["sides"][OURS]["replayed"]["median"] < 1, found["sides"][OURS].get("note")
