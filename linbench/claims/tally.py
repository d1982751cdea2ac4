"""The seeds in which a condition is true, and whether they are enough to show it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from linbench.claims.evidence import Evidence
from linbench.claims.looks import LEVEL, LOOKS, critical_counts, look_at
from linbench.claims.quantities import Comparison, Every, Formula, Some

CountYes = Callable[[Comparison], float]
"""The number of seeds in which a comparison is true."""


@dataclass(frozen=True)
class Tally:
    """The answers of the seeds that all measures of a claim have.

    A seed of all measures together is one replicate of the experiment. Comparisons of measures that have no
    seeds, such as speeds, are true or not.
    """

    evidence: Mapping[str, Evidence]
    """The evidence of each measure, by name."""
    _answers: dict[str, list[bool | None]] = field(default_factory=dict, repr=False)

    @property
    def seeds(self) -> int:
        """The number of seeds that all measures have; 0 if none of them has seeds."""
        return min((each.complete_seeds for each in self.evidence.values() if each.has_seeds), default=0)

    @property
    def look(self) -> int | None:
        """The place in `LOOKS` of the look that counts; None: there are too few seeds for the first."""
        return look_at(self.seeds) if self.has_seeds else 0

    @property
    def has_seeds(self) -> bool:
        """True if any measure has seeds."""
        return any(each.has_seeds for each in self.evidence.values())

    def answers(self, comparison: Comparison) -> list[bool | None]:
        """Return whether a comparison is true of each seed; None: the seed does not tell."""
        key = str(comparison)
        if key not in self._answers:
            self._answers[key] = [self._answer(comparison, seed) for seed in range(self.seeds)]
        return self._answers[key]

    def _answer(self, comparison: Comparison, seed: int) -> bool | None:
        known = {name: self.evidence[name].of_seed(seed) for name in comparison.names}
        values = {name: bounds for name, bounds in known.items() if bounds is not None}
        return comparison.holds(values) if len(values) == len(known) else None

    def is_seeded(self, comparison: Comparison) -> bool:
        """Return whether a comparison has an answer for every seed, rather than one."""
        return any(self.evidence[name].has_seeds for name in comparison.names)

    def yes(self, comparison: Comparison, seeds: int) -> float:
        """Return in how many of the first seeds a comparison is true; infinity or 0 if it has no seeds."""
        if not self.is_seeded(comparison):
            return inf if self._answer(comparison, 0) else 0
        return sum(answer is True for answer in self.answers(comparison)[:seeds])

    def shows(self, formula: Formula) -> bool:
        """Return whether a condition is shown at the look that counts."""
        look = self.look
        if look is None:
            return False
        return is_shown(formula, look, lambda comparison: self.yes(comparison, LOOKS[look]))

    def further_seeds(self, formula: Formula) -> int | None:
        """Return how many more seeds would show a condition if they were like those seen; None: not so many.

        The share of seeds in which a comparison is true is taken to stay as it is.
        """
        seen = self.seeds

        def expected(size: int) -> CountYes:
            return lambda comparison: self.yes(comparison, seen) * size / seen

        return self._further(formula, expected) if seen else None

    def may_show(self, formula: Formula) -> bool:
        """Return whether a condition would be shown if it were true of all seeds that are not there yet."""
        seen = self.seeds

        def at_best(size: int) -> CountYes:
            return lambda comparison: self.yes(comparison, seen) + size - seen

        return self._further(formula, at_best) is not None

    def _further(self, formula: Formula, at: Callable[[int], CountYes]) -> int | None:
        for place, size in enumerate(LOOKS):
            if size > self.seeds and is_shown(formula, place, at(size)):
                return size - self.seeds
        return None

    def weakest(self, formula: Formula) -> Comparison | None:
        """Return the comparison that a condition rests on: the least true of all, the truest of several."""
        match formula:
            case Comparison():
                return formula
            case Every(parts) | Some(parts):
                found = [each for part in parts if (each := self.weakest(part))]
                pick = min if isinstance(formula, Every) else max
                return pick(found, key=lambda each: self.yes(each, self.seeds), default=None)


def is_shown(formula: Formula, look: int, yes: CountYes, level: float = LEVEL) -> bool:
    """Return whether a condition is shown at a level.

    All parts of an `and` must be shown, each at the full level (intersection-union). One part of an `or` must
    be shown, at its share of the level (Bonferroni).

    Args:
        look: the place in `LOOKS` of the look.
        yes: the number of seeds of that look in which a comparison is true.
        level: the chance of showing it by chance.
    """
    match formula:
        case Comparison():
            return yes(formula) >= critical_counts(level)[look]
        case Every(parts):
            return all(is_shown(part, look, yes, level) for part in parts)
        case Some(parts):
            return any(is_shown(part, look, yes, level / len(parts)) for part in parts)
