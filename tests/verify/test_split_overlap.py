"""Examples of a test that training has seen."""

from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.experiments.plan_tasks import make_task
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.experiments.registry import SHIPPED, registry
from linbench.verify.split_overlap import Collisions, collisions


def found(name: str, preset: str | None = None, *, most: int = 1 << 16, **protocol: Any) -> Collisions:
    task, _, chosen = make_task(name, preset=preset)
    return collisions(
        task,
        Protocol.parse({**default_protocol(), **chosen.protocol, **protocol}, where="protocol"),
        most=most,
    )


def test_what_is_counted() -> None:
    """Sequences of three tokens in `grazzi` have two bits, so that all four are soon seen; whoever is not
    tested is not shared."""
    task, _, _ = make_task("parity", preset="grazzi", settings={"task.max_length": 3})
    protocol = Protocol.parse({**default_protocol(), "examples": 64, "test_examples": 16}, where="protocol")
    assert collisions(task, protocol) == Collisions(16, 16, 64, 64)
    batches = {
        split: task.sample(torch.arange(2), seed=3, split=split).inputs.tolist()
        for split in ("train", "test")
    }  # type: ignore[arg-type]
    shared = sum(row in batches["train"] for row in batches["test"])
    assert collisions(task, protocol, seed=3, most=2) == Collisions(2, shared, 2, 64)


def test_fresh_examples_are_as_many_as_the_budget_buys() -> None:
    assert found("mqar", tokens=64 * 32 * 50, test_examples=8) == Collisions(8, 0, 1600, 1600)


def test_the_words(snapshot: SnapshotAssertion) -> None:
    assert [
        str(Collisions(2048, 0, 19200, 19200)),
        str(Collisions(1000, 96, 65536, 198019)),
    ] == snapshot


@pytest.mark.parametrize("most", [1 << 11, pytest.param(1 << 13, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [name for name, entry in registry("task").entries.items() if entry.source == SHIPPED]
)
def test_what_is_tested_by_default_is_new(name: str, most: int) -> None:
    counted = found(name, most=most)
    assert counted.shared <= counted.tested // 100
