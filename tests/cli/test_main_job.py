"""The promises that linbench makes to a newcomer."""

import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_gated_deltanet_learns_the_quick_preset(linbench: Callable[..., Any]) -> None:
    """The seed is not that of `make run`."""
    ended = linbench("run", "mqar", "--model", "gated_deltanet", "--device", "cpu", "--seeds", "1", "--json")
    (result,) = json.loads(ended.out)
    assert result["preset"] == "quick"
    assert result["cell"]["model"]["form"] == "native"
    assert result["metrics"]["accuracy"] >= 0.99
    assert result["marks"] == []


@pytest.mark.gpu
def test_the_main_job_on_a_gpu(linbench: Callable[..., Any]) -> None:
    (result,) = json.loads(
        linbench("run", "mqar", "--model", "gated_deltanet", "--device", "cuda", "--json").out
    )
    assert result["metrics"]["accuracy"] >= 0.99
