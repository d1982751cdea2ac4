import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.kernels.norms import cases as norms


def test_all_is_well_on_this_machine(linbench: Callable[..., Any]) -> None:
    ended = linbench("doctor", "l2_norm", "deltanet", "--device", "cpu")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert any(line.startswith("packages: ") and "torch" in line for line in lines)
    assert any(line.startswith("kernels run: ") for line in lines)
    rows = [line for line in lines if line.startswith(("l2_norm", "deltanet"))]
    assert len(rows) == 10
    assert all(line.endswith("  ok") for line in rows)
    first = ended.err.splitlines()[0]
    assert first.startswith("1/10 l2_norm, ")
    assert first.endswith(", fp32: ok")


def test_a_wrong_kernel_is_a_no(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(norms, "l2_norm", lambda x: x / x.norm(dim=-1, keepdim=True).clamp(max=1.0))
    ended = linbench("doctor", "rms_norm", "l2_norm", "--device", "cpu", "--json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert found["ok"] is False
    assert {row["kernel"]: row["ok"] for row in found["rows"]} == {"rms_norm": True, "l2_norm": False}
    assert found["rows"][-1]["reason"].startswith("outputs are off by")
    assert found["environment"]["packages"]["torch"] == torch.__version__
    assert ended.err.splitlines()[-1] == snapshot


def test_a_kernel_that_is_not_there(linbench: Callable[..., Any]) -> None:
    ended = linbench("doctor", "gated_deltanett")
    assert ended.code == 2
    assert ended.err.startswith("linbench: unknown kernel 'gated_deltanett'; ")
    assert "did you mean 'gated_deltanet'?" in ended.err


@pytest.mark.slow
@pytest.mark.nightly
def test_every_row_holds_in_processes_side_by_side(linbench: Callable[..., Any]) -> None:
    ended = linbench("doctor", "--device", "cpu", "--workers", "2", "--json")
    assert ended.code == 0, ended.err
    assert len(json.loads(ended.out)["rows"]) > 100
