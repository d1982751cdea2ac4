"""Whole training steps, timed."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench import run as measured
from linbench.bench import step as train
from linbench.bench.case import PeerVersion
from linbench.bench.presets import PRESETS
from linbench.bench.step import MODELS, SHAPES, Shape, StepCase, measure, parse_shapes, plan, shapes_of
from linbench.bench.timing import DevicePeaks
from linbench.common.errors import UserError
from linbench.engine import batches
from linbench.engine.workers import Outcome
from linbench.report.tables.benchmarks import bench_tables
from linbench.results.environment import environment
from linbench.results.speed_labels import AS_CALLED, OURS

SMALL = Shape(2, 16, 16)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window is at least as long as what is drawn at once lasts."""
    monkeypatch.setitem(batches.AT_ONCE, "cpu", 256)
    monkeypatch.setattr(train, "_WINDOW_SECONDS", 0.02)


def row(**changes: Any) -> StepCase:
    return replace(StepCase("deltanet", SMALL, "fp32", 1, "cpu", None, 2, False), **changes)


def test_shapes() -> None:
    assert parse_shapes("B512xT64xD64, b1xt2xd3") == (Shape(512, 64, 64), Shape(1, 2, 3))
    assert str(SHAPES["cuda"][2]) == "B128xT256xD128"
    for text in ("B4xT4", "B0xT4xD8", "B4xT4xH1xD8"):
        with pytest.raises(UserError, match="--shapes takes shapes such as B512xT64xD64"):
            parse_shapes(text)


def test_plans() -> None:
    assert len(plan(device="cpu")) == len(MODELS)
    one, twelve = plan(device="cpu", models=["deltanet"], shapes=[SMALL], replicas=[1, 12], repeats=3)
    assert (one.replicas, twelve.replicas, one.precision, one.repeats) == (1, 12, "fp32", 3)
    with pytest.raises(UserError, match="did you mean 'deltanet'"):
        plan(device="cpu", models=["deltanett"])
    with pytest.raises(UserError, match="unknown dtype 'fp16'"):
        plan(device="cpu", precision="fp16")
    with pytest.raises(UserError, match=r"unknown peer for training steps 'fla'.*Allowed: zoology-style"):
        plan(device="cpu", peer="fla")
    with pytest.raises(UserError, match="--profile needs a GPU"):
        plan(device="cpu", by_part=True)
    assert shapes_of(PRESETS["lm"]) == (Shape(8, 4096, 2048),)


def test_replicas_differ_in_seed_and_rate_alone() -> None:
    group = row(replicas=3, shape=Shape(4, 64, 128)).cells
    assert [(cell.seed, cell.protocol.lr) for cell in group] == [(0, 1e-3), (1, 2e-3), (2, 3e-3)]
    assert {(cell.task.seq_len, cell.model.backbone.d_model, cell.protocol.batch_size) for cell in group} == {
        (64, 128, 4)
    }
    assert group[0].model.layers[0].settings.heads == 2


def test_what_names_a_result() -> None:
    others = [
        row(replicas=2),
        row(model="gla"),
        row(shape=Shape(2, 16, 32)),
        row(peer=PeerVersion("zoology-style", None)),
        row(by_part=True),
    ]
    assert len({row().id, *(other.id for other in others)}) == 6
    assert row(repeats=9).id == row().id


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_row_on_a_cpu(replicas: int) -> None:
    found = measure(row(replicas=replicas))
    assert 0 < found["sides"][OURS][AS_CALLED]["low"] <= found["sides"][OURS][AS_CALLED]["median"]
    assert (found["captured"], set(found["sides"][OURS])) == (False, {AS_CALLED})


