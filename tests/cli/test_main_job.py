"""The promises that linbench makes to a newcomer."""

import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_gated_deltanet_learns_a_small_recall(linbench: Callable[..., Any]) -> None:
    """Half the length of the quick preset, and a small model: seconds in place of a minute."""
    settings = (
        "task.seq_len=32 task.kv_pairs=4 task.vocab_size=32 model.d_model=32 protocol.batch_size=32 "
        "protocol.tokens=204800 protocol.lr=0.01 protocol.evaluations=5 protocol.validation_examples=64 "
        "protocol.test_examples=256"
    )
    words = [word for each in settings.split() for word in ("--set", each)]
    ended = linbench("run", "mqar", "--model", "gated_deltanet", "--device", "cpu", "--json", *words)
    (result,) = json.loads(ended.out)
    assert result["metrics"]["accuracy"] >= 0.99


@pytest.mark.slow
@pytest.mark.nightly
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
