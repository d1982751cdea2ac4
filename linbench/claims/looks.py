"""Numbers of seeds at which a claim is looked at, and how many must agree.

A comparison of a quantity with a number is asked of every seed. If the median of the quantity were on the
other side, each seed would say yes with probability 1/2 at most. So many seeds must say yes that this would
happen by chance at no more than the level of the claim, over all looks together. This is an exact sign test;
it holds for every distribution, also for one of two values.
"""

from functools import cache
from math import comb

LOOKS = (14, 24, 32)
"""The numbers of seeds at which a claim is looked at, until it is decided (chosen).

At the level of a claim 14 seeds can just decide. Of 32, 27 are needed, which a condition that holds in 90 %
of replicates reaches with a probability of 91 %.
"""

MOST_SEEDS = LOOKS[-1]
"""The seeds after which a claim stays undecided."""

ERROR = 0.05
"""The chance that any verdict at all is wrong, at most."""

MOST_CLAIMS = 100
"""The number of claims among which `ERROR` is shared out equally (Bonferroni)."""

LEVEL = ERROR / (2 * MOST_CLAIMS)
"""The chance that one rule of one claim is shown by chance, at most; a claim has two."""


def look_at(seeds: int) -> int | None:
    """Return the place in `LOOKS` of the last look that so many seeds allow; None: not even the first."""
    return max((place for place, size in enumerate(LOOKS) if size <= seeds), default=None)


@cache
def critical_counts(level: float = LEVEL, looks: tuple[int, ...] = LOOKS) -> tuple[int, ...]:
    """Return how many seeds must say yes at each look; more than there are seeds: that look never decides.

    The level is spent in proportion to the seeds. What one look leaves is there for the next. The chance is
    exact: seeds are counted as a walk in which yes and no are equally likely, and walks that have crossed at
    a look are taken out.

    Args:
        level: the chance of ever crossing, at most.
        looks: the numbers of seeds, rising.
    """
    counts: list[int] = []
    walks = {0: 1}  # walks that have not crossed yet, by their number of yes
    seeds, crossed = 0, 0.0
    for size in looks:
        walks = _continued(walks, size - seeds)
        seeds = size
        allowed = level * size / looks[-1] - crossed
        critical = seeds + 1
        while _share(walks, critical - 1, seeds) <= allowed:
            critical -= 1
        crossed += _share(walks, critical, seeds)
        walks = {yes: ways for yes, ways in walks.items() if yes < critical}
        counts.append(critical)
    return tuple(counts)


def _continued(walks: dict[int, int], steps: int) -> dict[int, int]:
    """Return the number of walks to each place after more steps."""
    longer: dict[int, int] = {}
    for yes, ways in walks.items():
        for more in range(steps + 1):
            longer[yes + more] = longer.get(yes + more, 0) + ways * comb(steps, more)
    return longer


def _share(walks: dict[int, int], least: int, seeds: int) -> float:
    """Return the share of all walks of so many steps that are among these and have `least` yes or more."""
    return float(sum(ways for yes, ways in walks.items() if yes >= least) / 2**seeds)
