"""Evidence that has one number for every seed: of trained models, and of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from statistics import median
from typing import Any, NamedTuple

from linbench.claims.evidence import Dot, Evidence, Obstacle
from linbench.claims.interval import Interval, point
from linbench.common.text import pluralize
from linbench.results.record import EDGE, UNDERTRAINED, UNPROBED, UNTRIED

NOT_RUN = "not run yet"

TINY = 1e-5
"""Numbers below are rounding errors, whose digits differ from machine to machine."""

MOST_WRITTEN = 8
"""More seeds than these are not written out one by one."""

_EXCLUDED = {
    UNDERTRAINED: "were still improving",
    EDGE: "did best at the edge of the learning rates tried",
    UNTRIED: "did best next to a learning rate that failed",
    UNPROBED: "used a layer that was not checked for its laws",
    "diverged": "diverged",
    "oom": "ran out of memory",
    "timeout": "ran out of time",
    "failed": "failed",
}
"""Why a seed does not count, by the mark or status of its run."""


class ExcludedSeed(NamedTuple):
    """A seed that does not count, or counts within bounds alone."""

    why: str
    """The mark or status of its run."""
    bounds: Interval | None
    """Its value and the most that longer training could make of it (may be infinite); None: no value."""

    @property
    def value(self) -> float | None:
        """Its value, if anything was measured."""
        return None if self.bounds is None else self.bounds.low

    @property
    def limited(self) -> Interval | None:
        """Its bounds, if it was still improving and it is known how good it can get."""
        known = self.why == UNDERTRAINED and self.bounds is not None and self.bounds.high < inf
        return self.bounds if known else None


@dataclass(frozen=True)
class SeedEvidence(Evidence):
    """Numbers by seed."""

    values: Mapping[int, float]
    """The numbers of those seeds that count."""
    missing: int = 0
    """The number of seeds that were asked for and have no result."""
    excluded: Mapping[int, ExcludedSeed] = field(default_factory=dict)
    """The seeds that do not count."""
    qualifiers: tuple[str, ...] = ()

    has_seeds = True

    @property
    def seen(self) -> bool:
        """True if any seed has a result."""
        return bool(self.values or self.excluded)

    @property
    def complete_seeds(self) -> int:
        """The number of seeds that have a result, counted from seed 0 to the first without."""
        return next(seed for seed in count() if seed not in self.values and seed not in self.excluded)

    def of_seed(self, seed: int) -> Interval | None:
        """Return the bounds within which the value of a seed is known; None: nothing is known."""
        if seed in self.values:
            return point(self.values[seed])
        return self.excluded[seed].limited if seed in self.excluded else None

    @property
    def _known(self) -> list[Interval]:
        every = (self.of_seed(seed) for seed in (*self.values, *self.excluded))
        return [each for each in every if each is not None]

    @property
    def has_value(self) -> bool:
        """True if anything is known of any seed."""
        return bool(self._known)

    @property
    def between(self) -> Interval:
        """The bounds of the median over seeds: improving runs may stay as they are, or become perfect."""
        return Interval(median(each.low for each in self._known), median(each.high for each in self._known))

    @property
    def spread(self) -> Interval:
        """The lowest and the highest seed, with improving runs as they are."""
        lows = [each.low for each in self._known]
        return Interval(min(lows), max(lows))

    @property
    def obstacles(self) -> list[Obstacle]:
        """The reasons why seeds do not count, or do within bounds alone; empty if all count."""
        seeds = len(self.values) + len(self.excluded)
        if not seeds:
            return [Obstacle(NOT_RUN)]
        return [Obstacle(words, len(alike), seeds) for words, alike in self._reasons.items()]

    @property
    def _reasons(self) -> dict[str, list[ExcludedSeed]]:
        """The seeds that do not count, or do within bounds alone, by the reason in words."""
        reasons: dict[str, list[ExcludedSeed]] = {}
        for seed in self.excluded.values():
            reasons.setdefault(_EXCLUDED.get(seed.why, f"are marked {seed.why}"), []).append(seed)
        return reasons

    @property
    def out_of(self) -> str:
        """The number of seeds that count, a few of them one by one, and of those that do not or are left."""
        values = [*self.values.values()]
        few = len({*values}) > 1 and len(values) <= MOST_WRITTEN
        parts = [pluralize(len(values), "seed") + (_listed(values) if few else "")]
        for words, seeds in self._reasons.items():
            reason = words.removeprefix("were ").removeprefix("are ")
            measured = [seed.value for seed in seeds if seed.value is not None]
            parts.append(f"{len(seeds)} {reason}{_listed(measured)}")
        if self.missing:
            parts.append(f"{self.missing} {NOT_RUN}")
        return "; ".join(parts)

    @property
    def dots(self) -> Sequence[Dot]:
        """A dot for every seed that has a number."""
        excluded = [Dot(seed.value, False) for seed in self.excluded.values() if seed.value is not None]
        return [*(Dot(value, True) for value in self.values.values()), *excluded]

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        low, high = self.spread if self.has_value else (None, None)
        between = self.between if self.has_value else None
        return {
            "value": _number(between.low if between and between.exact else None),
            "low": _number(low),
            "high": _number(high),
            "seeds": {str(seed): _number(value) for seed, value in self.values.items()},
            "aside": {
                str(seed): {"why": each.why, "value": _number(each.value)}
                for seed, each in self.excluded.items()
            },
            "missing": self.missing,
            "between": list(between) if between and not between.exact else None,
        }

    def __str__(self) -> str:
        if not self.has_value:
            return "–"
        if not self.between.exact:
            return to_words(self.between)
        low, high = map(in_words, self.spread)
        return in_words(self.between.low) + ("" if low == high else f" ({low} to {high})")


def _listed(values: Sequence[float]) -> str:
    """Return values behind a colon, of many the lowest and the highest; nothing without any."""
    if not values:
        return ""
    if len(values) > MOST_WRITTEN:
        return f": {to_words(Interval(min(values), max(values)))}"
    return f": {', '.join(map(in_words, values))}"


def to_words(bounds: Interval) -> str:
    """Return bounds as they are shown, or the number if both are shown alike."""
    return " to ".join(dict.fromkeys(map(in_words, bounds)))


def in_words(value: float) -> str:
    """Return a number as it is shown."""
    if value == inf:
        return "never"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return "< 1e-5" if _is_rounding(value) else f"{value:.3f}"


def _is_rounding(value: float) -> bool:
    return 0 < abs(value) < TINY


def _number(value: float | None) -> float | str | None:
    """Return a word for infinity, which JSON does not have."""
    return "never" if value == inf else value
