"""Why a claim is undecided, in sentences for readers who know nothing of how verdicts are made."""

import ast
import textwrap
from collections.abc import Mapping, Sequence

from linbench.claims.evidence import Evidence, Obstacle
from linbench.claims.interval import Interval, NoValueError
from linbench.claims.rule import Rule, Threshold, evaluate
from linbench.claims.seed_evidence import in_words

NOTHING_RUN = "not run yet"

NO_EXPERIMENT = "needs an experiment, and none is written yet"

BOTH_HOLD = "both rules hold, so one of them is wrong"

NEITHER_HOLDS = "neither rule holds"

EITHER_WAY = "longer training could decide it either way"

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


def depends_on_one_change(first: Evidence, outcome: str, other: str, change: str) -> str:
    """Return the sentence for an outcome that one small change of one measure turns into another."""
    return f"{first.fragile} ({outcome} {first.basis}, {other} {change})"


def premises_fail(premises: Sequence[str]) -> str:
    """Return the sentence for a claim whose experiment did not reach what both of its rules require."""
    return f"what both rules require was not reached: {' and '.join(premises)}"


def devices_disagree(outcomes: Mapping[str, str]) -> str:
    """Return the sentence for kinds of devices with different outcomes."""
    return "devices disagree: " + ", ".join(f"{outcome} on {kind}" for kind, outcome in outcomes.items())


def with_training(reason: str, budget: int) -> str:
    """Return a reason, with how much longer the models were trained."""
    return f"with {budget} times the training: {reason}" if budget > 1 else reason


def by_device(reasons: Mapping[str, str]) -> str:
    """Return the reasons of all kinds of devices; the only one of a single kind does not name it."""
    if len(reasons) == 1:
        return next(iter(reasons.values()))
    return ". ".join(on_device(kind, reason) for kind, reason in reasons.items())


def on_device(kind: str, reason: str) -> str:
    """Return the reason of one kind of device, with its name."""
    return f"On {kind}{' ' if reason.startswith('with ') else ': '}{reason}"


def rule_met(rule: Rule, values: Mapping[str, Interval], spreads: Mapping[str, float]) -> str:
    """Return how a rule is met, for a claim with too many measures to name them all.

    Args:
        rule: the rule, which is true.
        values: by the names of measures.
        spreads: standard deviations over seeds, by the same names.
    """
    holding = [each for each in rule.alternatives if each.holds(values, spreads)]
    if holding and (threshold := holding[0].threshold):
        return f"{_shown(threshold, values, spreads)}, and the rule needs {threshold}"
    count = len(rule.parts)
    return f"{'both' if count == 2 else f'all {count}'} conditions on {len(rule.names)} measures are met"


def between_thresholds(
    supported: Rule, refuted: Rule, values: Mapping[str, Interval], spreads: Mapping[str, float]
) -> str:
    """Return the sentence for values that neither support nor refute a claim.

    Args:
        supported, refuted: the rules, neither of which is true.
        values: by the names of measures.
        spreads: standard deviations over seeds, by the same names.
    """
    try:
        return _between(supported, refuted, values, spreads)
    except NoValueError:  # the difference of two sides may have no value, though they can be compared
        return NEITHER_HOLDS


def _between(
    supported: Rule, refuted: Rule, values: Mapping[str, Interval], spreads: Mapping[str, float]
) -> str:
    upper, lower = supported.threshold, refuted.threshold
    if upper and lower and ast.dump(upper.expression) == ast.dump(lower.expression):
        low, high = sorted([upper.bound, lower.bound])
        return f"{_shown(upper, values, spreads)}, between the two thresholds ({low:g} and {high:g})"
    failing = [part for part in supported.parts if part.holds(values, spreads) is False]
    threshold = failing[0].threshold if failing else None
    if threshold is None:
        return NEITHER_HOLDS
    return f"{NEITHER_HOLDS}, as {_shown(threshold, values, spreads)} and support needs {threshold}"


def _shown(threshold: Threshold, values: Mapping[str, Interval], spreads: Mapping[str, float]) -> str:
    """Return the expression of a threshold with its value."""
    value = " to ".join(map(in_words, dict.fromkeys(evaluate(threshold.expression, values, spreads))))
    text = ast.unparse(threshold.expression)
    return f"{textwrap.shorten(text, LONGEST, placeholder=' ...')} is {value}"
