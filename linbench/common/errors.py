"""Errors that a user can cause, each one sentence: the value given, the values allowed, the nearest match."""

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
"""The most characters of a user's input that a message repeats; more would hide the message itself."""


def shorten(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return the text with `...` in place of its middle if it has more than `most` characters."""
    try:
        full = str(text)
    except ValueError:  # Python does not print integers with thousands of digits
        return "a number of thousands of digits"
    end = most // 3
    return full if len(full) <= most else f"{full[: most - 3 - end]}...{full[-end:]}"


_LONG = re.compile(rf"(?<!\w)'[^']{{{MOST_CHARACTERS + 1},}}'(?!\w)|[^\s']{{{MOST_CHARACTERS + 1},}}")

_LONGEST_MESSAGE = 10_000
"""The most characters of a message. Lists of all allowed names are shorter."""


def brief(message: str) -> str:
    """Shorten long words and quotations in a message. Only a user's input is so long."""
    return shorten(_LONG.sub(lambda match: _shorten_word(match[0]), message), _LONGEST_MESSAGE)


def _shorten_word(word: str) -> str:
    return f"'{shorten(word[1:-1])}'" if word.startswith("'") else shorten(word)


class UserError(Exception):
    """An error the user can correct. Its message is shown without a traceback.

    The message repeats at most `MOST_CHARACTERS` of any input. The process exits with `exit_code`.

    Attributes:
        adapter: lines of Python that the user can copy, printed below the message; empty if there are none.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str = "", *, adapter: str = "") -> None:
        super().__init__(brief(message))
        self.adapter = adapter


class StorageError(UserError):
    """An error of reading or writing results where the user asked."""

    exit_code = EXIT_STORAGE


class HopelessError(UserError):
    """An error of a learning-rate search in which no rate of a model worked; all possible cells have run."""


class DeviceLostError(UserError):
    """An error of a GPU that no longer responds to this process, as after an illegal memory access.

    Another process, or this one before, may have caused it. A new process can go on.
    """

    exit_code = EXIT_CELLS_FAILED


class ClusterLostError(UserError):
    """An error of a cluster whose head no longer responds, so that no work can be given out."""

    exit_code = EXIT_CELLS_FAILED


class Signalled(BaseException):
    """A signal that asks the process to end."""


class PluginError(UserError):
    """An error in a user's own code; the message names the file and line."""


def message_of(error: BaseException) -> str:
    """Return the message of an exception; empty if its own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""


def unknown(
    kind: str, given: str, allowed: Iterable[str], *, short: Mapping[str, str] | None = None
) -> UserError:
    """Return the error for a name that is not one of `allowed`, with the nearest match if there is one.

    Args:
        kind: what the name should be, such as "task".
        given: the name that was given.
        allowed: all names that are allowed.
        short: abbreviations that a user may have meant, each with the name it stands for.
    """
    names, given = sorted(allowed, key=_by_number), shorten(given)
    hint = nearest(given, {name: name for name in names} | dict(short or {}))
    what = f"unknown {kind} '{given}'" + (f"; {hint}" if hint else ".")
    return UserError(f"{what} Allowed: {', '.join(names) or 'none'}.")


def _by_number(name: str) -> list[tuple[str, int]]:
    # C2 stands before C10
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D+|^)(\d{0,9})", name)]


def nearest(given: str, meant: Mapping[str, str]) -> str:
    """Return the question whether a similar name was meant; empty if none is similar enough.

    Args:
        given: the name that was given.
        meant: names to compare with, each with the one to suggest.
    """
    if len(given) > _LONGEST_COMPARED:
        return ""
    numbered = [name for name in meant if _differ_in_numbers(given, name)]
    # of C1 and C2 neither is near to C3
    compared = [name for name in meant if len(numbered) < 2 or name not in numbered]
    if not compared:
        return ""
    near = max(compared, key=lambda name: _similarity(given, name))
    return f"did you mean '{meant[near]}'?" if _similarity(given, near) >= _SIMILAR else ""


_LONGEST_COMPARED = 200
_SIMILAR = 0.6
"""The similarity, from 0 to 1, from which a name is suggested: a slip or two in a word."""


def _similarity(given: str, name: str) -> float:
    """Return how similar two names are, from 0 to 1.

    Dotted names are as similar as their least similar parts: a common `model.` says nothing.
    """
    parts, other_parts = given.split("."), name.split(".")
    pairs = zip(parts, other_parts, strict=True) if len(parts) == len(other_parts) else [(given, name)]
    return min(
        _SIMILAR if _differ_in_one_letter(a, b) else SequenceMatcher(None, a, b).ratio() for a, b in pairs
    )


def _differ_in_numbers(a: str, b: str) -> bool:
    """Return whether two words are the same but for their numbers."""
    words = [re.sub(r"\d+", "#", word) for word in (a, b)]
    return words[0] == words[1] and a != b


def _differ_in_one_letter(a: str, b: str) -> bool:
    """Return whether two words such as `l3` and `l2` differ in one of two letters, which would count half."""
    return len(a) == len(b) == 2 and (a[0] == b[0]) != (a[1] == b[1])


def nearest_quoted(given: str, text: str) -> str:
    """Return the question of `nearest` for the words in single quotes in a library's message."""
    return nearest(given, {word: word for word in re.findall("'([^']*)'", text)})
