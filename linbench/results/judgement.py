"""Verdicts on accuracies before and after: which cells got worse, and which cannot be judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Literal, NamedTuple

from linbench.results.gate_policy import Policy
from linbench.results.gate_times import LaterRow, LearningPair
from linbench.results.power import (
    MOST_SEEDS,
    collapse_p,
    noisy_collapse_p,
    seeds_to_show_collapse,
    seeds_to_show_divergence,
    seeds_to_show_fall,
    seeds_to_show_noisy_collapse,
    significant,
    spread_of_differences,
    visible_count,
    visible_fall,
)
from linbench.results.scores import AT_CHANCE
from linbench.results.statistics import Difference, false_discovery, fisher, holm, paired

_ROUNDING = 1e-9
"""The rounding error allowed in a drop: in floats 0.9 - 0.88 is more than 0.02. Accuracies over a million
answers differ by a thousand times as much."""


class Verdict(StrEnum):
    """The verdict of a gate on a cell."""

    red = "RED"
    powerless = "cannot be red"
    """Not even a fall of every seed to chance would be significant."""
    uninformative = "uninformative"
    """Both sides are at chance."""
    collapsed = "at chance now, not shown"
    diverged = "all diverge now, not shown"
    noisy = "fell, too noisy to tell"
    """The candidate's seeds spread so far that not even a mean at chance would be significant."""
    diverges = "diverges more, not shown"
    fell = "fell, not shown"
    ok = "ok"


UNDECIDED = (Verdict.powerless, Verdict.collapsed, Verdict.diverged, Verdict.noisy)
"""Verdicts on cells of which it is open whether they got worse."""


class Noise(NamedTuple):
    """The noise of a cell: how far both accuracies of a seed lie apart though nothing got worse.

    Attributes:
        spread: the variance of their difference.
        source: where it comes from: the baseline's twins, which differ from it by a trifle in their first
            weights; the differences that were measured; or the worst case, in which runs of one seed have
            nothing in common.
    """

    spread: float
    source: Literal["twins", "measured", "worst case"]


class SeedPair(NamedTuple):
    """The test accuracies of a row on both sides, one for each seed, in the order of the same seeds.

    Attributes:
        learned_from: the accuracy from which on a seed has learned, if the cell is bimodal.
        diverged: the number of diverged seeds before and after.
        chance: the chance level.
        known: the noise, if it is known from elsewhere.
    """

    name: str
    baseline: Sequence[float]
    candidate: Sequence[float]
    learned_from: float | None = None
    diverged: tuple[int, int] = (0, 0)
    chance: float = 0.0
    known: Noise | None = None

    @property
    def seeds(self) -> int:
        """The number of seeds on each side."""
        return len(self.baseline)

    @property
    def noise(self) -> Noise:
        """The noise of the differences, or what is known of it if that is more.

        A change that does more than rounding does makes runs of one seed less alike than twins are.
        """
        measured = Noise(spread_of_differences(self.baseline, self.candidate), "measured")
        return max(self.known or measured, measured, key=lambda noise: noise.spread)

    @property
    def learned_counts(self) -> tuple[int, int] | None:
        """The number of seeds that learned, before and after; None if the cell is not bimodal."""
        if self.learned_from is None:
            return None
        before, after = (
            sum(value >= self.learned_from for value in side) for side in (self.baseline, self.candidate)
        )
        return before, after

    @property
    def at_chance(self) -> tuple[bool, bool]:
        """True for each side whose mean accuracy is at chance, before and after."""
        before, after = (
            fmean(side) <= self.chance + AT_CHANCE + _ROUNDING for side in (self.baseline, self.candidate)
        )
        return before, after


