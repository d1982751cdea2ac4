"""Is this mixer sound? Laws that any sequence mixer must keep, each with the figure that was found."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from linbench.check.laws import LAWS, construction
from linbench.check.subject import Subject, UndeclaredError
from linbench.loading import theirs

__all__ = ["Finding", "Verdict", "check"]

Verdict = Literal["ok", "WRONG", "not declared", "not expected"]


class Finding(NamedTuple):
    """Of one law: what it asks, whether it holds, and what was measured."""

    law: str
    verdict: Verdict
    found: str
    asks: str

    @property
    def ok(self) -> bool:
        """What is not declared is no fault, nor what is not to be expected of it."""
        return self.verdict != "WRONG"


def check(subject: Subject, tell: Callable[[Finding], None] = lambda finding: None) -> list[Finding]:
    """Every law in turn; whatever a mixer raises is its own fault, and named with its place. What cannot be built is asked nothing more. `tell` hears each
    finding as soon as it is there."""
    findings = []
    for name, law in LAWS.items():
        verdict, found = _judged(law, subject)
        findings.append(Finding(name, verdict, found, (law.__doc__ or "").strip()))
        tell(findings[-1])
        if law is construction and not findings[-1].ok:
            break
    return findings


def _judged(law: Callable[[Subject], Any], subject: Subject) -> tuple[Verdict, str]:
    try:
        held, found = law(subject)
    except UndeclaredError as undeclared:
        return "not declared", str(undeclared)
    except Exception as error:
        return "WRONG", theirs(error)
    return ("ok" if held else "WRONG"), found
