from collections.abc import Iterable

import pytest

from linbench.common.errors import UserError
from linbench.common.parsing import parse_seeds


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("0, 2,1,2", [0, 2, 1]),
        ("0-3,2-4", [0, 1, 2, 3, 4]),
        ("9223372036854775807", [2**63 - 1]),
        ("0-9999", list(range(10_000))),
        (0, [0]),
        ([1, 0], [1, 0]),
        (range(3), [0, 1, 2]),
    ],
)
def test_seeds_are_written_or_given(given: str | int | Iterable[int], seeds: list[int]) -> None:
    assert parse_seeds(given) == seeds


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        "4-0",
        "-1",
        "1.5",
        "²",
        "9223372036854775808",
        "0-18446744073709551616",
        "9" * 5000,
        -1,
        0.5,
        True,
        [0, -1],
        [],
    ],
)
def test_anything_else_is_refused_with_what_would_do(given: str | int | Iterable[int]) -> None:
    with pytest.raises(UserError, match=r"up to 9223372036854775807, such as 0,1,2 or 0-4, not '.*'"):
        parse_seeds(given)


@pytest.mark.parametrize("text", ["0-99999999999", "0-9999,0", "0-10000"])
def test_more_seeds_than_anybody_would_run_are_refused_before_they_are_counted_out(text: str) -> None:
    with pytest.raises(UserError, match=f"at most 10,000 seeds.*'{text}'"):
        parse_seeds(text)
