"""Whole training steps, timed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from linbench import batches
from linbench.benchmark import train
from linbench.benchmark.report import parts_table, train_columns
from linbench.benchmark.train import MODELS, SHAPES, Row, Shape, cells, measure, parse_shapes, plan, row_of
from linbench.common.errors import UserError
from linbench.workers import Outcome

SMALL = Shape(2, 16, 16)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window is at least as long as what is drawn at once lasts."""
    monkeypatch.setitem(batches.AT_ONCE, "cpu", 256)
    monkeypatch.setattr(train, "_WINDOW_SECONDS", 0.02)


def row(**changes: Any) -> Row:
    return Row("deltanet", SMALL, "fp32", 1, "cpu", None, 2, False)._replace(**changes)


def test_shapes() -> None:
    assert parse_shapes("B512xT64xD64, b1xt2xd3") == (Shape(512, 64, 64), Shape(1, 2, 3))
    assert str(SHAPES["cuda"][2]) == "B128xT256xD128"
    for text in ("B4xT4", "B0xT4xD8", "B4xT4xH1xD8"):
        with pytest.raises(UserError, match="--shapes takes shapes such as B512xT64xD64"):
            parse_shapes(text)


def test_plans() -> None:
    assert len(plan(device="cpu")) == len(MODELS)
    (one, twelve) = plan(device="cpu", models=["deltanet"], shapes=[SMALL], replicas=[1, 12], repeats=3)
    assert (one.replicas, twelve.replicas, one.precision, one.repeats) == (1, 12, "fp32", 3)
    with pytest.raises(UserError, match="did you mean 'deltanet'"):
        plan(device="cpu", models=["deltanett"])
    with pytest.raises(UserError, match="unknown dtype 'fp16'"):
        plan(device="cpu", precision="fp16")
    with pytest.raises(UserError, match=r"unknown peer for training steps 'fla'.*Allowed: zoology-style"):
        plan(device="cpu", peer="fla")
    with pytest.raises(UserError, match="--profile needs a GPU"):
        plan(device="cpu", by_part=True)


def test_replicas_differ_in_seed_and_rate_alone() -> None:
    group = cells(row(replicas=3, shape=Shape(4, 64, 128)))
    assert [(cell.seed, cell.protocol.lr) for cell in group] == [(0, 1e-3), (1, 2e-3), (2, 3e-3)]
    assert {(cell.task.seq_len, cell.model.backbone.d_model, cell.protocol.batch_size) for cell in group} == {(64, 128, 4)}
    assert group[0].model.layers[0].settings.heads == 2


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_row_on_a_cpu(replicas: int) -> None:
    found = measure(row(replicas=replicas))
    assert found["seconds"]["linbench"] > 0
    assert (found["captured"], found["note"], found["peak_bytes"], found["reason"]) == (False, None, None, None)
    shown = row_of(row(replicas=replicas), Outcome(found))
    assert shown["tokens_per_second"]["linbench"] == pytest.approx(replicas * 2 * 16 / found["seconds"]["linbench"])


def test_small_batches_do_not_go_on_beyond_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of examples that are small or few, many thousand steps' worth are drawn at once; there is no learning rate for that many."""
    monkeypatch.setitem(batches.AT_ONCE, "cpu", 1 << 16)
    monkeypatch.setattr(train, "AHEAD", 4)
    monkeypatch.setattr(train, "_STEPS", 6 * 4)
    monkeypatch.setattr(train, "_WINDOW_SECONDS", 0.0)
    assert measure(row())["seconds"]["linbench"] > 0


def test_windows_are_as_long_as_what_a_call_does_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], [0]
    monkeypatch.setattr(train.time, "perf_counter", lambda: now[0])

    def call() -> None:
        calls[0] += 1
        now[0] += 1.0 + 8.0 * (calls[0] % 4 == 0)  # every fourth takes nine times as long

    assert train._in_turn({"it": call}, 3, fewest={"it": 4}, cuda=False)["it"] == pytest.approx(3.0)


def measured(ours: float, theirs: float | None) -> dict[str, Any]:
    seconds = {"linbench": ours} | ({} if theirs is None else {"zoology-style": theirs})
    return {"seconds": seconds, "reason": None, "note": None, "peak_bytes": 1 << 21, "parts": {"recurrence": 2e-4, "batch": 1e-5}}


def test_rows_in_words() -> None:
    gpu = row(shape=Shape(512, 64, 64), precision="bf16", device="cuda:0", peer="zoology-style")
    rows = [row_of(gpu, Outcome(measured(1e-3, 8e-3))), row_of(gpu._replace(replicas=12, peer=None), Outcome(measured(6e-3, None)))]
    rows.append(row_of(gpu, Outcome(failure="its process died with SIGKILL")))
    names, words = train_columns(rows, "zoology-style")
    first, second, third = (dict(zip(names, line, strict=True)) for line in words)
    assert (first["step ms"], first["M tokens/s"], first["zoology-style M tokens/s"], first["x"], first["peak MiB"]) == ("1.00", "32.8", "4.10", "8.00", "2")
    assert (second["replicas"], second["M tokens/s"], second["x"]) == ("12", "65.5", "–")
    assert third["reason"] == "its process died with SIGKILL"
    names, words = parts_table(rows)
    assert names[-3:] == ["recurrence", "batch", "in all"]
    assert [line[-3:] for line in words] == [["200", "10", "210"]] * 2


def test_the_command(linbench: Callable[..., Any]) -> None:
    ended = linbench("bench", "train", "--device", "cpu", "--models", "deltanet", "--shapes", "B2xT16xD16", "--repeat", "1", "--replicas", "1,2", "--json")
    assert ended.code == 0, ended.err
    assert [shown["replicas"] for shown in json.loads(ended.out)["rows"]] == [1, 2]
    for words in (["--replicas", "0"], ["--replicas", "two"], ["--peer", "zoology-style"]):
        ended = linbench("bench", "train", "--device", "cpu", *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
