import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench import kernel as ops
from linbench.bench import peers
from linbench.bench import run as measured
from linbench.bench.operations import all_operations
from linbench.bench.timing import DevicePeaks
from linbench.kernels.norms import cases as norms

TINY = ["--shapes", "B2xT9xH2xD8", "--repeat", "1", "--device", "cpu", "--results", "kept"]


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring them takes a second."""
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))


@pytest.mark.slow
def test_a_row_for_every_operation_which_is_kept(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    ended = linbench("bench", "ops", *TINY, "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    names = list(all_operations())
    assert [row["label"] for row in found] == names
    for row in found:
        assert row["status"] == "ok"
        assert 0 < row["sides"]["linbench"]["forward"]["as_called"]["median"] < 60
        assert 0 < row["sides"]["linbench"]["both"]["as_called"]["median"] < 60
        assert row["environment"]["device"]["type"] == "cpu"
    last = ended.err.splitlines()[-1]
    assert f"measured {len(names)}/{len(names)} {names[-1]} B2xT9xH2xD8 fp32" in last
    assert sorted(path.stem for path in Path("kept").glob("*.json")) == sorted(row["id"] for row in found)
    again = linbench("bench", "ops", *TINY, "--json")
    assert json.loads(again.out) == found
    assert again.err.startswith(f"{len(found)} of {len(found)} ")
    assert again.err.replace(str(len(found)), "N") == snapshot
    drawn = linbench("figures", "kernels", "--results", "kept", "--formats", "svg").out
    assert drawn.startswith("kept/figures/kernels-b2xt9xh2xd8-fp32-")


def test_the_table(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = linbench("bench", "ops", *TINY, "--ops", "gla, l2_norm", "--dtype", "bf16")
    lines = ended.out.splitlines()
    assert lines[0].partition(", bf16, ")[0] == snapshot
    assert lines[2].split()[:3] == ["operation", "forward", "fwd+bwd"]
    assert [line.split()[0] for line in lines[3:5]] == ["gla", "l2_norm"]
    assert "Copy 10 GB/s, " in ended.out
    assert ", product 0.10 TFLOP/s." in ended.out
    kept = linbench("table", "--results", "kept", "--format", "json").out
    assert [row["operation"] for row in json.loads(kept)[0]["rows"]] == ["gla", "l2_norm"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ops", "gated_deltanett"], "unknown operation 'gated_deltanett'; did you mean 'gated_deltanet'?"),
        (["--peer", "flaa"], "unknown peer for operations 'flaa'; did you mean 'fla'?"),
        (["--shapes", "B8xT4"], "--shapes takes shapes such as B256xT256xH2xD64"),
        (
            ["--preset", "tiny"],
            "--preset and --shapes both say what shapes are measured; leave out one of them.",
        ),
        (["--dtype", "fp16"], "unknown dtype 'fp16'; did you mean"),
    ],
)
def test_bad_input_is_one_sentence(linbench: Callable[..., Any], words: list[str], sentence: str) -> None:
    ended = linbench("bench", "ops", *TINY, *words)
    assert ended.code == 2
    assert sentence in ended.err.splitlines()[-1]


def test_a_peer_that_is_not_installed_leaves_ours(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    ended = linbench("bench", "ops", *TINY, "--ops", "l2_norm", "--peer", "fla")
    assert ended.code == 0
    (told,) = re.findall("fla: .*$", ended.out, re.MULTILINE)
    assert told == snapshot


def test_an_operation_that_fails_ends_the_command_with_three(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def raising(*_: Any) -> Any:
        raise ValueError("no such thing")

    operations = norms.FAMILY.operations
    monkeypatch.setitem(operations, "l2_norm", operations["l2_norm"]._replace(call=raising))
    ended = linbench("bench", "ops", *TINY, "--ops", "l2_norm,rms_norm")
    assert ended.code == 3
    last = ended.err.splitlines()[-1]
    assert re.sub(r"\.py line \d+", ".py line N", last) == snapshot


def test_the_first_call_is_timed_in_a_process_of_its_own(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ops.outcomes
    asked: list[tuple[str, bool]] = []

    def here(function: Any, arguments: Any, *, workers: int, fresh: bool = False, **more: Any) -> Any:
        asked.append((function.__name__, fresh and workers > 0))
        return made(function, arguments, workers=0)

    monkeypatch.setattr(ops, "outcomes", here)
    words = ["bench", "ops", *TINY, "--ops", "kda", "--first-call", "--json"]
    (row,) = json.loads(linbench(*words).out)
    assert 0 < row["cold_call"] < 60
    assert asked == [("cold_call", True)]
    assert json.loads(linbench(*words).out) == [row], "once is enough"
    assert len(asked) == 2
