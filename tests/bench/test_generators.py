"""Drawing examples, timed."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.bench import run as measured
from linbench.bench.case import PeerVersion
from linbench.bench.generators import GeneratorCase, measure, one_thread, plan
from linbench.bench.timing import DevicePeaks
from linbench.common.errors import UserError
from linbench.engine.workers import Outcome
from linbench.report.tables.benchmarks import bench_tables
from linbench.results.environment import environment
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.tasks.mqar import MQAR

QUICK = GeneratorCase("mqar", "quick", "cpu", None, 1)


def test_a_task_is_all_its_presets_and_nothing_is_every_task() -> None:
    def presets(*names: str) -> list[tuple[str, str]]:
        return [(case.task, case.preset) for case in plan(names, device="cpu")]

    assert presets("mqar/quick-hard") == [("mqar", "quick-hard")]
    assert presets("mqar") == [("mqar", preset) for preset in MQAR.presets]
    assert presets("mqar/quick-hard", "mqar", "mqar") == [
        ("mqar", "quick-hard"),
        *(case for case in presets("mqar") if case[1] != "quick-hard"),
    ]
    assert set(presets("mqar")) <= set(presets())
    with pytest.raises(UserError, match="did you mean 'quick'"):
        plan(["mqar/quik"], device="cpu")
    with pytest.raises(UserError, match="did you mean 'mqar'"):
        plan(["mqr"], device="cpu")
    with pytest.raises(UserError, match="did you mean 'numpy'"):
        plan(["mqar"], device="cpu", peer="nmpy")


def test_what_names_a_result() -> None:
    assert pickle.loads(pickle.dumps(QUICK)).id == QUICK.id
    assert replace(QUICK, repeats=9).id == QUICK.id
    assert (
        len(
            {
                case.id
                for case in (
                    QUICK,
                    replace(QUICK, preset="quick-hard"),
                    replace(QUICK, peer=PeerVersion("numpy", "2")),
                )
            }
        )
        == 3
    )


def test_a_cpu_draws_with_one_thread() -> None:
    threads = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_a_row_on_a_cpu_beside_a_peer() -> None:
    sides = measure(replace(QUICK, peer=PeerVersion("numpy", "2")))["sides"]
    assert 0 < sides[OURS][AS_CALLED]["median"] < sides["numpy"][AS_CALLED]["median"]
    reasons = {("parity", "quick"): "draws MQAR only", ("mqar", "composite-2-1"): "draws keys of one token"}
    for (task, preset), reason in reasons.items():
        other = measure(GeneratorCase(task, preset, "cpu", PeerVersion("numpy", "2"), 1))["sides"]
        assert other["numpy"] == {"reason": reason}


def a_result(case: GeneratorCase, sides: dict[str, Any]) -> dict[str, Any]:
    return measured.result_of(
        case,
        Outcome({**measured.empty_fields(), "sides": sides, "environment": environment("cpu")}),
        None,
        None,
    )


def test_tables(snapshot: SnapshotAssertion) -> None:
    each = {"median": 8e-6, "low": 7.2e-6, "high": 8.8e-6, "calls": 5}
    slower = {name: 10 * value for name, value in each.items()}
    (words,) = bench_tables(
        [
            a_result(
                replace(QUICK, peer=PeerVersion("numpy", "2")),
                {OURS: {AS_CALLED: each}, "numpy": {AS_CALLED: slower}},
            )
        ]
    )
    (row,) = words.frame.to_dict("records")
    assert (row["task"], row["preset"], row["T"], row["M tokens/s"], row["100k examples, s"]) == (
        "mqar",
        "quick",
        "64",
        "8.00 ± 10%",
        "0.800",
    )
    assert (row["numpy, 100k, s"], row["x"]) == ("8.00", "10.00")
    on_gpu = a_result(QUICK, {OURS: {REPLAYED: each, "batch": slower, "peak_bytes": 1 << 20}})
    on_gpu["bench"]["device"] = "a GPU"
    (words,) = bench_tables([on_gpu])
    (row,) = words.frame.to_dict("records")
    assert row == snapshot


def test_the_command(linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))
    words = [
        "bench",
        "data",
        "--tasks",
        "mqar/quick",
        "--device",
        "cpu",
        "--repeat",
        "1",
        "--results",
        "kept",
    ]
    ended = linbench(*words, "--json")
    assert ended.code == 0
    (found,) = json.loads(ended.out)
    assert (found["label"], found["environment"]["device"]["type"]) == ("mqar/quick", "cpu")
    assert "Drawing examples: " in linbench("table", "--results", "kept", "--format", "markdown").out
    assert linbench("bench", "data", "--tasks", "nothing").code == 2


@pytest.mark.gpu
def test_a_row_on_a_gpu() -> None:
    ours = measure(GeneratorCase("mqar", "quick", "cuda:0", None, 3))["sides"][OURS]
    assert 0 < ours[REPLAYED]["median"] <= ours["batch"]["median"]
