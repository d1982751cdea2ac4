import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.benchmark import ops, peers
from linbench.benchmark.operations import OPERATIONS
from linbench.benchmark.timing import Ceilings

TINY = ["--shapes", "B2xT9xH2xD8", "--repeat", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring them takes a second."""
    monkeypatch.setattr(ops, "ceilings", lambda device: Ceilings(1e10, 1e11))


def test_a_row_for_every_operation(linbench: Callable[..., Any]) -> None:
    ended = linbench("bench", "ops", *TINY, "--json", "--save", "found.json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found == json.loads(Path("found.json").read_text())
    assert [row["operation"] for row in found["rows"]] == list(OPERATIONS)
    for row in found["rows"]:
        assert row["reason"] is None
        assert 0 < row["sides"]["linbench"]["forward"] < 60
        assert 0 < row["sides"]["linbench"]["both"] < 60
        assert row["shares"]["bytes"] > 0
    assert found["environment"]["device"]["type"] == "cpu"
    assert ended.err.splitlines()[-1] == f"measured {len(OPERATIONS)}/{len(OPERATIONS)} cross_entropy B2xT9xH2xD8 fp32"


def test_the_table(linbench: Callable[..., Any]) -> None:
    ended = linbench("bench", "ops", *TINY, "--ops", "gla, l2_norm", "--dtype", "bf16")
    lines = ended.out.splitlines()
    assert lines[0].split()[:4] == ["operation", "shape", "forward", "fwd+bwd"]
    assert [line.split()[0] for line in lines[1:3]] == ["gla", "l2_norm"]
    assert "Copy 10 GB/s, matrix product 0.10 TFLOP/s." in ended.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ops", "gated_deltanett"], "unknown operation 'gated_deltanett'; did you mean 'gated_deltanet'?"),
        (["--peer", "fla"], "flash-linear-attention is not installed; pip install 'linbench[fla]' brings it"),
        (["--shapes", "B8xT4"], "--shapes takes shapes such as B256xT256xH2xD64"),
        (["--dtype", "fp16"], "unknown dtype 'fp16'; did you mean"),
        (["--save", "nowhere/found.json", "--ops", "l2_norm"], "cannot write nowhere/found.json"),
    ],
)
def test_bad_input_is_one_sentence(linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    ended = linbench("bench", "ops", *TINY, *words)
    assert ended.code == (6 if "--save" in words else 2)
    assert sentence in ended.err.splitlines()[-1]


def test_the_first_call_is_timed_in_a_process_of_its_own(linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = ops.outcomes
    asked: list[tuple[str, bool]] = []

    def here(function: Any, arguments: Any, *, workers: int, fresh: bool = False, **more: Any) -> Any:
        asked.append((function.__name__, fresh and workers > 0))
        return made(function, arguments, workers=0)

    monkeypatch.setattr(ops, "outcomes", here)
    ended = linbench("bench", "ops", *TINY, "--ops", "kda", "--first-call", "--json")
    (row,) = json.loads(ended.out)["rows"]
    assert 0 < row["first_call"] < 60
    assert asked[-1] == ("first_call", True)
