"""Printed values: a number, a bound, or the class of a length that is solved or not."""

import re
from typing import Any, NamedTuple, Self

SOLVED, FAILS = "solved", "fails"

SOLVED_FROM, FAILS_UP_TO = 95.0, 10.0
"""Scores, in hundredths, from which on a cell counts as solved, and up to which it fails."""

_BOUND = re.compile(r"(<= *)?([0-9]+(?:\.[0-9]+)?)(\+)?")


class Printed(NamedTuple):
    """One printed value.

    Attributes:
        text: as it is printed.
        number: the number in it; None for a class.
        least: whether the value is at least the number ("96+").
        most: whether it is at most the number ("<= 41").
    """

    text: str
    number: float | None
    least: bool = False
    most: bool = False

    @classmethod
    def read(cls, value: Any) -> Self:
        """Read a value of a YAML file.

        Raises ValueError: it is neither a number nor one of the texts that are understood.
        """
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(f"{value:g}", float(value))
        if value in (SOLVED, FAILS):
            return cls(str(value), None)
        found = _BOUND.fullmatch(value) if isinstance(value, str) else None
        if found is None or (found[1] and found[3]):
            raise ValueError(f"a value is a number, such as 96, 96+ or <= 41, or {SOLVED} or {FAILS}")
        return cls(found[0], float(found[2]), least=bool(found[3]), most=bool(found[1]))

    def distance(self, score: float) -> float:
        """Return by how much a score misses the value, with its sign; 0 where a bound holds.

        A class is missed by the distance from the score that it begins at.
        """
        if self.number is None:
            below = min(0.0, score - SOLVED_FROM)
            return below if self.text == SOLVED else max(0.0, score - FAILS_UP_TO)
        away = score - self.number
        if (self.least and away > 0) or (self.most and away < 0):
            return 0.0
        return away


def class_of(score: float) -> str:
    """Return whether a score, in hundredths, is solved, fails, or lies between."""
    if score >= SOLVED_FROM:
        return SOLVED
    return FAILS if score <= FAILS_UP_TO else "between"
