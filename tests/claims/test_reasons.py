"""Sentences that say why a claim is undecided."""

import pytest

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
    ("evidence", "sentence"),
    [
        ({"a": marked(0)}, ""),
        ({"a": marked(1)}, "1 of 3 seeds of a was still improving"),
        ({"a": marked(2)}, "2 of 3 seeds of a were still improving"),
        ({"a": marked(3)}, "all 3 seeds of a were still improving"),
        ({"a": marked(2), "b": marked(2)}, "2 of 3 seeds of a and b were still improving"),
        ({"a": marked(1), "b": marked(2)}, "1 or 2 of 3 seeds of a and b were still improving"),
        (
            {"a": marked(1), "b": marked(2), "c": marked(3), "d": marked(0)},
            "1 to 3 of 3 seeds of a, b and c were still improving",
        ),
        (
            {name: marked(2) for name in "abcd"} | {"e": marked(0)},
            "2 of 3 seeds of 4 of 5 measures were still improving",
        ),
        ({name: marked(3) for name in "abcd"}, "all 3 seeds of all 4 measures were still improving"),
        ({"a": SeedEvidence({}, missing=3)}, "a not run yet"),
        ({"a": SeedEvidence({0: 0.5, 1: 0.5}, missing=1)}, "1 of 3 seeds of a not run yet"),
        (
            {"a": SeedEvidence({}, missing=3), "b": marked(1)},
            "a not run yet; 1 of 3 seeds of b was still improving",
        ),
        ({"a": marked(2, "oom")}, "2 of 3 seeds of a ran out of memory"),
        ({"a": marked(1, "non-causal")}, "1 of 3 seeds of a is marked non-causal"),
        ({"a": SeedEvidence({0: 0.5})}, "a has fewer than 3 seeds"),
        ({"a": SpeedEvidence(obstacle="not timed yet", missing=1)}, "a not timed yet"),
    ],
)
def test_obstacles_are_told_together(evidence: dict[str, Evidence], sentence: str) -> None:
    assert reasons.obstacles(evidence) == sentence


VALUES = {"a": 0.5, "b": 0.1, "never": float("inf")}


@pytest.mark.parametrize(
    ("supported", "refuted", "sentence"),
    [
        ("a >= 0.6", "a <= 0.4", "a is 0.500, between the two thresholds (0.4 and 0.6)"),
        ("0.6 <= a", "a <= 0.4", "a is 0.500, between the two thresholds (0.4 and 0.6)"),
        ("a - b >= 0.6", "a <= b", "a - b is 0.400, between the two thresholds (0 and 0.6)"),
        ("b >= 1 / 5", "b < 0", "b is 0.100, between the two thresholds (0 and 0.2)"),
        (
            "a >= 0.4 and b > 0.3",
            "a < 0.4",
            "neither rule holds, as b is 0.100 and support needs more than 0.3",
        ),
        (
            "a < 0.4 and b < 0.3",
            "b > 0.3",
            "neither rule holds, as a is 0.500 and support needs less than 0.4",
        ),
        ("a < 0.4 or b > 0.3", "b > 0.3", "neither rule holds"),
        ("never < never", "a > 1", "neither rule holds"),
    ],
)
def test_values_between_two_rules(supported: str, refuted: str, sentence: str) -> None:
    support, refute = (Rule.parse(text, VALUES, where="C1") for text in (supported, refuted))
    values = {name: point(value) for name, value in VALUES.items()}
    assert reasons.between_thresholds(support, refute, values, dict.fromkeys(VALUES, 0.0)) == sentence


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("a - b >= 0.3", "a - b is 0.400, and the rule needs at least 0.3"),
        ("a < b or b < 0.2", "b is 0.100, and the rule needs less than 0.2"),
        ("a > b and b < 0.2", "both conditions on 2 measures are met"),
        ("a > b and b < 0.2 and never > 1", "all 3 conditions on 3 measures are met"),
    ],
)
def test_a_rule_that_is_met(rule: str, sentence: str) -> None:
    values = {name: point(value) for name, value in VALUES.items()}
    parsed = Rule.parse(rule, VALUES, where="C1")
    assert reasons.rule_met(parsed, values, dict.fromkeys(VALUES, 0.0)) == sentence


def test_a_long_expression_is_cut() -> None:
    text = " + ".join(["a"] * 30)
    low, high = (Rule.parse(f"{text} >= {bound}", VALUES, where="C1") for bound in (20, 30))
    sentence = reasons.between_thresholds(low, high, {"a": point(0.5)}, {"a": 0.0})
    assert " ... is 15.000, between the two thresholds (20 and 30)" in sentence
    assert len(sentence) < 140
