"""What a claim comes to: supported, refuted or undecided, with the figures that say so."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linbench.claims import untrained as tables
from linbench.claims.cells import of_measure
from linbench.claims.claim import Claim
from linbench.claims.evidence import Figure, figure
from linbench.claims.interval import NoValueError
from linbench.claims.requirements import unmet
from linbench.claims.rule import Rule
from linbench.claims.schema import LEAST_SEEDS
from linbench.claims.speed_evidence import Speed, result_of, speed
from linbench.claims.stored_results import Stored
from linbench.common.parsing import parse_seeds
from linbench.results.record import Result

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"

Found = Figure | Speed
"""What a measure came to."""

BUDGETS = (1, 2, 4, 8)
"""Of the training that is written: where all that is lacking is that runs were still getting better, or have
not come to what both rules ask for, the next is asked for, of all runs."""

NOTHING_TRAINED = "nothing trained"
"""Stands in the place of a device."""


@dataclass(frozen=True)
class Ruling:
    """By what was found on one kind of device; results of two never decide a claim together."""

    device: str
    figures: Mapping[str, Found]
    """Every measure's, those that the rules do not name too."""
    answer: str
    why: str
    """Of an undecided one."""
    complete: bool
    """Whether every result that it rests on is there."""
    longer: int = 1
    """How many times as long as is written all of it was trained."""
    improving: bool = False
    """Whether all that troubles it is runs that were still getting better, or have not come to a premise, and
    longer ones can be asked for."""

    def qualifiers(self, claim: Claim) -> list[str]:
        """Return in words by which rules of former days learning rates were chosen of what decides the
        claim."""
        return list(
            dict.fromkeys(words for name in claim.deciding for words in self.figures[name].qualifiers)
        )

    @property
    def short(self) -> bool:
        """Whether more training may be all that it lacks."""
        return self.improving and self.answer == UNDECIDED

    @property
    def budget(self) -> int:
        """Which of `BUDGETS` it asks for."""
        return BUDGETS[BUDGETS.index(self.longer) + self.short]

    @property
    def seen(self) -> bool:
        """Whether anything was found at all."""
        return any(found.seen for found in self.figures.values())


@dataclass(frozen=True)
class Verdict:
    """Over all kinds of devices."""

    claim: Claim
    answer: str
    why: str
    """Of an undecided one."""
    rulings: tuple[Ruling, ...]

    @property
    def complete(self) -> bool:
        """Whether on some kind of device all results that it rests on are there, and none asks for more
        training."""
        return any(ruling.complete and not ruling.short for ruling in self.rulings)

    @property
    def short(self) -> bool:
        """Whether it asks for more training."""
        return not self.complete and any(ruling.short for ruling in self.rulings)

    @property
    def qualifiers(self) -> list[str]:
        """What limits the answer, in words, by those kinds of devices that give it; none of an undecided
        one."""
        deciding = [ruling for ruling in self.rulings if ruling.answer == self.answer != UNDECIDED]
        return list(dict.fromkeys(words for ruling in deciding for words in ruling.qualifiers(self.claim)))

    def budget(self, device: str) -> int:
        """Which of `BUDGETS` it asks for on a kind of device: where nothing was found, what others have come
        to, since what is too short on one is on all."""
        asked = {ruling.device: ruling.budget for ruling in self.rulings}
        return asked.get(device) or max(asked.values(), default=BUDGETS[0])

    def ids(self, ruling: Ruling, stored: Stored) -> set[str]:
        """Of the results that one of its rulings rests on."""
        found = [
            _results(self.claim, name, stored, ruling.device, ruling.longer) for name in self.claim.trained
        ]
        timed = [result_of(self.claim, name, stored, ruling.device) for name in self.claim.timed]
        return {result["id"] for results in found for result in results.values()} | {
            result["id"] for result in timed if result is not None
        }


def verdict(claim: Claim, stored: Stored) -> Verdict:
    """By results that are there, and what needs no training."""
    if lacking := unmet(claim):
        return Verdict(claim, UNDECIDED, f"needs {'; '.join(lacking)}", ())
    if not claim.measures:
        return Verdict(claim, UNDECIDED, "needs cells that decide it: none are written", ())
    devices = (
        stored.devices if any(claim.measures[name].model for name in claim.deciding) else [NOTHING_TRAINED]
    )
    rulings = [ruling for ruling in (rule(claim, stored, device) for device in devices) if ruling.seen]
    answers = {ruling.answer for ruling in rulings if ruling.answer != UNDECIDED}
    if len(answers) == 1:
        return Verdict(claim, answers.pop(), "", tuple(rulings))
    if answers:
        told = ", ".join(f"{ruling.answer} on {ruling.device}" for ruling in rulings)
        return Verdict(claim, UNDECIDED, f"devices disagree: {told}", tuple(rulings))
    return Verdict(
        claim,
        UNDECIDED,
        "; ".join(_said(ruling, rulings) for ruling in rulings) or "none of its figures is there",
        tuple(rulings),
    )


