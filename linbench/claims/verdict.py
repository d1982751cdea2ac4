"""The verdict on a claim: supported, refuted or undecided, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from linbench.claims import reasons
from linbench.claims.claim import Claim
from linbench.claims.evidence import Evidence
from linbench.claims.looks import LOOKS, MOST_SEEDS
from linbench.claims.requirements import missing_requirements
from linbench.claims.stored_results import Stored
from linbench.claims.tally import Tally

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
    tally: Tally
    """The answers of the seeds, by the measures that the rules name."""
    outcome: str
    reason: str
    """Why it is undecided; empty if it is decided."""
    complete: bool
    """True if nothing is left to run that could decide it."""
    qualifiers: tuple[str, ...] = ()
    """Limits of the evidence that decides, in words."""

    @property
    def seen(self) -> bool:
        """True if any result was found."""
        return any(evidence.seen for evidence in self.evidence.values())

    @property
    def next_seeds(self) -> int:
        """The number of seeds of the next look, or of those that are there if nothing is left to run."""
        seeds = self.tally.seeds
        return seeds if self.complete else next(size for size in LOOKS if size > seeds)


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
    def ruling(self) -> Ruling | None:
        """The ruling that counts: on the kind of device with most seeds, whatever it says.

        To choose it by what it says would be a second chance to be wrong.
        """
        seeds_and_seen = {
            ruling.kind: (ruling.tally.seeds, sum(each.seen for each in ruling.tally.evidence.values()))
            for ruling in self.rulings
        }
        return max(self.rulings, key=lambda ruling: seeds_and_seen[ruling.kind], default=None)

    @property
    def complete(self) -> bool:
        """True if nothing is left to run that could decide it."""
        return self.ruling is not None and self.ruling.complete

    @property
    def qualifiers(self) -> Sequence[str]:
        """Limits of the outcome, in words; empty for an undecided claim."""
        return self.ruling.qualifiers if self.ruling and self.outcome != UNDECIDED else ()

    @property
    def brief(self) -> str:
        """Why it is undecided, by the kind of device that counts."""
        if not self.ruling or len(self.rulings) < 2 or self.ruling.outcome != UNDECIDED:
            return self.reason
        return reasons.on_device(self.ruling.kind, self.ruling.reason)

    @property
    def values(self) -> str:
        """The values of its measures, or what the rule rests on, and in how many seeds that is true."""
        assert self.ruling, "what has an outcome has a ruling"
        tally, rules = self.ruling.tally, self.claim.rules
        formula = rules[0 if self.outcome == SUPPORTED else 1].formula
        if len(tally.evidence) > MOST_VALUES:
            return reasons.basis(tally, formula)
        values = ", ".join(f"{name} {each}" for name, each in tally.evidence.items())
        return "; ".join(filter(None, [values, reasons.agreement(tally, formula)]))

    def next_seeds(self, kind: str) -> int:
        """Return how many seeds are to be run on a kind of device."""
        return next((ruling.next_seeds for ruling in self.rulings if ruling.kind == kind), LOOKS[0])

    def result_ids(self, ruling: Ruling, stored: Stored) -> set[str]:
        """Return the ids of the stored results that one of its rulings rests on."""
        ids = set[str]()
        for measure in self.claim.deciding:
            ids |= measure.result_ids(stored, ruling.kind, ruling.next_seeds)
        return ids


def verdict(claim: Claim, stored: Stored) -> Verdict:
    """Decide a claim by what is stored, and by what needs no training."""
    if missing := missing_requirements(claim):
        return Verdict(claim, UNDECIDED, reasons.missing_parts(missing), (), waits=True)
    if not claim.measures:
        return Verdict(claim, UNDECIDED, reasons.NO_EXPERIMENT, (), waits=True)
    kinds = stored.kinds if claim.uses_device else [NOTHING_TRAINED]
    on_all = (rule_on_device(claim, stored, kind) for kind in kinds)
    rulings = tuple(ruling for ruling in on_all if ruling.seen)
    every = Verdict(claim, UNDECIDED, reasons.NOTHING_RUN, rulings)
    if every.ruling is None:
        return every
    outcomes = {ruling.kind: ruling.outcome for ruling in rulings if ruling.outcome != UNDECIDED}
    if len(set(outcomes.values())) > 1:
        return replace(every, reason=reasons.devices_disagree(outcomes))
    if every.ruling.outcome != UNDECIDED:
        return replace(every, outcome=every.ruling.outcome, reason="")
    return replace(every, reason=reasons.by_device({ruling.kind: ruling.reason for ruling in rulings}))


def rule_on_device(claim: Claim, stored: Stored, kind: str) -> Ruling:
    """Decide a claim on one kind of device, by the largest look for which all seeds are there.

    A table has as many seeds as are asked for, and is asked for more only until it decides.
    """
    *_, last = _rulings(claim, stored, kind)
    return last


def _rulings(claim: Claim, stored: Stored, kind: str) -> Iterator[Ruling]:
    """Yield the ruling at each look, up to the first for which seeds are missing."""
    for seeds in LOOKS:
        evidence = {name: each.evidence(stored, kind, seeds) for name, each in claim.measures.items()}
        ruling = _rule(claim, kind, evidence)
        yield ruling
        if ruling.tally.seeds < seeds or (not claim.uses_device and ruling.outcome != UNDECIDED):
            return


def _rule(claim: Claim, kind: str, evidence: Mapping[str, Evidence]) -> Ruling:
    tally = Tally({measure.name: evidence[measure.name] for measure in claim.deciding})
    outcome, reason = decide(claim, tally)
    deciding = tally.evidence.values()
    at_end = outcome != UNDECIDED or tally.seeds >= MOST_SEEDS or not _may_decide(claim, tally)
    return Ruling(
        kind,
        evidence,
        tally,
        outcome,
        reason,
        complete=at_end and not any(each.missing for each in deciding if not each.has_seeds),
        qualifiers=tuple(dict.fromkeys(words for each in deciding for words in each.qualifiers)),
    )


def _may_decide(claim: Claim, tally: Tally) -> bool:
    """Return whether seeds that are not there yet could decide a claim."""
    return any(tally.may_show(rule.formula) for rule in claim.rules) if tally.has_seeds else False


def decide(claim: Claim, tally: Tally) -> tuple[str, str]:
    """Apply the rules of a claim to the seeds of its measures.

    Returns:
        the outcome, and why it is undecided (empty if it is decided).
    """
    assert claim.supported, "a claim with measures has both rules"
    assert claim.refuted, "a claim with measures has both rules"
    supported, refuted = (tally.shows(rule.formula) for rule in (claim.supported, claim.refuted))
    if supported and refuted:
        return UNDECIDED, reasons.BOTH_HOLD
    if supported or refuted:
        return (SUPPORTED if supported else REFUTED), ""
    return UNDECIDED, reasons.undecided(claim, tally)
