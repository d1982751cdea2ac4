"""Printed values, and by how much a score misses them."""

import pytest

from linbench.reproduction.printed import Printed, class_of


@pytest.mark.parametrize(
    ("value", "score", "distance"),
    [
        (96, 94.5, -1.5),
        (0.01, 0.02, 0.01),
        ("96", 97.0, 1.0),
        ("96+", 99.0, 0.0),
        ("96+", 95.0, -1.0),
        ("<= 41", 12.0, 0.0),
        ("<=41.5", 43.0, 1.5),
        ("solved", 95.0, 0.0),
        ("solved", 94.0, -1.0),
        ("fails", 10.0, 0.0),
        ("fails", 12.0, 2.0),
    ],
)
def test_a_score_misses_a_value_by_its_distance(value: object, score: float, distance: float) -> None:
    assert Printed.read(value).distance(score) == pytest.approx(distance)


@pytest.mark.parametrize("value", ["about 3", "<= 4+", "", True, None, [3], "-3", "99.8.1"])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a value is a number"):
        Printed.read(value)


def test_values_are_shown_as_they_are_printed() -> None:
    assert [Printed.read(value).text for value in (99.0, 0.0001, "96+", "<= 41", "solved")] == [
        "99",
        "0.0001",
        "96+",
        "<= 41",
        "solved",
    ]


@pytest.mark.parametrize(
    ("score", "expected"), [(95.0, "solved"), (94.9, "between"), (10.1, "between"), (10.0, "fails")]
)
def test_classes_of_scores(score: float, expected: str) -> None:
    assert class_of(score) == expected
