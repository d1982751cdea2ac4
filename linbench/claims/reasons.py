"""Why a claim is undecided, in sentences for readers who know nothing of how verdicts are made."""

import textwrap
from collections.abc import Mapping, Sequence

from linbench.claims.claim import Claim
from linbench.claims.evidence import Evidence, Obstacle
from linbench.claims.looks import MOST_SEEDS
from linbench.claims.quantities import Formula
from linbench.claims.tally import Tally
from linbench.common.text import pluralize

NOTHING_RUN = "not run yet"

NO_EXPERIMENT = "needs an experiment, and none is written yet"

BOTH_HOLD = "both rules hold, so one of them is wrong"

NEITHER_HOLDS = "neither rule holds"

NO_FIRST_SEED = "the first seed has not run in every measure yet"

MOST_NAMES = 3
"""More measures than these are counted instead of named."""

LONGEST = 70
"""Longer expressions (in characters) are cut in a sentence."""


def missing_parts(missing: Sequence[str]) -> str:
    """Return the sentence for a claim that needs what is not installed."""
    return f"needs what linbench does not have: {'; '.join(missing)}"


def obstacles(evidence: Mapping[str, Evidence]) -> str:
    """Return what keeps measures from deciding, measures with the same obstacle together; empty if none."""
    alike: dict[str, dict[str, Obstacle]] = {}
    for name, each in evidence.items():
        for obstacle in each.obstacles:
            alike.setdefault(obstacle.words, {})[name] = obstacle
    return "; ".join(_obstacle(words, by_measure, len(evidence)) for words, by_measure in alike.items())


def _obstacle(words: str, by_measure: Mapping[str, Obstacle], measures: int) -> str:
    names = list(by_measure)
    subject = _subject(names, measures)
    counts = sorted({obstacle.seeds or obstacle.of for obstacle in by_measure.values()})
    of = max(obstacle.of for obstacle in by_measure.values())
    if all(obstacle.seeds is None for obstacle in by_measure.values()):
        return f"{subject} {words}"
    if counts == [1] and len(names) == 1:
        words = words.replace("were ", "was ", 1).replace("are ", "is ", 1)
    if counts == [of]:
        return f"all {of} seeds of {subject} {words}"
    return f"{_range(counts)} of {of} seeds of {subject} {words}"


def _subject(names: Sequence[str], measures: int) -> str:
    if len(names) > MOST_NAMES:
        return (
            f"all {measures} measures" if len(names) == measures else f"{len(names)} of {measures} measures"
        )
    return _listed(names)


def _range(counts: Sequence[int]) -> str:
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} {'or' if len(counts) == 2 else 'to'} {counts[-1]}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def devices_disagree(outcomes: Mapping[str, str]) -> str:
    """Return the sentence for kinds of devices with different outcomes."""
    return "devices disagree: " + ", ".join(f"{outcome} on {kind}" for kind, outcome in outcomes.items())


def by_device(reasons: Mapping[str, str]) -> str:
    """Return the reasons of all kinds of devices; the only one of a single kind does not name it."""
    if len(reasons) == 1:
        return next(iter(reasons.values()))
    return ". ".join(on_device(kind, reason) for kind, reason in reasons.items())


def on_device(kind: str, reason: str) -> str:
    """Return the reason of one kind of device, with its name."""
    return f"On {kind}: {reason}"


def undecided(claim: Claim, tally: Tally) -> str:
    """Return why the seeds of a claim do not decide it, and how many more would if they were alike."""
    if not tally.has_seeds or not tally.seeds:
        return obstacles(tally.evidence) or (NO_FIRST_SEED if tally.has_seeds else _neither(claim, tally))
    marked = obstacles(tally.evidence)
    further = {
        verb: (seeds, rule.formula)
        for verb, rule in zip(("support", "refute"), claim.rules, strict=True)
        if (seeds := tally.further_seeds(rule.formula)) is not None
    }
    if further:
        verb, (seeds, formula) = min(further.items(), key=lambda item: item[1][0])
        words = f"{basis(tally, formula)}; {seeds} more like {_them(tally)} would {verb} it"
    elif failing := [part for part in claim.premises if tally.further_seeds(part) is None]:
        words = f"what both rules require is too rare: {basis(tally, failing[0])}"
    else:
        words = _neither(claim, tally)
    return "; ".join(filter(None, [words, marked]))


def _neither(claim: Claim, tally: Tally) -> str:
    """Return the sentence for a claim that more seeds like those seen would not decide."""
    rules = zip(("support", "refutation"), (rule.formula for rule in claim.rules), strict=True)
    needs = ", ".join(f"{verb} needs {basis(tally, formula)}" for verb, formula in rules)
    if not tally.has_seeds:
        return f"{NEITHER_HOLDS}: {needs}"
    if tally.seeds >= MOST_SEEDS:
        return f"undecided after {tally.seeds} seeds: {needs}"
    return f"{MOST_SEEDS} seeds like {_them(tally)} would not decide it: {needs}"


def _them(tally: Tally) -> str:
    return "this one" if tally.seeds == 1 else f"these {tally.seeds}"


def basis(tally: Tally, formula: Formula) -> str:
    """Return the comparison that a condition rests on, and the number of seeds in which that is true."""
    weakest = tally.weakest(formula)
    if weakest is None:
        return str(formula)
    text = textwrap.shorten(str(weakest), LONGEST, placeholder=" ...")
    if not tally.is_seeded(weakest):
        return text
    return f"{text}, true in {_share(tally.yes(weakest, tally.seeds), tally.seeds)}"


def _share(yes: float, seeds: int) -> str:
    if yes == seeds:
        return "the only seed" if seeds == 1 else f"all {seeds} seeds"
    return f"{yes:g} of {pluralize(seeds, 'seed')}"


def agreement(tally: Tally, formula: Formula) -> str:
    """Return in how many seeds a condition that was shown is true; empty if it has no seeds."""
    weakest = tally.weakest(formula)
    if weakest is None or not tally.is_seeded(weakest):
        return ""
    return f"in {_share(tally.yes(weakest, tally.seeds), tally.seeds)}"
