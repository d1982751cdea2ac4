"""`linbench compare`."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers.suites import TINY


@pytest.fixture
def compare(linbench: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """The verb on a suite that takes a second."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    return lambda *words: linbench(
        "compare", *words, "--suite", "tiny.yaml", "--device", "cpu", "--workers", "0"
    )


@pytest.mark.slow
def test_what_is_missing_is_run_and_shown_side_by_side(
    compare: Callable[..., Any], linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ended = compare("deltanet", "gla")
    assert ended.code == 0, ended.err
    head, first, second = ended.out.splitlines()[:3]
    names = ["task", "model", "accuracy", "seeds", "difference", "p", "verdict", "read with", "state floats"]
    assert head.split() == [*" ".join(names).split(), "parameters", "marks"]
    assert (first.split()[:2], second.split()[:2]) == (["mqar", "deltanet"], ["mqar", "gla"])
    caption = next(line for line in ended.out.splitlines() if "Difference: " in line)
    assert caption[caption.index("Difference: ") :] == snapshot
    assert ended.err.count("seed ") == 4
    assert ended.err.splitlines()[-2] == snapshot
    again = compare("deltanet,gla")
    assert (again.code, again.out, again.err.count("finished earlier")) == (0, ended.out, 4)
    (table,) = json.loads(compare("deltanet", "gla", "--json").out)
    assert (table["form"], table["first"]) == ("native", "deltanet")
    stored = {(r["model"], r["seed"]): r["accuracy"] for r in json_rows(linbench)}
    assert [row["accuracies"] for row in table["rows"]] == [
        [stored[name, seed] for seed in (0, 1)] for name in ("deltanet", "gla")
    ]
    assert table["rows"][1]["difference"] == pytest.approx(
        sum(stored["gla", s] - stored["deltanet", s] for s in (0, 1)) / 2
    )
    assert {"interval", "p_holm", "verdict", "further_seeds", "read_with", "state_floats", "marks"} <= set(
        table["rows"][1]
    )


@pytest.mark.slow
def test_at_convergence_tokens_to_learn_are_compared_too(compare: Callable[..., Any]) -> None:
    ended = compare("deltanet", "gla", "--protocol", "converged", "--json")
    assert ended.code == 0, ended.err
    ((first, second),) = (table["rows"] for table in json.loads(ended.out))
    assert first["learning"]["seeds"] == second["learning"]["seeds"] == 2
    assert second["learning"]["verdict"] == second["verdict"] == "no difference shown"
    assert second["further_seeds"] >= 2
    fixed = json.loads(compare("deltanet", "gla", "--budget", "900", "--json").out)
    assert [row["learning"] for table in fixed for row in table["rows"]] == [None, None]


def json_rows(linbench: Callable[..., Any]) -> list[dict[str, Any]]:
    from linbench import load

    return load("results").to_dict("records")  # type: ignore[return-value]


@pytest.mark.slow
def test_a_layer_of_ones_own_beside_stored_ones(
    compare: Callable[..., Any], linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Linear):\n    def __init__(self, width):\n       "
        " super().__init__(width, width)\n"
    )
    assert (
        linbench("sweep", "tiny.yaml", "--device", "cpu", "--workers", "0", "--results", "stored").code == 0
    )
    ended = compare("./mine.py:Mine", "--against", "stored", "--format", "markdown")
    assert ended.code == 0, ended.err
    heading, _, head = ended.out.splitlines()[:3]
    assert heading == "### Beside ./mine.py:Mine, native"
    assert head.startswith("| task ")
    assert ended.err.count("Mine seed") == 2
    assert "deltanet seed" not in ended.err
    rows = [[cell.strip() for cell in line.split("|")] for line in ended.out.splitlines()]
    (at,) = (row.index("read with") for row in rows if "read with" in row)
    assert [row[at] for row in rows if row[1:2] == ["mqar"]] == snapshot


@pytest.mark.slow
def test_a_path_may_have_spaces_in_every_verb(
    compare: Callable[..., Any], linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "my layers").mkdir()
    (tmp_path / "my layers" / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Linear):\n    def __init__(it, width):\n       "
        " super().__init__(width, width)\n"
        "    def state_floats(it, seq_len):\n        return 0\n"  # or compare would train it at another size
    )
    mine = "./my layers/mine.py:Mine"
    ended = compare(f" {mine} ,deltanet", "--seeds", "0")
    assert ended.code == 0, ended.err
    assert f"Difference: to {mine}, " in ended.out
    ended = linbench(
        "sweep",
        "tiny.yaml",
        "--model",
        f"{mine}, deltanet",
        "--seeds",
        "0",
        "--device",
        "cpu",
        "--workers",
        "0",
        "--dry-run",
    )
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == snapshot
    assert {row["model"] for row in json_rows(linbench)} == {mine, "deltanet"}


@pytest.mark.slow
def test_a_failure_has_its_code_and_no_verdict(
    compare: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n    def forward(self, x):\n        raise"
        " RuntimeError('no')\n"
    )
    ended = compare("deltanet", "./mine.py:Mine")
    assert ended.code == 3
    assert re.findall(r"no verdict: .*?(?=  )", ended.out) == snapshot
    assert ended.err.splitlines()[-1] == snapshot


def test_bad_input_is_one_sentence(
    compare: Callable[..., Any], linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    ended = compare("deltanet")
    assert ended.code == 2
    assert ended.err == snapshot
    ended = linbench("compare", "deltanet", "gla", "--suite", "quik")
    assert ended.code == 2
    assert ended.err.partition(" Allowed: ")[0] == snapshot
    assert compare("deltanet", "gla", "--seeds", "x").err == snapshot


def test_a_sweep_takes_other_models_and_seeds(
    linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    ended = linbench(
        "sweep", "tiny.yaml", "--model", "gla,retnet", "--seeds", "4-5", "--dry-run", "--device", "cpu"
    )
    assert ended.out.splitlines()[:2] == snapshot


@pytest.mark.slow
def test_what_is_said_to_measure_speeds_does(
    compare: Callable[..., Any], linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Linear):\n    def __init__(self, width):\n       "
        " super().__init__(width, width)\n"
    )
    (tmp_path / "tiny.yaml").write_text(
        TINY.replace("linear_attention", "{model: gla, set: {model.heads: 4}}")
    )
    models = ("deltanet[neg_eigval=true]", "gla", "./mine.py:Mine")
    ended = compare(*models, "--results", "kept")
    told = [line for line in ended.err.splitlines() if " is not stored for " in line]
    assert told == snapshot
    assert "tokens/s" not in ended.out
    commands = [command for line in told for command in line.partition("measured by: ")[2].split("; ")]
    assert len(commands) == 2, "one for each question"
    for command in commands:
        assert linbench(*shlex.split(command)[1:], "--repeat", "1").code == 0
    again = compare(*models, "--results", "kept")
    assert " is not stored for " not in again.err
    assert re.findall(r"\w+, thousand tokens/s", again.out) == snapshot
    (table,) = json.loads(compare(*models, "--results", "kept", "--json").out)
    assert [set(row["tokens_per_second"]) for row in table["rows"]] == [{"train", "decode"}] * 3
