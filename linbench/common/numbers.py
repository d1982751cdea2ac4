"""Numbers as users write them: in digits of ASCII, few enough, and between two bounds. Python's own reading
takes more than anyone means."""

import re
from collections.abc import Callable

from linbench.common.errors import UserError

LARGEST = 2**63 - 1
"""The largest whole number that a tensor holds."""

_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def whole(given: object, least: int = 0, most: int = LARGEST) -> int | None:
    """Return the whole number from `least` to `most`, neither below 0, that is given as text or as a number;
    None: it is none.

    A sign, an underscore or a digit of another script makes it none.
    """
    if isinstance(given, str):
        text = given.strip()
        number = int(text) if _WHOLE.fullmatch(text) else -1
    else:
        number = given if isinstance(given, int) and not isinstance(given, bool) else -1
    return number if least <= number <= most else None


def number(given: object, least: float, most: float) -> float | None:
    """Return the finite number from `least` to `most` that is given, as a number or as a text such as 0.5,
    3e-4 or 20; None: it is none."""
    text = str(given).strip()
    found = float(text) if _NUMBER.fullmatch(text) else least - 1
    return found if least <= found <= most else None


def parse_whole(what: str, least: int, most: int) -> Callable[[object], int]:
    """Return a reader of the option `what`, which takes whole numbers from `least` to `most`. It raises
    UserError."""

    def read(text: object) -> int:
        if (found := whole(text, least, most)) is None:
            raise UserError(f"{what} takes a whole number from {least:,} to {most:,}, not '{text}'.")
        return found

    read.__name__ = "whole number"  # as help calls it
    return read


def parse_number(what: str, least: float, most: float) -> Callable[[object], float]:
    """Return a reader of the option `what`, which takes numbers from `least` to `most`. It raises
    UserError."""

    def read(text: object) -> float:
        if (found := number(text, least, most)) is None:
            raise UserError(f"{what} takes a number from {least:g} to {most:,g}, not '{text}'.")
        return found

    read.__name__ = "number"
    return read
