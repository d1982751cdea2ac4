"""Accuracies before and after: which cells got worse, and of which it cannot be told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from linbench.common.text import pluralize
from linbench.results.gate_policy import Policy
from linbench.results.power import (
    MOST_SEEDS,
    collapse_p,
    noisy_collapse_p,
    seeds_to_show_collapse,
    seeds_to_show_divergence,
    seeds_to_show_fall,
    seeds_to_show_noisy_collapse,
    shown,
)
from linbench.results.statistics import Difference, fisher, holm, welch

_ROUNDING = 1e-9
"""What floats may make of a fall: 0.9 - 0.88 is more than 0.02 to them. Shares of a million answers are a
thousand times as far apart."""


AT_CHANCE = 0.02
"""By how much mean accuracy may lie above chance and still be nothing that could be lost: two points, as the
policy lets pass by default."""


class Verdict(StrEnum):
    """What a gate says of a cell."""

    red = "RED"
    powerless = "cannot be red"
    """Even if every seed fell to chance, that would not be shown."""
    uninformative = "uninformative"
    """At chance on both sides."""
    collapsed = "at chance now, not shown"
    diverged = "all diverge now, not shown"
    noisy = "fell, too noisy to tell"
    """So wide apart are the candidate's seeds that not even a mean at chance would be shown."""
    diverges = "diverges more, not shown"
    fell = "fell, not shown"
    ok = "ok"


UNTOLD = (Verdict.powerless, Verdict.collapsed, Verdict.diverged, Verdict.noisy)
"""Verdicts of cells of which it cannot be told whether they got worse."""


class Pair(NamedTuple):
    """One row of a table as both sides have it: test accuracies, one per seed. learnt: where it is bimodal,
    from which on a seed has learnt. diverged: how many did, before and after. chance: the accuracy of who
    knows nothing."""

    name: str
    baseline: Sequence[float]
    candidate: Sequence[float]
    learnt: float | None = None
    diverged: tuple[int, int] = (0, 0)
    chance: float = 0.0

    @property
    def counts(self) -> tuple[int, int] | None:
        """Seeds that learnt, before and after."""
        if self.learnt is None:
            return None
        before, after = (
            sum(value >= self.learnt for value in side) for side in (self.baseline, self.candidate)
        )
        return before, after

    @property
    def at_chance(self) -> tuple[bool, bool]:
        """Whether there was anything to lose before, and is now."""
        before, after = (
            fmean(side) <= self.chance + AT_CHANCE + _ROUNDING for side in (self.baseline, self.candidate)
        )
        return before, after


@dataclass(frozen=True)
class Judged:
    """A pair with its verdict."""

    pair: Pair
    difference: Difference
    """Candidate less baseline, by Welch."""
    p: float
    """One-sided: that it fell."""
    counted: float
    """p among all that are gated, by Holm."""
    fell: bool
    """By more than the policy lets pass, or else more seeds diverge than did."""
    red: bool
    diverges: bool = False
    """Whether it is of seeds that diverge: their accuracy counts as chance, which may be no less than
    before."""
    marks: tuple[str, ...] = ()
    """Of both sides, for the reader: they excuse nothing, as both had the same budget."""
    can_be_red: bool = True
    """Whether it would be if every seed fell to chance."""
    noisy: bool = False
    """Whether it fell and would not be red if its mean were chance, with seeds as wide apart as they are."""
    seeds_needed: int | None = None
    """On each side, so that it could be, or so that this fall would be shown; None: nothing is lacking, or no
    number of them would do."""

    @property
    def verdict(self) -> Verdict:
        """In one word."""
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
        return Verdict.diverges if self.diverges else Verdict.fell if self.fell else Verdict.ok


