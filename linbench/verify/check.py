"""`linbench check`: laws that any sequence mixer must keep, each with what was measured."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError
from linbench.engine.workers import outcomes
from linbench.experiments.cell import Cell
from linbench.experiments.loading import describe_error, user_location
from linbench.verify.laws import Law, all_laws

__all__ = ["Finding", "Verdict", "check", "check_apart"]

SECONDS = 300.0
"""Seconds that a law may take on a layer that linbench does not ship."""

Verdict = Literal["ok", "WRONG", "not declared", "not expected", "not judged"]
"""The verdict of a law on a mixer.

The law holds, is broken, is about something that the mixer does not declare, is not to be expected of it, or
meets an exception, or outputs that cannot be compared, which an earlier law has reported.
"""


class Finding(NamedTuple):
    """The outcome for one law: its name, the verdict, what was measured, and what the law asks."""

    law: str
    verdict: Verdict
    found: str
    asks: str

    @property
    def ok(self) -> bool:
        """True if nothing is wrong. A law that is not declared, expected or judged is no fault."""
        return self.verdict != "WRONG"


Tell = Callable[[Finding], None]
"""A function that is called with each finding as soon as it is there."""


def check_apart(subject: LayerUnderTest, tell: Tell, *, seconds: float = SECONDS) -> list[Finding]:
    """Do what `check` does in a process of its own, since code from elsewhere may hang or crash.

    A law at which the process ends is broken, and the last that is asked.

    Args:
        seconds: what a law may take.
    """
    findings: list[Finding] = []

    def note(finding: Finding) -> None:
        findings.append(finding)
        tell(finding)

    place = subject.cell.model.layers.index(subject.layer)
    ((_, ended),) = outcomes(_check_layer, [(subject.cell, place)], workers=1, seconds=seconds, tell=note)
    if ended.failure:
        for law in list(all_laws().values())[len(findings) :][:1]:
            note(Finding(law.name, "WRONG", ended.failure, law.asks))
    return findings


def _check_layer(layer: tuple[Cell, int], tell: Tell) -> None:
    """Check the layer of a cell at a place, in a worker."""
    cell, place = layer
    check(LayerUnderTest(cell, cell.model.layers[place]), tell)


def check(subject: LayerUnderTest, tell: Tell = lambda finding: None) -> list[Finding]:
    """Put a subject to every law in turn.

    An exception is the mixer's own fault. The first law that meets it names it with its place, and the others
    that meet it are not judged, nor is any later one where there are no outputs to compare. What cannot be
    built is asked nothing more.

    Args:
        tell: called with each finding as soon as it is there.
    """
    findings, raised, broken = [], dict[str, str](), ""
    for law in all_laws().values():
        if broken:
            finding = Finding(law.name, "not judged", f"breaks {broken}", law.asks)
        else:
            finding = Finding(law.name, *_judge(law, subject, raised), law.asks)
        findings.append(finding)
        tell(finding)
        if law.decisive and not finding.ok:
            break
        if law.basic and not finding.ok:
            broken = law.name
    return findings


def _judge(law: Law, subject: LayerUnderTest, raised: dict[str, str]) -> tuple[Verdict, str]:
    """Return the verdict of a law and what was found.

    Args:
        raised: the law that first met an exception, by where the exception comes from; one that is new is
            added.
    """
    try:
        holds, measured = law.holds(subject)
    except UndeclaredError as undeclared:
        return "not declared", str(undeclared)
    except Exception as error:
        place = user_location(error)
        where = f"{place}{type(error).__name__}" if place else describe_error(error)
        first = raised.setdefault(where, law.name)
        if first != law.name:
            return "not judged", f"raises what it raised for {first}"
        return "WRONG", describe_error(error)
    return ("ok" if holds else "WRONG"), measured