@dataclass(frozen=True)
class GateRow:
    """A pair with its verdict."""

    pair: SeedPair
    difference: Difference
    """The candidate's mean less the baseline's, by the t-test for pairs."""
    p: float
    """The one-sided p of the fall."""
    adjusted_p: float
    """The p adjusted for all gated cells, by the policy's correction."""
    dropped: bool
    """True if it fell by more than the policy lets pass, or more seeds diverge than before."""
    red: bool
    diverges: bool = False
    """True if the finding is that more seeds diverge. Their accuracy counts as chance, which may be no
    drop."""
    marks: tuple[str, ...] = ()
    """Marks of both sides, for the reader. They excuse nothing, since both had the same budget."""
    can_be_red: bool = True
    """True if the cell would be red if every seed fell to chance."""
    noisy: bool = False
    """True if it fell and would not be red even if its mean were chance, with seeds spread as they are."""
    seeds_needed: int | None = None
    """The number of seeds on each side that would show the fall; None if none are lacking, or no number would
    do."""
    level: float = 1.0
    """The level of its test if it alone falls."""
    drop: float = 0.0
    """The fall that passes whatever its p."""

    @property
    def visible(self) -> float | None:
        """The smallest fall that would very likely be red with these seeds; None if no fall could be.

        In a bimodal cell it is the largest number of seeds that still learn.
        """
        pair, seeds = self.pair, self.pair.seeds
        if pair.learned_counts is not None:
            return visible_count(pair.learned_counts[0], seeds=seeds, alpha=self.level)
        fall = visible_fall(pair.noise.spread, seeds=seeds, drop=self.drop, alpha=self.level)
        return fall if fall <= fmean(pair.baseline) - pair.chance else None

    @property
    def verdict(self) -> Verdict:
        """The verdict in one word."""
        before, after = self.pair.at_chance
        if self.red:
            return Verdict.red
        if self.diverges and self.pair.diverged[1] == len(self.pair.candidate):
            return Verdict.diverged
        if before and after:
            return Verdict.uninformative
        if not (before or self.can_be_red):  # what was at chance and is above it has not got worse
            return Verdict.powerless
        if after:
            return Verdict.collapsed
        if self.noisy:
            return Verdict.noisy
        if self.diverges:
            return Verdict.diverges
        return Verdict.fell if self.dropped else Verdict.ok


def judge(pairs: Sequence[SeedPair], policy: Policy) -> list[GateRow]:
    """Judge rows together. Each needs two pairs of seeds or more."""
    return judge_all(pairs, (), policy)[0]


def judge_all(
    pairs: Sequence[SeedPair], times: Sequence[LearningPair], policy: Policy
) -> tuple[list[GateRow], list[LaterRow]]:
    """Judge accuracies and tokens to learn together, with one correction for all tests.

    Each pair needs two seeds or more.
    """
    unadjusted = [_judge_alone(pair, policy) for pair in pairs]
    correct = holm if policy.correction == "holm" else false_discovery
    adjusted = correct([*(one.p for one in unadjusted), *(one.p for one in times)])
    judged = [
        replace(one, adjusted_p=p, red=one.dropped and significant(p, policy.alpha))
        for one, p in zip(unadjusted, adjusted[: len(pairs)], strict=True)
    ]
    later = [
        LaterRow(one, p, significant(p, policy.alpha))
        for one, p in zip(times, adjusted[len(pairs) :], strict=True)
    ]
    return [_with_power(one, policy, alpha=policy.alpha / len(adjusted)) for one in judged], later


def _judge_alone(pair: SeedPair, policy: Policy) -> GateRow:
    """Return the test of a row before the correction; it is not called red yet."""
    difference = paired(pair.candidate, pair.baseline, alternative="less")
    fell = -difference.mean - policy.drop > _ROUNDING
    diverges = not fell and pair.diverged[1] > pair.diverged[0]
    p = difference.p if pair.learned_from is None else _fewer_learn_p(pair)
    if diverges:
        p = _more_diverge_p(pair)
    return GateRow(pair, difference, p, p, fell or diverges, red=False, diverges=diverges)


