"""A sentence of a page with numbers, and the function that computes them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Fact(NamedTuple):
    """A phrase of a page whose numbers follow from stored results or from code.

    Attributes:
        page: on which it stands.
        says: the phrase, with `{}` for each number.
        numbers: a function that returns them as the page writes them.
        slow: whether that takes more than a few seconds.
    """

    page: str
    says: str
    numbers: Callable[[], Sequence[str]]
    slow: bool = False

    def phrase(self) -> str:
        """Return the phrase with the numbers as they are today.

        Raises ValueError: there are more or fewer of them than places.
        """
        numbers = self.numbers()
        if len(numbers) != self.says.count("{}"):
            raise ValueError(f"{len(numbers)} numbers for: {self.says}")
        return self.says.format(*numbers)


def short(value: float, digits: int = 2) -> str:
    """Return a number as pages write it: without a zero before the point."""
    return f"{value:.{digits}f}".removeprefix("0")


def ends(values: Sequence[float], digits: int = 2) -> list[str]:
    """Return the least and the largest of some numbers as pages write them."""
    return [short(min(values), digits), short(max(values), digits)]
