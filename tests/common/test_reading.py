"""JSON that others may have written: every value as it was written, and what is refused."""

import json
import math
import random
import struct

import pytest

from linbench.common.reading import DEEPEST, MOST_DIGITS, read_json


def test_numbers_come_back_with_every_digit() -> None:
    draw = random.Random(0)
    drawn = [struct.unpack("d", draw.randbytes(8))[0] for _ in range(10_000)]
    edges = [
        5e-324,
        2.2250738585072011e-308,
        1.7976931348623157e308,
        -0.0,
        0.1,
        1e22,
        1e23,
        9007199254740993.0,
    ]
    numbers = [*filter(math.isfinite, drawn), *edges]
    found = read_json(json.dumps(numbers).encode())
    assert [*map(repr, found)] == [*map(repr, numbers)]
    whole = [10**MOST_DIGITS - 1, -(2**63), 0]
    assert read_json(json.dumps(whole).encode()) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1,]",
        b"[1] 2",
        b"[01]",
        b'"\xff"',
        b'"a\nb"',
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
        b"1" * (MOST_DIGITS + 1),
        b'{"a": [-' + b"9" * (MOST_DIGITS + 1) + b"]}",
        b"9" * 10_000,
    ],
)
def test_what_is_no_sound_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"at line|JSON, or|digits"):
        read_json(text)


def test_brackets_and_digits_within_a_text_are_no_depth_and_no_number() -> None:
    value = {"[" * 100: '\\"' + "{" * 100, "digits": "1" * 100, "fraction": 0.12345678901234567890123}
    assert read_json(json.dumps(value).encode()) == value
