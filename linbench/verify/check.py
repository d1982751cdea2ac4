"""Is this mixer sound? Laws that any sequence mixer must keep, each with the figure that was found."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from linbench.engine.layer_under_test import Subject, UndeclaredError
from linbench.experiments.loading import theirs, users_place
from linbench.verify.laws import LAWS, construction

__all__ = ["Finding", "Verdict", "check"]

Verdict = Literal["ok", "WRONG", "not declared", "not expected", "not judged"]


class Finding(NamedTuple):
    """Of one law: what it asks, whether it holds, and what was measured."""

    law: str
    verdict: Verdict
    found: str
    asks: str

    @property
    def ok(self) -> bool:
        """What is not declared is no fault, nor what is not to be expected of it; what is not judged has its
        fault told elsewhere."""
        return self.verdict != "WRONG"


def check(subject: Subject, tell: Callable[[Finding], None] = lambda finding: None) -> list[Finding]:
    """Put a subject to every law in turn. An exception is the mixer's own fault, and named with its place by
    the first law that meets it; the others that do are not judged. What cannot be built is asked nothing
    more. `tell` hears each finding as soon as it is there."""
    findings, raised = [], dict[str, str]()
    for name, law in LAWS.items():
        verdict, found = _judged(name, law, subject, raised)
        findings.append(Finding(name, verdict, found, (law.__doc__ or "").strip()))
        tell(findings[-1])
        if law is construction and not findings[-1].ok:
            break
    return findings


def _judged(
    name: str, law: Callable[[Subject], Any], subject: Subject, raised: dict[str, str]
) -> tuple[Verdict, str]:
    """Return the verdict of a law and what was found. raised: exceptions, by where they come from, with the
    law that met them first."""
    try:
        held, found = law(subject)
    except UndeclaredError as undeclared:
        return "not declared", str(undeclared)
    except Exception as error:
        where = f"{users_place(error)}{type(error).__name__}" if users_place(error) else theirs(error)
        if (first := raised.setdefault(where, name)) != name:
            return "not judged", f"raises what it raised for {first}"
        return "WRONG", theirs(error)
    return ("ok" if held else "WRONG"), found
