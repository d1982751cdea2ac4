import pytest

from linbench.common.text import format_decimal, format_duration, pluralize


@pytest.mark.parametrize(("number", "words"), [(0, "0 cells"), (1, "1 cell"), (12, "12 cells")])
def test_so_many_of_them(number: int, words: str) -> None:
    assert pluralize(number, "cell") == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (3600 + 5 * 60 + 59, "1 h 5 min"),
        (47.9 * 3600, "47 h 54 min"),
        (48 * 3600, "2 days"),
        (8.6e7, "995 days"),
    ],
)
def test_so_long(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0.000"),
        (0.2314, "0.231"),
        (-1.5, "-1.500"),
        (0.0004, "0.000"),
        (-2.53e-16, "-2.5e-16"),
        (9e-5, "9.0e-05"),
    ],
)
def test_what_is_far_from_what_decimals_tell_is_told(value: float, words: str) -> None:
    assert format_decimal(value) == words
