"""The verdict on a claim: supported, refuted or undecided, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linbench.claims import reasons
from linbench.claims.claim import Claim
from linbench.claims.evidence import Evidence
from linbench.claims.interval import Interval, NoValueError
from linbench.claims.requirements import missing_requirements
from linbench.claims.rule import Rule
from linbench.claims.stored_results import Stored

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"

MOST_VALUES = 4
"""More values than these are not written out in the line of a claim."""

NOTHING_TRAINED = "nothing trained"
"""The word in place of a kind of device if a claim needs none."""


@dataclass(frozen=True)
class Ruling:
    """The outcome on one kind of device. Results of two kinds of devices never decide a claim together."""

    kind: str
    """The kind of device."""
    evidence: Mapping[str, Evidence]
    """The evidence of every measure, by name, also of those that no rule names."""
    outcome: str
    reason: str
    """Why it is undecided; empty if it is decided."""
    complete: bool
    """True if no result is missing."""
    qualifiers: tuple[str, ...] = ()
    """Limits of the evidence that decides, in words."""
    budget: int = 1
    """The length of training, as a multiple of what the claim asks for."""
    improving: bool = False
    """True if longer training, which can still be asked for, may be all that is missing."""

    @property
    def needs_training(self) -> bool:
        """True if it is undecided and asks for longer training."""
        return self.improving and self.outcome == UNDECIDED

    @property
    def seen(self) -> bool:
        """True if any result was found."""
        return any(evidence.seen for evidence in self.evidence.values())


@dataclass(frozen=True)
class Verdict:
    """The outcome over all kinds of devices."""

    claim: Claim
    outcome: str
    reason: str
    """Why it is undecided; empty if it is decided."""
    rulings: tuple[Ruling, ...]
    waits: bool = False
    """True if the claim needs something that is not installed or not written."""

    @property
    def complete(self) -> bool:
        """True if some kind of device has all results and asks for no longer training."""
        return any(ruling.complete and not ruling.needs_training for ruling in self.rulings)

    @property
    def needs_training(self) -> bool:
        """True if longer training is to be run."""
        return not self.complete and any(ruling.needs_training for ruling in self.rulings)

    @property
    def qualifiers(self) -> list[str]:
        """Limits of the outcome, in words; empty for an undecided claim."""
        deciding = [ruling for ruling in self.rulings if ruling.outcome == self.outcome != UNDECIDED]
        return list(dict.fromkeys(words for ruling in deciding for words in ruling.qualifiers))

    @property
    def brief(self) -> str:
        """Why it is undecided, by the kind of device that is closest to deciding it."""
        undecided = [ruling for ruling in self.rulings if ruling.outcome == UNDECIDED]
        if len(undecided) < 2 or len(undecided) < len(self.rulings):
            return self.reason
        closest = min(undecided, key=lambda ruling: (self._blocked(ruling), -ruling.budget))
        return reasons.on_device(closest.kind, closest.reason)

    @property
    def values(self) -> str:
        """The values of its measures in words; if there are many, the value of one condition."""
        ruling = next(ruling for ruling in self.rulings if ruling.outcome == self.outcome)
        evidence = {measure.name: ruling.evidence[measure.name] for measure in self.claim.deciding}
        rule = self.claim.supported if self.outcome == SUPPORTED else self.claim.refuted
        if len(evidence) <= MOST_VALUES or rule is None:
            return ", ".join(f"{name} {each}" for name, each in evidence.items())
        return reasons.rule_met(rule, *_numbers(evidence))

    def _blocked(self, ruling: Ruling) -> int:
        """Return how many of the measures that decide have obstacles."""
        return sum(bool(ruling.evidence[measure.name].obstacles) for measure in self.claim.deciding)

    def next_budget(self, kind: str) -> int:
        """Return how many times the training is to be run on a kind of device.

        A device without results starts where the others are: training that is too short there is too short
        here.
        """
        budgets = {ruling.kind: self._needed_budget(ruling) for ruling in self.rulings}
        return budgets.get(kind) or max(budgets.values(), default=self.claim.budgets[0])

    def _needed_budget(self, ruling: Ruling) -> int:
        budgets = self.claim.budgets
        return budgets[budgets.index(ruling.budget) + ruling.needs_training]

    def result_ids(self, ruling: Ruling, stored: Stored) -> set[str]:
        """Return the ids of the stored results that one of its rulings rests on."""
        ids = set[str]()
        for measure in self.claim.deciding:
            ids |= measure.result_ids(stored, ruling.kind, ruling.budget)
        return ids


def verdict(claim: Claim, stored: Stored) -> Verdict:
    """Decide a claim by what is stored, and by what needs no training."""
    if missing := missing_requirements(claim):
        return Verdict(claim, UNDECIDED, reasons.missing_parts(missing), (), waits=True)
    if not claim.measures:
        return Verdict(claim, UNDECIDED, reasons.NO_EXPERIMENT, (), waits=True)
    kinds = stored.kinds if claim.uses_device else [NOTHING_TRAINED]
    every = (rule_on_device(claim, stored, kind) for kind in kinds)
    rulings = tuple(ruling for ruling in every if ruling.seen)
    outcomes = {ruling.outcome for ruling in rulings if ruling.outcome != UNDECIDED}
    if len(outcomes) == 1:
        return Verdict(claim, outcomes.pop(), "", rulings)
    if outcomes:
        reason = reasons.devices_disagree({ruling.kind: ruling.outcome for ruling in rulings})
    elif rulings:
        reason = reasons.by_device({ruling.kind: ruling.reason for ruling in rulings})
    else:
        reason = reasons.NOTHING_RUN
    return Verdict(claim, UNDECIDED, reason, rulings)


def rule_on_device(claim: Claim, stored: Stored, kind: str) -> Ruling:
    """Decide a claim on one kind of device, by the longest training that was asked for.

    Longer training is looked at if shorter one does not decide. If shorter one decides only because it does
    not matter how much its runs still improve, a complete longer one takes its place. On a device without
    results of the shortest, training may have started with a longer one.
    """
    budgets = claim.budgets
    ruling = _rule(claim, stored, kind, budgets[0])
    for budget in budgets[1:]:
        started = _started(ruling, claim)
        if started and not ruling.improving:
            return ruling
        longer = _rule(claim, stored, kind, budget)
        replaces = longer.complete if ruling.outcome != UNDECIDED else _started(longer, claim)
        if started and not replaces:
            return ruling
        if _started(longer, claim):
            ruling = longer
    return replace(ruling, improving=False)


def _started(ruling: Ruling, claim: Claim) -> bool:
    """Return whether there is any result of a model whose training may be lengthened."""
    trained = [measure for measure in claim.deciding if len(measure.source.budgets) > 1]
    return any(ruling.evidence[measure.name].seen for measure in trained)


def _rule(claim: Claim, stored: Stored, kind: str, budget: int) -> Ruling:
    evidence = {name: each.evidence(stored, kind, budget) for name, each in claim.measures.items()}
    deciding = {measure.name: evidence[measure.name] for measure in claim.deciding}
    outcome, reason = decide(claim, deciding)
    blocked = [each for each in deciding.values() if each.obstacles]
    if blocked:
        improving = all(each.needs_training for each in blocked)
    else:
        improving = bool(_failing_premises(claim, deciding))
    return Ruling(
        kind,
        evidence,
        outcome,
        reasons.with_training(reason, budget) if reason else "",
        complete=not any(each.missing for each in deciding.values()),
        qualifiers=tuple(dict.fromkeys(words for each in deciding.values() for words in each.qualifiers)),
        budget=budget,
        improving=improving,
    )


def decide(claim: Claim, evidence: Mapping[str, Evidence]) -> tuple[str, str]:
    """Apply the rules of a claim.

    An outcome stands only if no small change of one measure gives another: no seed left out, no speed at its
    20th or 80th percentile. Nor may it depend on how good runs become that were still improving.

    Args:
        evidence: the evidence of the measures that the rules name.

    Returns:
        the outcome, and why it is undecided (empty if it is decided).
    """
    blocked = reasons.obstacles(evidence)
    if any(each.obstacles and not each.has_bounds for each in evidence.values()):
        return UNDECIDED, blocked
    outcome, reason = _outcome(claim, evidence)
    if outcome == UNDECIDED:
        return outcome, blocked or reason
    for name, each in evidence.items():
        for change, changed in each.perturbations(name):
            other, _ = _outcome(claim, {**evidence, name: changed})
            if other != outcome:
                return UNDECIDED, blocked or reasons.depends_on_one_change(each, outcome, other, change)
    return outcome, ""


def _outcome(claim: Claim, evidence: Mapping[str, Evidence]) -> tuple[str, str]:
    assert claim.supported, "a claim with measures has both rules"
    assert claim.refuted, "a claim with measures has both rules"
    values, spreads = _numbers(evidence)
    try:
        supported, refuted = (rule.holds(values, spreads) for rule in (claim.supported, claim.refuted))
        if supported is None or refuted is None:
            return UNDECIDED, reasons.EITHER_WAY
        if supported != refuted:
            return (SUPPORTED if supported else REFUTED), ""
        if failing := _failing_premises(claim, evidence):
            return UNDECIDED, reasons.premises_fail(failing)
        if supported:
            return UNDECIDED, reasons.BOTH_HOLD
        return UNDECIDED, reasons.between_thresholds(claim.supported, claim.refuted, values, spreads)
    except NoValueError as error:
        return UNDECIDED, f"a rule has no value: {error}"


def _failing_premises(claim: Claim, evidence: Mapping[str, Evidence]) -> list[str]:
    """Return the conditions of both rules that are false."""
    values, spreads = _numbers(evidence)

    def fails(premise: Rule) -> bool:
        return premise.holds(values, spreads) is False

    try:
        return [premise.text for premise in claim.premises if fails(premise)]
    except NoValueError:
        return []


def _numbers(evidence: Mapping[str, Evidence]) -> tuple[dict[str, Interval], dict[str, float]]:
    """Return values and spreads by the names of measures."""
    values = {name: each.interval for name, each in evidence.items()}
    spreads = {name: each.spread for name, each in evidence.items()}
    return values, spreads
