"""Evidence that has one number for every seed: of trained models, and of tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, stdev
from typing import Any, NamedTuple

from linbench.claims.evidence import Dot, Evidence, Obstacle
from linbench.claims.interval import Interval, best, mean, monotone, point
from linbench.claims.schema import LEAST_SEEDS
from linbench.common.text import pluralize
from linbench.results.record import EDGE, UNDERTRAINED, UNPROBED, UNTRIED

NOT_RUN = "not run yet"

TINY = 1e-5
"""Numbers below are rounding errors, whose digits differ from machine to machine."""

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
    """A seed that does not count."""

    why: str
    """The mark or status of its run."""
    bounds: Interval | None
    """Its value and the most that longer training could make of it (may be infinite); None: no value."""

    @property
    def value(self) -> float | None:
        """Its value, if anything was measured."""
        return None if self.bounds is None else self.bounds.low

    @property
    def words(self) -> str:
        """Why it does not count, with its value."""
        why = "still improving" if self.why == UNDERTRAINED else self.why
        return why if self.value is None else f"{why} at {in_words(self.value)}"


@dataclass(frozen=True)
class SeedEvidence(Evidence):
    """Numbers by seed; their mean or the best of them is the value."""

    values: Mapping[int, float]
    """The numbers of those seeds that count."""
    missing: int = 0
    """The number of seeds without a result."""
    excluded: Mapping[int, ExcludedSeed] = field(default_factory=dict)
    """The seeds that do not count."""
    best: bool = False
    """True if the best seed is the value, rather than the mean."""
    qualifiers: tuple[str, ...] = ()

    basis = "with all seeds"
    fragile = "one seed changes the verdict"

    @property
    def seen(self) -> bool:
        """True if any seed has a result."""
        return bool(self.values or self.excluded)

    @property
    def has_value(self) -> bool:
        """True if any seed counts, or bounds are known."""
        return self.has_bounds or bool(self.values)

    @property
    def value(self) -> float:
        """The mean over seeds, or the best of them."""
        return max(self.values.values()) if self.best else fmean(self.values.values())

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; 0 for one seed, for the best, or if a seed is infinite."""
        values = list(self.values.values())
        return stdev(values) if len(values) > 1 and inf not in values and not self.best else 0.0

    @property
    def obstacles(self) -> list[Obstacle]:
        """The reasons why too few seeds count; empty if enough do."""
        seeds = len(self.values) + len(self.excluded) + self.missing
        if self.missing:
            return [Obstacle(NOT_RUN, None if self.missing == seeds else self.missing, seeds)]
        if len(self.values) >= LEAST_SEEDS:
            return []
        reasons = [seed.why for seed in self.excluded.values()]
        if not reasons:
            return [Obstacle(f"has fewer than {LEAST_SEEDS} seeds")]
        return [
            Obstacle(_EXCLUDED.get(why, f"are marked {why}"), reasons.count(why), seeds)
            for why in dict.fromkeys(reasons)
        ]

    @property
    def needs_training(self) -> bool:
        """True if longer training may be all that is missing."""
        improving = all(seed.why == UNDERTRAINED for seed in self.excluded.values())
        return bool(self.obstacles) and not self.missing and improving

    @property
    def has_bounds(self) -> bool:
        """True if only improving runs stand in the way, and it is known how good they can get."""
        limits = [seed.bounds for seed in self.excluded.values()]
        limited = all(bounds is not None and bounds.high < inf for bounds in limits)
        return self.needs_training and bool(limits) and limited

    @property
    def interval(self) -> Interval:
        """The interval of the value: improving runs may stay as they are, or become as good as possible."""
        if not self.has_bounds:
            return point(self.value)
        known = map(point, self.values.values())
        improving = (seed.bounds for seed in self.excluded.values() if seed.bounds is not None)
        return monotone(best if self.best else mean)(*known, *improving)

    def perturbations(self, name: str) -> Iterator[tuple[str, "SeedEvidence"]]:
        """Yield the evidence without each of its seeds; nothing if the best seed is the value."""
        if self.best:
            return
        excluded = self.excluded if self.has_bounds else {}
        for seed in (*self.values, *excluded):
            values = {own: value for own, value in self.values.items() if own != seed}
            others = {own: each for own, each in excluded.items() if own != seed}
            yield f"without seed {seed} of {name}", SeedEvidence(values, excluded=others)

    @property
    def out_of(self) -> str:
        """The number of seeds that count, their scores if they differ, and why other seeds do not count."""
        counting = pluralize(len(self.values), "seed")
        if len(set(self.values.values())) > 1 or (self.values and self.excluded):
            counting += f": {', '.join(map(in_words, self.values.values()))}"
        missing = [f"{self.missing} {NOT_RUN}"] if self.missing else []
        return "; ".join([counting, *(seed.words for seed in self.excluded.values()), *missing])

    @property
    def dots(self) -> Sequence[Dot]:
        """A dot for every seed that has a number."""
        excluded = [Dot(seed.value, False) for seed in self.excluded.values() if seed.value is not None]
        return [*(Dot(value, True) for value in self.values.values()), *excluded]

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {
            "value": _number(self.value if self.values else None),
            "spread": self.spread if self.values else None,
            "seeds": {str(seed): _number(value) for seed, value in self.values.items()},
            "aside": {
                str(seed): {"why": each.why, "value": _number(each.value)}
                for seed, each in self.excluded.items()
            },
            "missing": self.missing,
            "between": list(self.interval) if self.has_bounds else None,
        }

    def __str__(self) -> str:
        if self.has_bounds:
            return " to ".join(map(in_words, dict.fromkeys(self.interval)))
        if not self.values:
            return "–"
        values = self.values.values()
        plain = (
            len(values) == 1 or inf in values or self.best or _is_rounding(self.value) or self.value >= 1000
        )
        return in_words(self.value) + ("" if plain else f" ± {self.spread:.3f}")


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
