"""Errors that a user can cause: one sentence that says what was given, what is allowed, and the nearest
match."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_CELLS_FAILED = 3
EXIT_REGRESSION = 4
EXIT_NOT_COMPARABLE = 5
EXIT_STORAGE = 6
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


MOST_CHARACTERS = 200
"""Of what was typed that a message repeats; more hides what the message says."""


def shortened(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return a text of at most `most` characters: of a longer one `...` stands for the middle."""
    try:
        whole = str(text)
    except ValueError:  # Python writes no whole number of thousands of digits
        return "a number of thousands of digits"
    end = most // 3
    return whole if len(whole) <= most else f"{whole[: most - 3 - end]}...{whole[-end:]}"


_LONG = re.compile(rf"(?<!\w)'[^']{{{MOST_CHARACTERS + 1},}}'(?!\w)|[^\s']{{{MOST_CHARACTERS + 1},}}")

_LONGEST_MESSAGE = 10_000
"""Characters; the lists of all that is allowed are shorter."""


def brief(message: str) -> str:
    """Return a message in which whatever stands in quotes, or is written without a space, is shortened: only
    what was typed is so long."""
    return shortened(_LONG.sub(lambda found: _inside(found[0]), message), _LONGEST_MESSAGE)


def _inside(found: str) -> str:
    return f"'{shortened(found[1:-1])}'" if found.startswith("'") else shortened(found)


class UserError(Exception):
    """Something the user can put right. Its message is shown without a traceback, and repeats at most
    `MOST_CHARACTERS` of anything that was typed; the process exits with `exit_code`."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str = "") -> None:
        super().__init__(brief(message))


class StorageError(UserError):
    """Results cannot be read or written where the user asked."""

    exit_code = EXIT_STORAGE


class HopelessError(UserError):
    """No learning rate of a model can be chosen; all that could be run has been."""


class DeviceLostError(UserError):
    """A GPU answers this process no more, as after an illegal address, be it its own or of a process beside
    it: another process may go on."""

    exit_code = EXIT_CELLS_FAILED


class ClusterLostError(UserError):
    """The head of a cluster answers no more: nothing can be handed out."""

    exit_code = EXIT_CELLS_FAILED


class Signalled(BaseException):
    """A signal that asks the process to end, whatever it is doing."""


class PluginError(UserError):
    """Code that the user brought failed; the message names their file and line."""


def message_of(error: BaseException) -> str:
    """Return the words of an exception; none of one whose own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""


def unknown(
    kind: str, given: str, allowed: Iterable[str], *, short: Mapping[str, str] | None = None
) -> UserError:
    """The error for a name that is not one of `allowed`, with the nearest match when there is one. short:
    what stands for a name that is meant."""
    names, given = sorted(allowed), shortened(given)
    hint = nearest(given, {name: name for name in names} | dict(short or {}))
    return UserError(f"unknown {kind} '{given}'; {hint and f'{hint} '}Allowed: {', '.join(names) or 'none'}.")


def nearest(given: str, meant: Mapping[str, str]) -> str:
    """A question after the value whose key is most like what was given; empty: none is."""
    near = (
        max(meant, key=lambda name: _alike(given, name), default="") if len(given) <= _LONGEST_MEANT else ""
    )
    return f"did you mean '{meant[near]}'?" if near and _alike(given, near) >= _ALIKE else ""


_LONGEST_MEANT = 200
_ALIKE = 0.6
"""From 0 to 1: a slip or two in a word."""


def _alike(given: str, name: str) -> float:
    """How like each other two names are; of dotted ones as much as their parts that are least so, or all that
    begins with model. would be alike."""
    one, other = given.split("."), name.split(".")
    pairs = zip(one, other, strict=True) if len(one) == len(other) else [(given, name)]
    return min(_ALIKE if _one_apart(a, b) else SequenceMatcher(None, a, b).ratio() for a, b in pairs)


def _one_apart(a: str, b: str) -> bool:
    """`l3` and `l2`: in short words one other letter is half of all."""
    return len(a) == len(b) == 2 and (a[0] == b[0]) != (a[1] == b[1])


def nearest_quoted(given: str, text: str) -> str:
    """The same of the words that stand in single quotes there, as libraries write what they allow."""
    return nearest(given, {word: word for word in re.findall("'([^']*)'", text)})