def _with_power(one: GateRow, policy: Policy, *, alpha: float) -> GateRow:
    """Return a verdict with the power of its test: whether it could be red, and the seeds needed.

    Args:
        one: the verdict.
        policy: the rules.
        alpha: the level for this cell if it alone falls.
    """
    pair, seeds = one.pair, one.pair.seeds
    one = replace(one, level=alpha, drop=policy.drop)
    if one.red:
        return one
    loses = fmean(pair.baseline) - pair.chance - policy.drop > _ROUNDING
    lowest = collapse_p(pair.baseline, chance=pair.chance, learned_from=pair.learned_from, seeds=seeds)
    mean_falls = one.dropped and not one.diverges and pair.learned_from is None
    noisy = mean_falls and not significant(
        noisy_collapse_p(pair.baseline, pair.candidate, chance=pair.chance, seeds=seeds), alpha
    )
    able = replace(one, can_be_red=loses and significant(lowest, alpha), noisy=noisy)
    return replace(able, seeds_needed=_seeds_needed(able, alpha=alpha, loses=loses))


def _seeds_needed(one: GateRow, *, alpha: float, loses: bool) -> int | None:
    """Return the number of seeds on each side that would show what the verdict leaves open."""
    pair = one.pair
    if one.verdict is Verdict.diverged:
        return seeds_to_show_divergence(alpha=alpha)
    if one.verdict is Verdict.collapsed:
        return seeds_to_show_fall(pair.baseline, pair.candidate, learned_from=pair.learned_from, alpha=alpha)
    if one.verdict is Verdict.noisy:
        return seeds_to_show_noisy_collapse(pair.baseline, pair.candidate, chance=pair.chance, alpha=alpha)
    if one.verdict is Verdict.powerless and loses:
        return seeds_to_show_collapse(
            pair.baseline, chance=pair.chance, learned_from=pair.learned_from, alpha=alpha
        )
    return None


def _fewer_learn_p(pair: SeedPair) -> float:
    """Return the p of fewer seeds learning than before."""
    before, after = pair.learned_counts or (0, 0)
    return fisher(after, len(pair.candidate), before, len(pair.baseline), alternative="less")


def _more_diverge_p(pair: SeedPair) -> float:
    """Return the p of more seeds diverging than before."""
    before, after = pair.diverged
    of, reference = len(pair.candidate), len(pair.baseline)
    return fisher(of - after, of, reference - before, reference, alternative="less")


def undecided_reason(one: GateRow, policy: Policy, *, among: str) -> str | None:
    """Return why it is open whether a cell got worse, and what would help; None if it is not open.

    Args:
        one: the verdict on the cell.
        policy: the rules.
        among: the tests that the correction is for, in words.
    """
    pair, seeds = one.pair, len(one.pair.candidate)
    if one.verdict not in UNDECIDED:
        return None
    asked = f"{policy.alpha:g} among {among}"
    needed = (
        f"{one.seeds_needed} seeds on each side would do"
        if one.seeds_needed
        else f"{MOST_SEEDS:,} seeds would not do either"
    )
    if one.verdict is Verdict.diverged:
        return (
            f"{pair.name}: all {seeds} seeds diverge now and {pair.diverged[0]} did, which is not shown at"
            f" {asked}; {needed}."
        )
    if one.verdict is Verdict.collapsed:
        return (
            f"{pair.name} is at chance now, and {seeds} seeds do not show at {asked} that it fell; {needed}."
        )
    if one.verdict is Verdict.noisy:
        return (
            f"{pair.name} fell, and its {seeds} seeds lie so far apart that not even a mean at chance would"
            f" be shown at {asked}; {needed}."
        )
    reason = _why_powerless(pair, policy) or (
        f"with {seeds} seeds on each side not even a fall of all to chance is shown at {asked}; {needed}"
    )
    return f"{pair.name} cannot be red: {reason}."


def _why_powerless(pair: SeedPair, policy: Policy) -> str | None:
    """Return why no number of seeds could make a cell red; None if more seeds might."""
    mean = fmean(pair.baseline)
    if mean - pair.chance - policy.drop <= _ROUNDING:
        return (
            f"from {mean:.3f} to chance, {pair.chance:.3f}, is no more than the policy lets fall,"
            f" {policy.drop:g}"
        )
    if pair.learned_from is not None and pair.chance >= pair.learned_from:
        return f"chance, {pair.chance:.3f}, counts as learned by the policy, {pair.learned_from:g}"
    if pair.learned_counts and not pair.learned_counts[0]:
        return (
            "no seed of the baseline has learned it by the policy,"
            f" {pair.learned_from:g}, so none can stop learning it"
        )
    return None
