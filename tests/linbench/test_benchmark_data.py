"""Drawing examples, timed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from linbench.benchmark.data import Drawn, columns, plan, run
from linbench.common.errors import UserError
from linbench.tasks.mqar import MQAR

ON_CPU = {"task": "mqar", "preset": "quick", "seq_len": 64, "tokens_per_second": 8e6, "examples_per_second": 125_000.0, "seconds_of_100k": 0.8}
ON_GPU = {"task": "mqar", "preset": "quick", "seq_len": 64, "tokens_per_second": 2e9, "seconds_alone": 4e-4, "seconds_shared": 1.3e-4, "peak_bytes": 10**9}


def test_a_task_is_all_its_presets_and_nothing_is_every_task() -> None:
    assert plan(["mqar/quick-hard"]) == [Drawn("mqar", "quick-hard")]
    assert plan(["mqar"]) == [Drawn("mqar", preset) for preset in MQAR.presets]
    assert plan(["mqar/quick-hard", "mqar", "mqar"]) == [Drawn("mqar", "quick-hard"), *(row for row in plan(["mqar"]) if row.preset != "quick-hard")]
    assert set(plan(["mqar"])) <= set(plan())
    with pytest.raises(UserError, match="did you mean 'quick'"):
        plan(["mqar/quik"])
    with pytest.raises(UserError, match="did you mean 'mqar'"):
        plan(["mqr"])


def test_a_row_on_a_cpu_is_drawn_by_one_thread() -> None:
    kept: list[dict[str, Any]] = []
    threads = torch.get_num_threads()
    seen: list[int] = []
    found = run([Drawn("mqar", "quick")], device="cpu", repeats=1, tell=lambda line: seen.append(torch.get_num_threads()), keep=kept.append)
    assert (seen, torch.get_num_threads()) == ([1], threads)
    (row,) = found["rows"]
    assert row["examples_per_second"] * row["seconds_of_100k"] == pytest.approx(100_000)
    assert row["tokens_per_second"] == pytest.approx(64 * row["examples_per_second"])
    assert kept == [found]


def test_tables() -> None:
    assert columns({"device": "cpu", "rows": [ON_CPU]})[1] == [["mqar", "quick", "64", "8.0", "125,000", "0.80"]]
    assert columns({"device": "cuda:0", "rows": [ON_GPU]})[1] == [["mqar", "quick", "64", "2,000.0", "0.400", "0.130", "1.0"]]


def test_the_command(linbench: Callable[..., Any]) -> None:
    ended = linbench("bench", "data", "--tasks", "mqar/quick", "--device", "cpu", "--repeat", "1", "--save", "kept.json", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["rows"][0]["task"] == "mqar"
    assert found["environment"]["device"]["type"] == "cpu"
    assert linbench("bench", "data", "--tasks", "nothing").code == 2


@pytest.mark.gpu
def test_a_row_on_a_gpu() -> None:
    (row,) = run([Drawn("mqar", "quick")], device="cuda:0", repeats=3, tell=lambda line: None, keep=lambda found: None)["rows"]
    assert 0 < row["seconds_shared"] <= row["seconds_alone"]


def test_a_file_that_cannot_be_kept_is_told_before_anything_is_measured(linbench: Callable[..., Any]) -> None:
    ended = linbench("bench", "data", "--tasks", "mqar/quick", "--device", "cpu", "--repeat", "1", "--save", "nowhere/kept.json")
    assert (ended.code, ended.err.count("\n"), ended.out) == (6, 1, ""), ended.err
    assert "cannot write nowhere/kept.json" in ended.err