def _said(ruling: Ruling, among: list[Ruling]) -> str:
    return ruling.why if len(among) == 1 else f"{ruling.device}: {ruling.why}"


def rule(claim: Claim, stored: Stored, device: str) -> Ruling:
    """By one kind of device, or by what needs none; by the longest training that was asked for, since none is
    asked for where a shorter one decides. One that decides whatever its runs may still come to gives way to a
    longer one that is all there. Where there is nothing of the first, it may have begun with what others had
    come to."""

    def found(ruling: Ruling) -> bool:
        return any(ruling.figures[name].seen for name in claim.trained)

    ruling = _ruled(claim, stored, device, BUDGETS[0])
    for longer in BUDGETS[1:] if claim.trained else ():
        if found(ruling) and not ruling.improving:
            return ruling
        again = _ruled(claim, stored, device, longer)
        if found(ruling) and not (again.complete if ruling.answer != UNDECIDED else found(again)):
            return ruling
        if found(again):
            ruling = again
    return replace(ruling, improving=False)


def _ruled(claim: Claim, stored: Stored, device: str, longer: int) -> Ruling:
    figures = {name: _found(claim, name, stored, device, longer) for name in claim.measures}
    deciding = {name: figures[name] for name in claim.deciding}
    answer, why = decide(claim, deciding)
    why = f"with {longer} times the training {why}" if why and longer > 1 else why
    troubled = [found for found in deciding.values() if found.trouble]
    improving = all(found.short for found in troubled) if troubled else bool(_not_so(claim, deciding))
    return Ruling(
        device,
        figures,
        answer,
        why,
        complete=not any(found.missing for found in deciding.values()),
        longer=longer,
        improving=improving,
    )


def _found(claim: Claim, name: str, stored: Stored, device: str, longer: int) -> Found:
    measure = claim.measures[name]
    if measure.cells in claim.benches:
        return speed(claim, name, stored, device)
    if not measure.model:
        table = claim.tables[measure.cells]
        return Figure(
            {seed: tables.value(table, seed, measure.where, measure.of) for seed in range(LEAST_SEEDS)}
        )
    suite = claim.grids[measure.cells].suite
    if not stored.any(suite, measure.model, device):
        return Figure({}, missing=len(parse_seeds(suite.seeds)))
    return figure(
        measure, of_measure(claim, name, longer=longer), _results(claim, name, stored, device, longer)
    )


def _results(claim: Claim, name: str, stored: Stored, device: str, longer: int) -> dict[str, Result]:
    """Of the cells of a measure, by their ids."""
    return stored.find(
        of_measure(claim, name, longer=longer), claim.grids[claim.measures[name].cells].suite.search, device
    )


def decide(claim: Claim, figures: Mapping[str, Found]) -> tuple[str, str]:
    """By the figures that the rules name: the answer, and of an undecided one why. An answer that would be
    another without any one seed of any one measure, or with the speed of any one at either of its fifths, is
    none; nor is one that hangs on what runs come to that were still getting better."""
    trouble: dict[str, list[str]] = {}
    for name, found in figures.items():
        if found.trouble:
            trouble.setdefault(found.trouble, []).append(name)
    troubled = "; ".join(f"{', '.join(names)}: {words}" for words, names in trouble.items())
    if any(found.trouble and not found.bounded for found in figures.values()):
        return UNDECIDED, troubled
    answer, why = _answer(claim, figures)
    if answer == UNDECIDED:
        return answer, troubled or why
    for name, found in figures.items():
        for words, instead in found.others(name):
            other, _ = _answer(claim, {**figures, name: instead})
            if other != answer:
                return UNDECIDED, troubled or f"{answer} by {found.whole}, {other} {words}"
    return answer, ""


def _answer(claim: Claim, figures: Mapping[str, Found]) -> tuple[str, str]:
    assert claim.supported, "a claim with measures has rules"
    assert claim.refuted, "both"
    try:
        borne_out, refuted = _holds(claim.supported, figures), _holds(claim.refuted, figures)
    except NoValueError as error:
        return UNDECIDED, str(error)
    if borne_out is None or refuted is None:
        return UNDECIDED, "what more training brings decides"
    if borne_out == refuted:
        if premises := _not_so(claim, figures):
            return UNDECIDED, f"what both its rules ask for is not so: {' and '.join(premises)}"
        return (
            UNDECIDED,
            "both its rules hold, so that one of them is wrong"
            if refuted
            else "neither what bears it out nor what refutes it",
        )
    return (SUPPORTED if borne_out else REFUTED), ""


def _not_so(claim: Claim, figures: Mapping[str, Found]) -> list[str]:
    """Of its premises."""
    try:
        return [premise.text for premise in claim.premises if _holds(premise, figures) is False]
    except NoValueError:
        return []


def _holds(rule: Rule, figures: Mapping[str, Found]) -> bool | None:
    return rule.holds(
        {name: found.span for name, found in figures.items()},
        {name: found.spread for name, found in figures.items()},
    )