def judge(pairs: Sequence[Pair], policy: Policy) -> list[Judged]:
    """All of them together. Each needs two seeds or more on both sides."""
    differences = [welch(pair.candidate, pair.baseline, alternative="less") for pair in pairs]
    ps = [
        difference.p if pair.learnt is None else _fewer(pair)
        for pair, difference in zip(pairs, differences, strict=True)
    ]
    falls = [-difference.mean - policy.drop > _ROUNDING for difference in differences]
    diverge = [
        not fell and pair.diverged[1] > pair.diverged[0] for pair, fell in zip(pairs, falls, strict=True)
    ]
    ps = [_more_diverge(pair) if more else p for pair, p, more in zip(pairs, ps, diverge, strict=True)]
    judged = [
        Judged(
            pair,
            difference,
            p,
            counted,
            fell or more,
            red=(fell or more) and shown(counted, policy.alpha),
            diverges=more,
        )
        for pair, difference, p, counted, fell, more in zip(
            pairs, differences, ps, holm(ps), falls, diverge, strict=True
        )
    ]
    return [_with_power(one, policy, alpha=policy.alpha / len(judged)) for one in judged]


def _with_power(one: Judged, policy: Policy, *, alpha: float) -> Judged:
    """What is not red with whether it could be. alpha: of this cell, where it alone falls: the first that
    Holm's correction looks at."""
    pair, seeds = one.pair, min(len(one.pair.baseline), len(one.pair.candidate))
    if one.red:
        return one
    loses = fmean(pair.baseline) - pair.chance - policy.drop > _ROUNDING
    lowest = collapse_p(pair.baseline, chance=pair.chance, learnt=pair.learnt, seeds=seeds)
    mean_falls = one.fell and not one.diverges and pair.learnt is None
    noisy = mean_falls and not shown(
        noisy_collapse_p(pair.baseline, pair.candidate, chance=pair.chance, seeds=seeds), alpha
    )
    able = replace(one, can_be_red=loses and shown(lowest, alpha), noisy=noisy)
    if able.verdict is Verdict.diverged:
        return replace(able, seeds_needed=seeds_to_show_divergence(alpha=alpha))
    if able.verdict is Verdict.collapsed:
        return replace(
            able,
            seeds_needed=seeds_to_show_fall(pair.baseline, pair.candidate, learnt=pair.learnt, alpha=alpha),
        )
    if able.verdict is Verdict.noisy:
        return replace(
            able,
            seeds_needed=seeds_to_show_noisy_collapse(
                pair.baseline, pair.candidate, chance=pair.chance, alpha=alpha
            ),
        )
    if able.verdict is Verdict.powerless and loses:
        return replace(
            able,
            seeds_needed=seeds_to_show_collapse(
                pair.baseline, chance=pair.chance, learnt=pair.learnt, alpha=alpha
            ),
        )
    return able


def _fewer(pair: Pair) -> float:
    """That fewer seeds learn than did."""
    before, after = pair.counts or (0, 0)
    return fisher(after, len(pair.candidate), before, len(pair.baseline), alternative="less")


def _more_diverge(pair: Pair) -> float:
    """That more seeds diverge than did."""
    before, after = pair.diverged
    of, reference = len(pair.candidate), len(pair.baseline)
    return fisher(of - after, of, reference - before, reference, alternative="less")


def why_untold(one: Judged, policy: Policy, *, cells: int) -> str | None:
    """Why it cannot be told whether a cell got worse, and what would help; None: it can."""
    pair, seeds = one.pair, len(one.pair.candidate)
    if one.verdict not in UNTOLD:
        return None
    asked = f"{policy.alpha:g} among {pluralize(cells, 'cell')}"
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
    mean = fmean(pair.baseline)
    if mean - pair.chance - policy.drop <= _ROUNDING:
        return (
            f"{pair.name} cannot be red: from {mean:.3f} to chance, {pair.chance:.3f}, is no more than the"
            f" policy lets fall, {policy.drop:g}."
        )
    if pair.learnt is not None and pair.chance >= pair.learnt:
        return (
            f"{pair.name} cannot be red: chance, {pair.chance:.3f}, counts as learnt by the policy,"
            f" {pair.learnt:g}."
        )
    if pair.counts and not pair.counts[0]:
        return (
            f"{pair.name} cannot be red: no seed of the baseline has learnt it by the policy,"
            f" {pair.learnt:g}, so that none can stop to."
        )
    return (
        f"{pair.name} cannot be red: with {seeds} seeds on each side not even a fall of all to chance is"
        f" shown at {asked}; {needed}."
    )
