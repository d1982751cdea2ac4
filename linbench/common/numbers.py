"""Numbers as users write them: in ASCII digits, not too many, and between two bounds.

Python itself would accept more than anyone means, such as underscores and digits of other scripts.
"""

import re
from collections.abc import Callable

from linbench.common.errors import UserError

LARGEST = 2**63 - 1
"""The largest whole number that a tensor can hold."""

_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def whole_number(given: object, least: int = 0, most: int = LARGEST) -> int | None:
    """Return the whole number that is given as text or number; None if it is not one from `least` to `most`.

    Neither bound may be negative. A sign, an underscore or a digit of another script is not accepted.
    """
    if isinstance(given, str):
        text = given.strip()
        number = int(text) if _WHOLE.fullmatch(text) else -1
    else:
        number = given if isinstance(given, int) and not isinstance(given, bool) else -1
    return number if least <= number <= most else None


def number_between(given: object, least: float, most: float) -> float | None:
    """Return a number from text or a number; None if it is not finite or not between `least` and `most`."""
    text = str(given).strip()
    value = float(text) if _NUMBER.fullmatch(text) else least - 1
    return value if least <= value <= most else None


def parse_whole(option: str, least: int, most: int) -> Callable[[object], int]:
    """Return a parser for an option that raises UserError unless it is given a whole number in bounds."""

    def read(text: object) -> int:
        value = whole_number(text, least, most)
        if value is None:
            raise UserError(f"{option} takes a whole number from {least:,} to {most:,}, not '{text}'.")
        return value

    read.__name__ = "whole number"  # the name that help shows
    return read


def parse_number(option: str, least: float, most: float) -> Callable[[object], float]:
    """Return a parser for an option that raises UserError unless it is given a number in bounds."""

    def read(text: object) -> float:
        value = number_between(text, least, most)
        if value is None:
            raise UserError(f"{option} takes a number from {least:g} to {most:,g}, not '{text}'.")
        return value

    read.__name__ = "number"
    return read