def test_small_batches_do_not_go_on_beyond_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If examples are small or few, those of many thousand steps are drawn at once.

    There is no learning rate for so many steps.
    """
    monkeypatch.setitem(batches.AT_ONCE, "cpu", 1 << 16)
    monkeypatch.setitem(train.AHEAD, "cpu", 4)
    monkeypatch.setattr(train, "_MAX_STEPS_PER_WINDOW", 6 * 4)
    monkeypatch.setattr(train, "_WINDOW_SECONDS", 0.0)
    assert measure(row())["sides"][OURS][AS_CALLED]["median"] > 0


def test_windows_are_as_long_as_what_a_call_does_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], [0]
    monkeypatch.setattr(train.time, "perf_counter", lambda: now[0])

    def call() -> None:
        calls[0] += 1
        now[0] += 1.0 + 8.0 * (calls[0] % 4 == 0)  # every fourth takes nine times as long

    assert train._time_in_turn({"it": call}, 3, multiples={"it": 4}, cuda=False)[
        "it"
    ].median == pytest.approx(3.0)


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": 0.9 * median, "high": 1.1 * median, "calls": 5}


def a_result(case: StepCase, ours: float, theirs: float | None = None, **more: Any) -> dict[str, Any]:
    sides = {OURS: {AS_CALLED: spread(ours), "peak_bytes": 1 << 21}} | (
        {} if theirs is None else {"zoology-style": {AS_CALLED: spread(theirs)}}
    )
    parts = {"batch": 1e-5, "recurrence": 2e-4}
    return measured.result_of(
        case,
        Outcome(
            {
                **measured.empty_fields(),
                "sides": sides,
                "parts": parts,
                "environment": environment("cpu"),
                **more,
            }
        ),
        None,
        None,
    )


def test_rows_in_words() -> None:
    case = row(shape=Shape(512, 64, 64), precision="bf16", peer=PeerVersion("zoology-style", "0"))
    lost = {"sides": {}, "parts": None, "status": "failed", "reason": "its process died with SIGKILL"}
    results = [
        a_result(case, 1e-3, 8e-3),
        a_result(replace(case, replicas=12, peer=None), 6e-3),
        a_result(replace(case, model="gla"), 1.0, **lost),
    ]
    steps, parts = bench_tables(results)
    first, second, third = (dict(line) for _, line in steps.frame.iterrows())
    expected = {
        "step, ms": "1.00 ± 10%",
        "M tokens/s": "32.8 ± 10%",
        "zoology-style, M tokens/s": "4.10 ± 10%",
        "x": "8.00",
        "peak MiB": "2",
    }
    assert {column: first[column] for column in expected} == expected
    assert (second["replicas"], second["M tokens/s"], second["x"]) == ("12", "65.5 ± 10%", "–")
    assert third["notes"] == f"failed: {lost['reason']}"
    assert list(parts.frame.columns[-3:]) == ["recurrence", "batch", "in all"]
    assert parts.frame.iloc[:, -3:].to_numpy().tolist() == [["200", "10", "210"]] * 2


@pytest.mark.slow
def test_the_command(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))
    words = [
        "bench",
        "train",
        "--device",
        "cpu",
        "--models",
        "deltanet",
        "--shapes",
        "B2xT16xD16",
        "--repeat",
        "1",
        "--replicas",
        "1,2",
        "--results",
        "kept",
    ]
    ended = linbench(*words, "--peer", "zoology-style", "--json")
    assert ended.code == 0, ended.err
    first, second = json.loads(ended.out)
    assert [first["bench"]["replicas"], second["bench"]["replicas"]] == [1, 2]
    assert "is not installed" in first["sides"]["zoology-style"]["reason"]
    assert "zoology-style" not in second["sides"], "it has no replicas"
    again = linbench(*words, "--peer", "zoology-style")
    assert [line for line in again.err.splitlines() if "--again" in line] == snapshot
    for wrong in (
        ["--replicas", "0"],
        ["--replicas", "two"],
        ["--peer", "zoology"],
        ["--preset", "tini"],
        ["--preset", "tiny", "--shapes", "B2xT16xD16"],
    ):
        ended = linbench("bench", "train", "--device", "cpu", *wrong)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
