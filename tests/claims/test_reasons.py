"""Sentences that say why a claim is undecided."""

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims import reasons
from linbench.claims.evidence import Evidence
from linbench.claims.interval import point
from linbench.claims.rule import Rule
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
        pytest.param({"a": SeedEvidence({0: 0.5})}, id="too few seeds"),
        pytest.param({"a": SpeedEvidence(obstacle="not timed yet", missing=1)}, id="not timed"),
    ],
)
def test_obstacles_are_told_together(evidence: dict[str, Evidence], snapshot: SnapshotAssertion) -> None:
    assert reasons.obstacles(evidence) == snapshot


VALUES = {"a": 0.5, "b": 0.1, "never": float("inf")}


@pytest.mark.parametrize(
    ("supported", "refuted"),
    [
        ("a >= 0.6", "a <= 0.4"),
        ("0.6 <= a", "a <= 0.4"),
        ("a - b >= 0.6", "a <= b"),
        ("b >= 1 / 5", "b < 0"),
        ("a >= 0.4 and b > 0.3", "a < 0.4"),
        ("a < 0.4 and b < 0.3", "b > 0.3"),
        ("a < 0.4 or b > 0.3", "b > 0.3"),
        ("never < never", "a > 1"),
    ],
)
def test_values_between_two_rules(supported: str, refuted: str, snapshot: SnapshotAssertion) -> None:
    support, refute = (Rule.parse(text, VALUES, where="C1") for text in (supported, refuted))
    values = {name: point(value) for name, value in VALUES.items()}
    assert reasons.between_thresholds(support, refute, values, dict.fromkeys(VALUES, 0.0)) == snapshot


@pytest.mark.parametrize(
    "rule", ["a - b >= 0.3", "a < b or b < 0.2", "a > b and b < 0.2", "a > b and b < 0.2 and never > 1"]
)
def test_a_rule_that_is_met(rule: str, snapshot: SnapshotAssertion) -> None:
    values = {name: point(value) for name, value in VALUES.items()}
    parsed = Rule.parse(rule, VALUES, where="C1")
    assert reasons.rule_met(parsed, values, dict.fromkeys(VALUES, 0.0)) == snapshot


def test_a_long_expression_is_cut(snapshot: SnapshotAssertion) -> None:
    text = " + ".join(["a"] * 30)
    low, high = (Rule.parse(f"{text} >= {bound}", VALUES, where="C1") for bound in (20, 30))
    sentence = reasons.between_thresholds(low, high, {"a": point(0.5)}, {"a": 0.0})
    assert sentence == snapshot
    assert len(sentence) < 140
