"""Rules of claims: what they may contain, and their values."""

import math

import pytest

from linbench.claims.evaluation import evaluate
from linbench.claims.interval import Interval, NoValueError, point
from linbench.claims.rule import Rule
from linbench.common.errors import UserError

MEASURES = {"a": 0.5, "b": 0.25, "c": 1.0, "zero": 0.0, "never": math.inf}


def holds(text: str, **between: Interval) -> bool | None:
    spans = {name: point(value) for name, value in MEASURES.items()} | between
    truth = evaluate(Rule.parse(text, MEASURES, where="C0.supported").tree, spans)
    return bool(truth.low) if truth.exact else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a >= 0.5", True),
        ("a > 0.5", False),
        ("a < c and b <= 0.25", True),
        ("a < b or not b >= a", True),
        ("0.2 < b < 0.3", True),
        ("0.2 < b < 0.25", False),
        ("max(a, b) - min(a, b) >= 0.25", True),
        ("max(a, b) - min(a, b) > 0.25", False),
        ("mean(a, b, c) * 3 >= 1.75", True),
        ("abs(b - a) <= -(-0.25)", True),
        ("a / b >= 2", True),
        ("abs(log(a) / log(b) - 0.5) < 1e-12", True),
        ("(a > b) + (c > a) + (b > c) >= 2", True),
        ("(a > b) + (c > a) + (b > c) >= 3", False),
        ("rank(c, a, b) < rank(a, b, c) < rank(b, a, c)", True),
        ("rank(a, a, b) >= 1.5 and rank(a, a, b) <= 1.5", True),
        ("trend(b, a, c) >= 1", True),
        ("trend(c, a, b) <= -1", True),
        ("straight(zero, b, a) >= 1", True),
        ("straight(b, b, b) >= 1", True),
        ("straight(a, b, c) > 0.9", False),
        ("never > 1e9", True),
        ("never / c >= 3", True),
    ],
)
def test_a_rule_is_what_it_says(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a >= 0.4", True),
        ("a > 0.4", None),
        ("a > 0.9", False),
        ("a < b", False),
        ("a < c and c < a", False),
        ("a < c or c < a", True),
        ("not a >= 0.4", False),
        ("-a > -0.91", True),
        ("a - 0.65 > 0 or c > 0.5", True),
        ("(a - 0.5) * (b - 1) < 0.1", True),
        ("(a - 0.5) * (b - 1) < 0.07", None),
        ("abs(a - 0.65) <= 0.251", True),
        ("abs(a - 0.65) >= 0.001", None),
        ("abs(0.3 - a) >= 0.099", True),
        ("c / a > 1.1", True),
        ("c / (a - 0.5) > 0", NoValueError),
        ("min(a, b) <= 0.25 and max(a, c) >= 1", True),
        ("mean(a, c) >= 0.69", True),
        ("rank(a, b, c) > 1.4", True),
        ("rank(b, a, c) >= 3", True),
        ("rank(a, 0.6, c) >= 3", None),
        ("trend(a, b, c) > 0", NoValueError),
        ("log(a) < 0", True),
    ],
)
def test_of_what_lies_between_two_numbers_a_rule_says_what_is_so_for_all(
    text: str, expected: bool | type[Exception] | None
) -> None:
    between = Interval(0.4, 0.9)
    if expected is NoValueError:
        with pytest.raises(NoValueError):
            holds(text, a=between)
        return
    assert holds(text, a=between) is expected
    inside = {holds(text, a=point(0.4 + 0.05 * i)) for i in range(11)}
    assert inside == ({expected} if expected is not None else {True, False})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a >=", "C0.supported: cannot read 'a >=' as a rule: invalid syntax."),
        ("a = 1", "C0.supported: cannot read 'a = 1' as a rule: "),
        ("\0", "C0.supported: cannot read '\0' as a rule: "),
        ("d >= 1", "unknown measure in C0.supported 'd'. "),
        ("aa >= 1", "unknown measure in C0.supported 'aa'; did you mean 'a'? Allowed: a, b, c, never, zero."),
        ("sum(a, b) >= 1", "unknown function in C0.supported 'sum'. "),
        (
            "a + b",
            "C0.supported: 'a + b' is a number; write a condition that is true or false, such as a >= 0.9.",
        ),
        ("max(a, b)", "C0.supported: 'max(a, b)' is a number; "),
        ("a >= '1'", "C0.supported: '1' is not a number."),
        ("a >= True", "C0.supported: True is not a number."),
        (
            "a == 0.5",
            (
                "C0.supported: 'a == 0.5' is not allowed in a rule; allowed are comparisons (< <= > >=), and,"
                " or, not, "
            ),
        ),
        ("a in b", "C0.supported: 'a in b' is not allowed in a rule; "),
        ("a ** 2 > 1", "C0.supported: 'a ** 2' is not allowed in a rule; "),
        ("~a > 1", "C0.supported: '~a' is not allowed in a rule; "),
        ("a.real > 1", "C0.supported: 'a.real' is not allowed in a rule; "),
        ("a[0] > 1", "C0.supported: 'a[0]' is not allowed in a rule; "),
        ("(lambda: a)() > 1", "C0.supported: '(lambda: a)()' is not allowed in a rule; "),
        ("a.__class__() > 1", "C0.supported: 'a.__class__()' is not allowed in a rule; "),
        ("max(a, key=b) > 1", "C0.supported: 'max(a, key=b)' is not allowed in a rule; "),
        ("max(*[a, b]) > 1", "C0.supported: max takes at least 2 values, not 1."),
        ("max(a, *[b]) > 1", "C0.supported: '*[b]' is not allowed in a rule; "),
        ("[x for x in [a]] > 1", "C0.supported: '[x for x in [a]]' is not allowed in a rule; "),
        ("(a := 1) > 0", "C0.supported: '(a := 1)' is not allowed in a rule; "),
        ("(a if b else c) > 1", "C0.supported: 'a if b else c' is not allowed in a rule; "),
        ("abs(a, b) > 1", "C0.supported: abs takes 1 value, not 2."),
    ],
)
def test_anything_else_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        holds(text)
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a / zero > 1", "a division by zero"),
        ("not a / zero > 1", "a division by zero"),
        ("a > 0 or a / zero > 1", "a division by zero"),
        ("log(zero) < 1", "the logarithm of 0 does not exist"),
        ("trend(a, a, a) > 0", "values that are all equal have no trend"),
        ("never - never < 1", "two measures that were never reached are compared"),
        ("not never / never < 1", "two measures that were never reached are compared"),
    ],
)
def test_what_has_no_value_is_neither_true_nor_false(text: str, why: str) -> None:
    with pytest.raises(NoValueError, match=f"^{why}$"):
        holds(text)


def test_a_rule_names_its_measures_in_their_order() -> None:
    rule = Rule.parse("max(b, a) > log(c) and a > 0", MEASURES, where="C0")
    assert rule.names == ("b", "a", "c")
