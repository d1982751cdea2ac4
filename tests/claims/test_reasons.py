"""Sentences that say why a claim is undecided."""

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims import reasons
from linbench.claims.evidence import Evidence
from linbench.claims.interval import point
from linbench.claims.seed_evidence import ExcludedSeed, SeedEvidence
from linbench.claims.speed_evidence import SpeedEvidence


def marked(marks: int, mark: str = "undertrained", seeds: int = 3) -> SeedEvidence:
    """Return evidence of which some seeds are marked."""
    return SeedEvidence(
        dict.fromkeys(range(marks, seeds), 0.5),
        excluded={seed: ExcludedSeed(mark, point(0.4)) for seed in range(marks)},
    )


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param({"a": marked(0)}, id="nothing"),
        pytest.param({"a": marked(1)}, id="one seed"),
        pytest.param({"a": marked(2)}, id="two seeds"),
        pytest.param({"a": marked(3)}, id="all seeds"),
        pytest.param({"a": marked(2), "b": marked(2)}, id="two measures alike"),
        pytest.param({"a": marked(1), "b": marked(2)}, id="two measures"),
        pytest.param(
            {"a": marked(1), "b": marked(2), "c": marked(3), "d": marked(0)}, id="three of four measures"
        ),
        pytest.param({name: marked(2) for name in "abcd"} | {"e": marked(0)}, id="four of five measures"),
        pytest.param({name: marked(3) for name in "abcd"}, id="all seeds of all measures"),
        pytest.param({"a": SeedEvidence({}, missing=3)}, id="none run"),
        pytest.param({"a": SeedEvidence({0: 0.5, 1: 0.5}, missing=1)}, id="one not run"),
        pytest.param({"a": SeedEvidence({}, missing=3), "b": marked(1)}, id="two obstacles"),
        pytest.param({"a": marked(2, "oom")}, id="oom"),
        pytest.param({"a": marked(1, "non-causal")}, id="non-causal"),
        pytest.param({"a": SpeedEvidence(obstacle="not timed yet", missing=1)}, id="not timed"),
    ],
)
def test_obstacles_are_told_together(evidence: dict[str, Evidence], snapshot: SnapshotAssertion) -> None:
    assert reasons.obstacles(evidence) == snapshot
