import pytest

from linbench.common.errors import UserError
from linbench.common.parsing import parse_lengths


def test_multiples_in_the_order_they_are_given_once() -> None:
    assert parse_lengths("1x,4x, 2x,4x") == [1, 4, 2]


@pytest.mark.parametrize("text", ["", " ", "2", "x", "0x", "-1x", "1.5x", "1x,,2x", "2x4"])
def test_anything_else_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(UserError, match="such as 1x,2x,4x, up to 4096x, not"):
        parse_lengths(text)
