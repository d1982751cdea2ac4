"""Names as users write them: layer patterns (`3xgated_deltanet+attention`, `attention[window=16]+deltanet`),
and tasks with a preset (`mqar/quick`).

A name that holds one of the signs stands in quotes: `'./a+b.py:Mine'`.
"""

import re
from typing import NamedTuple

from linbench.common.errors import UserError
from linbench.common.numbers import whole
from linbench.common.quotes import opening, plain, split, unquoted

MOST_LAYERS = 1024
"""Of a model, and so of a period."""

LONGEST = 10_000
"""Characters of what names models."""

_COUNT = re.compile(r"([0-9]+)x(?=.)")

_LOCATED = re.compile(r"(.*\.py(?::[^/:]*)?|[^/]*:[^/:]*)(?:/([^/]*))?", re.DOTALL)
"""A file, or a module and a class; then perhaps a preset. The slashes of a path are its own."""


class Term(NamedTuple):
    """One layer of a pattern: a model's name and the settings written beside it."""

    name: str
    settings: tuple[tuple[str, str], ...]


def parse_pattern(text: str) -> list[Term]:
    """Return the layers of one period. Raises UserError: not a pattern, or more than `MOST_LAYERS` layers."""
    terms: list[Term] = []
    for part in _parts(text, "+"):
        term, count = _term(part.strip(), text)
        if len(terms) + count > MOST_LAYERS:
            raise UserError(f"'{text}' has more than {MOST_LAYERS:,} layers.")
        terms += [term] * count
    return terms


def _parts(text: str, sign: str) -> list[str]:
    """Return what stands between signs. Raises UserError: the text is too long."""
    if len(text) > LONGEST:
        raise UserError(f"'{text}' is no name of models: it has more than {LONGEST:,} characters.")
    return split(text, sign)


def _term(part: str, text: str) -> tuple[Term, int]:
    """Return a layer, and how many of it follow one another."""
    counted = _COUNT.match(part)
    count = whole(counted[1], most=MOST_LAYERS + 1) if counted else 1
    if count is None:
        count = MOST_LAYERS + 1
    name, rest = opening(part[counted.end() :] if counted else part)
    if not name:
        name, bracket, rest = rest.partition("[")
        rest = bracket + rest
    closed = not rest or (rest[0] == "[" and _closes_last(rest))
    if not name.strip() or not closed or (name == part and "]" in name) or count == 0:
        raise UserError(
            f"'{text}' is not a layer pattern; write NAME, 3xNAME+OTHER or NAME[setting=value], and a name"
            " with + , [ or ] in quotes."
        )
    return Term(name, _settings(rest[1:-1], text)), count


def _closes_last(text: str) -> bool:
    """Whether the bracket that a text begins with is closed by its last character."""
    return (
        next((place for place, each, depth in plain(text) if each == "]" and depth == 0), None)
        == len(text) - 1
    )


def _settings(text: str, pattern: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for pair in split(text, ","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not pair.strip():
            continue
        if not equals:
            raise UserError(
                f"'{pair.strip()}' in '{pattern}' is not a setting; write NAME[setting=value], and a value"
                " with a comma in quotes."
            )
        if name in found:
            raise UserError(f"'{pattern}' gives {name} twice, {found[name]} and {value}; give it once.")
        found[name] = value
    return tuple(found.items())


def split_models(text: str) -> list[str]:
    """`a,b[x=1,y=2]` -> two patterns, each as `tidy` has it. Raises UserError: none."""
    found = [tidy(part) for part in _parts(text, ",") if part.strip()]
    if not found:
        raise UserError(f"'{text}' names no model; `linbench list models` has them.")
    return found


def split_task(text: str) -> tuple[str, str | None]:
    """`mqar/quick`, `./tasks/mine.py:Mine/quick`, `'./a/b':/quick` -> the task and its preset; None where
    none is given."""
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
    parts = [
        text[start:end].strip()
        for start, end in zip([0, *(place + 1 for place in signs)], [*signs, len(text)], strict=True)
    ]
    return "".join(
        part + sign for part, sign in zip(parts, [*(text[place] for place in signs), ""], strict=True)
    )
