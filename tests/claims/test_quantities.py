"""Rules taken apart into comparisons of single quantities."""

import ast
import random

import pytest

from linbench.claims.claim import claims
from linbench.claims.evaluation import evaluate
from linbench.claims.interval import Interval, NoValueError, point
from linbench.claims.quantities import Comparison, Every, Formula, Some, conditions, expand
from linbench.claims.rule import Rule


def taken_apart(text: str) -> Formula:
    return expand(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a >= 0.5", "a >= 0.5"),
        ("0.2 <= a < b", "0.2 <= a and a < b"),
        ("not 0.2 <= a < b", "0.2 > a or a >= b"),
        ("not (a < b and not c > 1)", "a >= b or c > 1"),
        ("not not a < b", "a < b"),
        ("min(a, b) >= 0.9", "a >= 0.9 and b >= 0.9"),
        ("max(a, b) >= 0.9", "a >= 0.9 or b >= 0.9"),
        ("min(a, b) < 0.9", "a < 0.9 or b < 0.9"),
        ("0.6 <= max(a, b)", "0.6 <= a or 0.6 <= b"),
        ("0.6 >= max(a, b)", "0.6 >= a and 0.6 >= b"),
        ("max(a, b) - min(a, b) >= 0.05", "a - b >= 0.05 or b - a >= 0.05"),
        ("max(a, b) - min(a, b) < 0.05", "a - b < 0.05 and b - a < 0.05"),
        ("abs(a - 7.5) > 0.1", "a - 7.5 > 0.1 or 7.5 - a > 0.1"),
        ("abs(a / 3 - 1) * 64 <= 0.1", "(a / 3 - 1) * 64 <= 0.1 and (1 - a / 3) * 64 <= 0.1"),
        ("-max(a, b) > -2", "-a > -2 and -b > -2"),
        ("-2 * min(a, b) > 1", "-2 * a > 1 or -2 * b > 1"),
        ("max(abs(a), b) < 1", "a < 1 and -a < 1 and b < 1"),
        ("a / max(b, c) > 1", "a / max(b, c) > 1"),
        ("rank(a, b, c) < 2", "rank(a, b, c) < 2"),
        ("(a < b) + (b < c) >= 2", "(a < b) + (b < c) >= 2"),
        ("a > 0 and (b > 0 or c > 0)", "a > 0 and (b > 0 or c > 0)"),
        ("a > 0 or (b > 0 or c > 0)", "a > 0 or b > 0 or c > 0"),
    ],
)
def test_a_rule_is_taken_apart(text: str, expected: str) -> None:
    assert str(taken_apart(text)) == expected


def test_a_difference_with_itself_leaves_nothing_to_ask() -> None:
    above, below = taken_apart("a - a > 1"), taken_apart("a - a < 1")
    assert (above, below) == (Some(()), Every(()))


def truth(formula: Formula, values: dict[str, Interval]) -> bool:
    match formula:
        case Comparison():
            return formula.holds(values) is True
        case Every(parts):
            return all(truth(part, values) for part in parts)
        case Some(parts):
            return any(truth(part, values) for part in parts)


@pytest.mark.parametrize(
    "claim", [claim for claim in claims().values() if claim.measures], ids=lambda c: c.id
)
def test_every_shipped_rule_says_the_same_taken_apart(claim: object) -> None:
    """The values are drawn, so no two measures are equal."""
    draw = random.Random(0)
    for rule in claim.rules:  # type: ignore[attr-defined]
        for _ in range(50):
            values = {name: point(draw.random() * draw.choice([1, 1, 200])) for name in rule.names}
            try:
                expected = bool(evaluate(rule.tree, values).low)
            except NoValueError:
                continue
            assert truth(rule.formula, values) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <= b", False),
        ("a >= b", False),
        ("a - b <= 0", False),
        ("a < b", False),
        ("a >= 0.5", True),
        ("b - 0.1 < a", True),
        ("a - b < 0.05", True),
        ("rank(a, b) <= rank(b, a)", True),
        ("(a > 0.4) + (b > 0.4) >= 2", True),
    ],
)
def test_measures_that_are_equal_do_not_tell_which_is_better(text: str, expected: bool) -> None:
    formula = taken_apart(text)
    assert isinstance(formula, Comparison)
    assert formula.holds({"a": point(0.5), "b": point(0.5)}) is expected


def test_what_is_known_within_bounds_or_has_no_value_may_not_tell() -> None:
    formula = taken_apart("a / b >= 2")
    assert isinstance(formula, Comparison)
    assert formula.names == ("a", "b")
    assert formula.holds({"a": point(1.0), "b": Interval(0.1, 0.5)}) is True
    assert formula.holds({"a": point(1.0), "b": Interval(0.1, 0.6)}) is None
    assert formula.holds({"a": point(1.0), "b": point(0.0)}) is None
    steps = taken_apart("a <= b")
    assert isinstance(steps, Comparison)
    assert steps.holds(dict.fromkeys("ab", point(float("inf")))) is None


def test_a_premise_belongs_to_a_rule_and_its_conditions_are_told_apart() -> None:
    premise, rule = (Rule.parse(text, "abc", where="C1") for text in ("min(a, b) > 0.9", "a > c or b > c"))
    under = rule.under(premise)
    assert (under.text, under.names) == (rule.text, ("a", "b", "c"))
    texts = [str(part) for part in conditions(under.formula)]
    assert texts == [*map(str, conditions(premise.formula)), str(rule.formula)]
    assert rule.under(None) is rule
