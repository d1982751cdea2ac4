"""Names as users write them: layer patterns (`3xgated_deltanet+attention`, `attention[window=16]+deltanet`), and tasks with a preset (`mqar/quick`).

A name that holds one of the signs stands in quotes: `'./a+b.py:Mine'`.
"""

import re
from typing import NamedTuple

from linbench.common.errors import UserError
from linbench.common.quotes import opening, plain, split, unquoted

_COUNT = re.compile(r"([0-9]+)x(?=.)")

_LOCATED = re.compile(r"(.*\.py(?::[^/:]*)?|[^/]*:[^/:]*)(?:/([^/]*))?", re.DOTALL)
"""A file, or a module and a class; then perhaps a preset. The slashes of a path are its own."""


class Term(NamedTuple):
    """One layer of a pattern: a model's name and the settings written beside it."""

    name: str
    settings: tuple[tuple[str, str], ...]


def parse_pattern(text: str) -> list[Term]:
    """The layers of one period. Raises UserError: not a pattern."""
    return [term for part in split(text, "+") for term in _terms(part.strip(), text)]


def _terms(part: str, text: str) -> list[Term]:
    count = _COUNT.match(part)
    name, rest = opening(part[count.end() :] if count else part)
    if not name:
        name, bracket, rest = rest.partition("[")
        rest = bracket + rest
    closed = not rest or (rest[0] == "[" and _closes_last(rest))
    if not name.strip() or not closed or (name == part and "]" in name) or (count and int(count[1]) == 0):
        raise UserError(f"'{text}' is not a layer pattern; write NAME, 3xNAME+OTHER or NAME[setting=value], and a name with + , [ or ] in quotes.")
    return [Term(name, _settings(rest[1:-1], text))] * int(count[1] if count else 1)


def _closes_last(text: str) -> bool:
    """Whether the bracket that a text begins with is closed by its last character."""
    return next((place for place, each, depth in plain(text) if each == "]" and depth == 0), None) == len(text) - 1


def _settings(text: str, whole: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for pair in split(text, ","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not pair.strip():
            continue
        if not equals:
            raise UserError(f"'{pair.strip()}' in '{whole}' is not a setting; write NAME[setting=value], and a value with a comma in quotes.")
        if name in found:
            raise UserError(f"'{whole}' gives {name} twice, {found[name]} and {value}; give it once.")
        found[name] = value
    return tuple(found.items())


def split_models(text: str) -> list[str]:
    """`a,b[x=1,y=2]` -> two patterns, each as `tidy` has it. Raises UserError: none."""
    found = [tidy(part) for part in split(text, ",") if part.strip()]
    if not found:
        raise UserError(f"'{text}' names no model; `linbench list models` has them.")
    return found


def split_task(text: str) -> tuple[str, str | None]:
    """`mqar/quick`, `./tasks/mine.py:Mine/quick`, `'./a/b':/quick` -> the task and its preset; None where none is given."""
    name, rest = opening(text.strip())
    if name:
        return name, rest.removeprefix("/") or None
    located = _LOCATED.fullmatch(rest)
    name, preset = located.groups() if located else rest.partition("/")[::2]
    return name, preset or None


def bare(name: str) -> str:
    """A model's name without the quotes that it may stand in."""
    return unquoted(name.strip())


def tidy(text: str) -> str:
    """A pattern without spaces about its signs: those within a name stay, as folders may have such names."""
    signs = [place for place, each, depth in plain(text) if each in "+,[]" or (each == "=" and depth)]
    parts = [text[start:end].strip() for start, end in zip([0, *(place + 1 for place in signs)], [*signs, len(text)], strict=True)]
    return "".join(part + sign for part, sign in zip(parts, [*(text[place] for place in signs), ""], strict=True))
