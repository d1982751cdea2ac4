"""The value of a measure on one kind of device, and what limits it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from linbench.claims.interval import Interval


class Obstacle(NamedTuple):
    """A reason why a measure decides nothing, or some of its seeds do not."""

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

    has_seeds: ClassVar[bool]
    """True if it has a value for every seed; False: it has one value, which is asked once."""

    @property
    def qualifiers(self) -> Sequence[str]:
        """Limits of the value that do not keep it from deciding, in words."""
        return ()

    @property
    @abstractmethod
    def obstacles(self) -> Sequence[Obstacle]:
        """The reasons why it, or a seed of it, decides nothing; empty if all count."""

    @property
    @abstractmethod
    def missing(self) -> int:
        """The number of runs or timings still to be done."""

    @property
    @abstractmethod
    def seen(self) -> bool:
        """True if there is any result."""

    @property
    def complete_seeds(self) -> int:
        """The number of seeds that have a result, counted from seed 0 to the first without."""
        return 0

    @abstractmethod
    def of_seed(self, seed: int) -> Interval | None:
        """Return the bounds within which the value of a seed is known; None: nothing is known.

        What has no seeds has the same value for all.
        """

    @property
    @abstractmethod
    def has_value(self) -> bool:
        """True if there is a number to show."""

    @property
    @abstractmethod
    def between(self) -> Interval:
        """The bounds of the typical value: the median over seeds, or over calls."""

    @property
    @abstractmethod
    def spread(self) -> Interval:
        """The lowest and the highest seed that count, or the 20th and the 80th percentile of calls."""

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
