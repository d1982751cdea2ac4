"""`linbench check`: laws that any sequence mixer must keep, each with what was measured."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError
from linbench.experiments.loading import describe_error, user_location
from linbench.verify.laws import Law, all_laws

__all__ = ["Finding", "Verdict", "check"]

Verdict = Literal["ok", "WRONG", "not declared", "not expected", "not judged"]
"""The verdict of a law on a mixer.

The law holds, is broken, is about something that the mixer does not declare, is not to be expected of it, or
meets an exception that an earlier law has reported.
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


def check(subject: LayerUnderTest, tell: Callable[[Finding], None] = lambda finding: None) -> list[Finding]:
    """Put a subject to every law in turn.

    An exception is the mixer's own fault. The first law that meets it names it with its place, and the others
    that meet it are not judged. What cannot be built is asked nothing more.

    Args:
        tell: called with each finding as soon as it is there.
    """
    findings, raised = [], dict[str, str]()
    for law in all_laws().values():
        verdict, measured = _judge(law, subject, raised)
        findings.append(Finding(law.name, verdict, measured, law.asks))
        tell(findings[-1])
        if law.decisive and not findings[-1].ok:
            break
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
