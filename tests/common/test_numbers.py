"""Numbers as users write them."""

import pytest

from linbench.common.errors import UserError
from linbench.common.numbers import LARGEST, number_between, parse_number, parse_whole, whole_number

NO_NUMBERS = [
    "",
    " ",
    "x",
    "-1",
    "+1",
    "1_0",
    "1.0",
    "²",
    "१२",
    "1e3",
    "0x10",
    "9" * 20,
    "9" * 5000,
    None,
    1.0,
    True,
    [1],
]


@pytest.mark.parametrize("given", NO_NUMBERS)
def test_what_is_no_whole_number(given: object) -> None:
    assert whole_number(given) is None


def test_a_whole_number_lies_between_its_bounds() -> None:
    assert [whole_number(text, 1, 64) for text in ("0", "1", " 64 ", "65")] == [None, 1, 64, None]
    assert (
        whole_number(str(LARGEST)),
        whole_number(LARGEST),
        whole_number(LARGEST + 1),
        whole_number(10**30),
        whole_number(10**5000),
    ) == (
        LARGEST,
        LARGEST,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "value"), [("0.5", 0.5), ("3e-4", 3e-4), ("20", 20.0), (".5", 0.5), ("1.", 1.0)]
)
def test_numbers(text: str, value: float) -> None:
    assert number_between(text, 0, 100) == value


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-1", "101", "1_0", "१.५", "1e999", "1e9999", "9" * 5000, "", "0x1p3"]
)
def test_what_is_no_number(text: str) -> None:
    assert number_between(text, 0, 100) is None


def test_an_option_says_what_it_takes() -> None:
    assert parse_whole("--stack", 1, 4096)("17") == 17
    assert parse_number("--timeout", 1, 60)(30.0) == 30.0
    with pytest.raises(UserError, match=r"^--stack takes a whole number from 1 to 4,096, not '0'\.$"):
        parse_whole("--stack", 1, 4096)("0")
    with pytest.raises(UserError, match=r"^--gpus takes a number from 0 to 1, not 'nan'\.$"):
        parse_number("--gpus", 0, 1)("nan")
