"""Patterns of layers such as `attention[window=16]+deltanet`, and tasks with a preset such as `mqar/quick`.

A name that contains one of the signs is written in quotes: `'./a+b.py:Mine'`.
"""

import re
from typing import Any, NamedTuple

from linbench.common.errors import UserError
from linbench.common.numbers import whole_number
from linbench.common.quotes import outside_quotes, split, split_quotation, strip_quotes

MOST_LAYERS = 1024
"""The most layers of a model, and so of one period of a pattern."""

LONGEST = 10_000
"""The most characters of a text that names models."""

_COUNT = re.compile(r"([0-9]+)x(?=.)")

_LOCATED = re.compile(r"(.*\.py(?::[^/:]*)?|[^/]*:[^/:]*)(?:/([^/]*))?", re.DOTALL)
"""The pattern of a file, or a module and a class, and perhaps a preset behind a slash."""


class Term(NamedTuple):
    """One layer of a pattern: a model's name and the settings in brackets behind it.

    native: of a layer of a named system, further settings that the native form has.
    """

    name: str
    settings: tuple[tuple[str, str], ...]
    native: tuple[tuple[str, Any], ...] = ()


def parse_pattern(text: str) -> list[Term]:
    """Return the layers of one period of a pattern.

    Raises UserError: the text is not a pattern, or has more than `MOST_LAYERS` layers.
    """
    terms: list[Term] = []
    for part in _parts(text, "+"):
        term, count = _term(part.strip(), text)
        refuse_more_layers(len(terms) + count, text)
        terms += [term] * count
    return terms


def refuse_more_layers(count: int, text: str) -> None:
    """Raise UserError if a pattern has more than `MOST_LAYERS` layers."""
    if count > MOST_LAYERS:
        raise UserError(f"'{text}' has more than {MOST_LAYERS:,} layers, the limit.")


def _parts(text: str, sign: str) -> list[str]:
    if len(text) > LONGEST:
        raise UserError(f"'{text}' is not a model: it has more than {LONGEST:,} characters.")
    return split(text, sign)


def _term(part: str, text: str) -> tuple[Term, int]:
    """Return a layer and how often it is repeated."""
    counted = _COUNT.match(part)
    count = whole_number(counted[1], most=MOST_LAYERS + 1) if counted else 1
    if count is None:
        count = MOST_LAYERS + 1
    name, rest = split_quotation(part[counted.end() :] if counted else part)
    if not name:
        name, bracket, rest = rest.partition("[")
        rest = bracket + rest
    closed = not rest or (rest[0] == "[" and _closes_last(rest))
    if not name.strip() or not closed or (name == part and "]" in name) or count == 0:
        raise UserError(
            f"'{text}' is not a layer pattern; write NAME, 3xNAME+OTHER or NAME[setting=value], and put a"
            " name with + , [ or ] in quotes."
        )
    return Term(name, _settings(rest[1:-1], text)), count


def _closes_last(text: str) -> bool:
    """Return whether the last character closes the bracket that a text begins with."""
    closing = [place for place, sign, depth in outside_quotes(text) if sign == "]" and depth == 0]
    return closing[:1] == [len(text) - 1]


def _settings(text: str, pattern: str) -> tuple[tuple[str, str], ...]:
    settings: dict[str, str] = {}
    for pair in split(text, ","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not pair.strip():
            continue
        if not equals:
            raise UserError(
                f"'{pair.strip()}' in '{pattern}' is not a setting; write NAME[setting=value], and put a"
                " value with a comma in quotes."
            )
        if name in settings:
            raise UserError(f"'{pattern}' gives {name} twice ({settings[name]} and {value}); give it once.")
        settings[name] = value
    return tuple(settings.items())


def split_models(text: str) -> list[str]:
    """Split comma-separated patterns, such as the two in `a,b[x=1,y=2]`, and tidy each.

    Raises UserError: the text names no model.
    """
    models = [tidy(part) for part in _parts(text, ",") if part.strip()]
    if not models:
        raise UserError(f"'{text}' names no model; see `linbench list models`.")
    return models


def split_task(text: str) -> tuple[str, str | None]:
    """Split `mqar/quick` or `./tasks/mine.py:Mine/quick` into the task and its preset, or None."""
    name, rest = split_quotation(text.strip())
    if name:
        return name, rest.removeprefix("/") or None
    located = _LOCATED.fullmatch(rest)
    name, preset = located.groups() if located else rest.partition("/")[::2]
    return name, preset or None


def bare(name: str) -> str:
    """Return a model's name without quotes around it."""
    return strip_quotes(name.strip())


def tidy(text: str) -> str:
    """Remove the spaces around a pattern's signs. Those within a name stay, since folders may have them."""
    tidied, start = "", 0
    for place, sign, depth in outside_quotes(text):
        if sign in "+,[]" or (sign == "=" and depth):
            tidied += text[start:place].strip() + sign
            start = place + 1
    return tidied + text[start:].strip()
