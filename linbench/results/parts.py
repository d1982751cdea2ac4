"""Effects of the steps from linear attention to KDA, and how far steps depend on each other.

The models of a factorial differ in nothing but parts of KDA, which are switched on and off in every
combination. A step is one more part. Its effect is the mean difference that it makes, over all combinations
of the other parts. The interaction of two steps is how much more one changes where the other is taken.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, variance
from typing import Any, NamedTuple

from linbench.common.settings import without
from linbench.results.comparison import Comparison, Row
from linbench.results.statistics import degrees_of_freedom

CONFIDENCE = 0.95
"""The confidence with which all intervals of one task hold together."""

HOST = "kda"
"""The mixer whose parts are switched."""


class Step(NamedTuple):
    """One more part: a setting that goes from one value to the next."""

    name: str
    setting: str
    before: Any
    after: Any


STEPS = (
    Step("short convolution", "conv", 0, 4),
    Step("norm of q and k", "qk_norm", "none", "l2"),
    Step("output gate", "output_gate", "none", "sigmoid"),
    Step("decay per head", "decay", "none", "head"),
    Step("decay per channel", "decay", "head", "channel"),
    Step("delta rule", "erases", False, True),
    Step("negative eigenvalues", "neg_eigval", False, True),
)
"""The steps, in the order of tables. Those that change one setting follow each other."""

SETTINGS = tuple(dict.fromkeys(step.setting for step in STEPS))

Parts = tuple[Any, ...]
"""A combination: the value of each of `SETTINGS`."""


class Effect(NamedTuple):
    """The change that a step makes, or how much larger it is beside another step.

    Attributes:
        steps: the step, or the two steps of an interaction.
        mean: the difference of accuracy, a mean over all combinations of the other parts.
        low: the lower end of its interval.
        high: the upper end.
        contrasts: the number of differences in the mean.
    """

    steps: tuple[Step, ...]
    mean: float
    low: float
    high: float
    contrasts: int

    @property
    def name(self) -> str:
        """Its name in tables."""
        return " and ".join(step.name for step in self.steps)

    @property
    def shown(self) -> bool:
        """True if zero is outside of its interval."""
        return not self.low <= 0 <= self.high


class Factorial(NamedTuple):
    """The models of a comparison that differ in parts of KDA alone.

    Attributes:
        scores: the accuracy of each seed by combination; a seed that diverged counts as chance.
        diverged: combinations beside these of which every seed diverged.
        open: combinations of which a seed has more rungs before it.
    """

    scores: dict[Parts, list[float]]
    diverged: frozenset[Parts]
    open: frozenset[Parts] = frozenset()

    @property
    def combinations(self) -> frozenset[Parts]:
        """All combinations that have run."""
        return self.diverged | self.scores.keys()


def factorial_of(comparison: Comparison) -> Factorial | None:
    """Return the models that differ in parts of KDA; None if no two steps are crossed.

    Of models that differ in anything else the most alike count. What diverges whatever its seed has no score:
    as chance it would count as a loss by every step that was taken with it.
    """
    alike: dict[str, list[tuple[Parts, Row]]] = {}
    for row in comparison.rows:
        layers = row.results[0]["cell"]["model"]["layers"]
        settings = layers[0]["settings"]
        if all(layer == layers[0] for layer in layers) and layers[0]["mixer"] == HOST:
            parts = tuple(settings.get(name, _published(name)) for name in SETTINGS)
            others = str(sorted(without(settings, set(SETTINGS)).items()))
            alike.setdefault(others, []).append((parts, row))
    every = max(alike.values(), key=len, default=[])
    scores = {
        parts: row.accuracies for parts, row in every if any(one["status"] == "ok" for one in row.results)
    }
    if not any(len(steps) > 1 for steps, _, _ in _effects(scores)):
        return None
    is_open = frozenset(parts for parts, row in every if any(one["purpose"] == "rung" for one in row.results))
    return Factorial(scores, frozenset(parts for parts, _ in every) - scores.keys(), is_open)


def _published(name: str) -> Any:
    """Return the value of a setting that a result does not name: it has the whole of KDA, as all once had."""
    return next(step.after for step in reversed(STEPS) if step.setting == name)


def effects(scores: Mapping[Parts, Sequence[float]]) -> list[Effect]:
    """Return the effect of every step, then the interaction of every two, where combinations allow.

    The variance of seeds is each combination's own (Welch 1947, doi:10.2307/2332510). The intervals of all
    effects together hold with `CONFIDENCE` (Bonferroni).

    Args:
        scores: at least two for each combination; those with fewer are left out.
    """
    from scipy.special import stdtrit  # where it is needed: scipy takes half a second to load

    known = {parts: own for parts, own in scores.items() if len(own) > 1}
    found = list(_effects(known))
    level = 1 - (1 - CONFIDENCE) / (2 * len(found)) if found else CONFIDENCE
    means = {parts: fmean(own) for parts, own in known.items()}
    of_means = {parts: variance(own) / len(own) for parts, own in known.items()}
    made = []
    for steps, weights, contrasts in found:
        mean = sum(weight * means[parts] for parts, weight in weights.items())
        shares = [weight**2 * of_means[parts] for parts, weight in weights.items()]
        margin = 0.0
        if any(shares):
            degrees = degrees_of_freedom(shares, [len(known[parts]) for parts in weights])
            margin = float(stdtrit(degrees, level)) * sum(shares) ** 0.5
        made.append(Effect(steps, mean, mean - margin, mean + margin, contrasts))
    return made


def _effects(
    known: Mapping[Parts, Sequence[float]],
) -> Iterator[tuple[tuple[Step, ...], dict[Parts, float], int]]:
    """Yield the steps of each effect, the weight of each combination in it, and the number of differences."""
    pairs = [pair for pair in combinations(STEPS, 2) if pair[0].setting != pair[1].setting]
    for steps in [*((step,) for step in STEPS), *pairs]:
        corners = [own for parts in known if (own := _corners(parts, steps)) and own.keys() <= known.keys()]
        weights = Counter[Parts]()
        for own in corners:
            weights.update(own)
        if corners:
            yield steps, {parts: sign / len(corners) for parts, sign in weights.items() if sign}, len(corners)


def _corners(parts: Parts, steps: Sequence[Step]) -> dict[Parts, int]:
    """Return the combinations that take some of these steps from one, with their signs in the effect.

    Empty if that combination does not stand where all of the steps begin.
    """
    if any(parts[SETTINGS.index(step.setting)] != step.before for step in steps):
        return {}
    corners = {parts: (-1) ** len(steps)}
    for step in steps:
        place = SETTINGS.index(step.setting)
        corners |= {(*own[:place], step.after, *own[place + 1 :]): -sign for own, sign in corners.items()}
    return corners
