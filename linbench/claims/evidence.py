"""The value of a measure on one kind of device, and what limits it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from linbench.claims.interval import Interval, point


class Obstacle(NamedTuple):
    """A reason why a measure decides nothing."""

    words: str
    """The reason, such as "not run yet" or, of seeds, "were still improving"."""
    seeds: int | None = None
    """The number of seeds that it concerns; None: it concerns the whole measure."""
    of: int = 0
    """The number of seeds of the measure."""


class Dot(NamedTuple):
    """One point of a measure in a figure."""

    value: float
    counts: bool
    """True if it takes part in the value of the measure."""


class Evidence(ABC):
    """The value of a measure on one kind of device, or on none if nothing is trained.

    Rules of claims see nothing of a measure but this.
    """

    basis: ClassVar[str]
    """The values by which a rule is judged first, in words."""
    fragile: ClassVar[str]
    """The words for a verdict that changes with one of the `perturbations`."""

    @property
    def qualifiers(self) -> Sequence[str]:
        """Limits of the value that do not keep it from deciding, in words."""
        return ()

    @property
    def needs_training(self) -> bool:
        """True if longer training may be all that is missing."""
        return False

    @property
    def has_bounds(self) -> bool:
        """True if only improving runs stand in the way, and it is known how good they can get."""
        return False

    @property
    @abstractmethod
    def obstacles(self) -> Sequence[Obstacle]:
        """The reasons why it decides nothing; empty if it decides."""

    @property
    @abstractmethod
    def missing(self) -> int:
        """The number of runs or timings still to be done."""

    @property
    @abstractmethod
    def seen(self) -> bool:
        """True if there is any result."""

    @property
    @abstractmethod
    def has_value(self) -> bool:
        """True if there is a number to show."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The number itself."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The scatter of the values around it."""

    @property
    def interval(self) -> Interval:
        """The interval in which the value lies."""
        return point(self.value)

    @abstractmethod
    def perturbations(self, name: str) -> Iterator[tuple[str, "Evidence"]]:
        """Yield slightly different evidence that must give the same verdict, each with words for it.

        Args:
            name: the name of the measure, for the words.
        """

    @property
    @abstractmethod
    def out_of(self) -> str:
        """The parts of the value in words, or why there is none."""

    @property
    def dots(self) -> Sequence[Dot]:
        """The single values behind it, for a figure."""
        return ()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
