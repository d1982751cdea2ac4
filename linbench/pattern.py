"""Layer patterns: `gated_deltanet`, `3xgated_deltanet+attention`, `attention[window=16]+deltanet`."""

import re
from typing import NamedTuple

from linbench.common.errors import UserError

_TERM = re.compile(r"(?:(?P<count>\d+)x)?(?P<name>[^\[\]]+?)(?:\[(?P<settings>[^\[\]]*)\])?")

_SIGN = re.compile(r"\s*([+,\[\]]|=(?=[^\[]*\]))\s*")
"""What parts of a pattern are told apart by; = only within brackets."""


class Term(NamedTuple):
    """One layer of a pattern: a model's name and the settings written beside it."""

    name: str
    settings: tuple[tuple[str, str], ...]


def parse_pattern(text: str) -> list[Term]:
    """The layers of one period. Raises UserError: not a pattern."""
    terms: list[Term] = []
    for part in _split(text, "+"):
        match = _TERM.fullmatch(part.strip())
        if not match or int(match["count"] or 1) == 0:
            raise UserError(f"'{text}' is not a layer pattern; write NAME, 3xNAME+OTHER or NAME[setting=value].")
        settings = tuple(_setting(pair, text) for pair in _split(match["settings"] or "", ",") if pair.strip())
        terms += [Term(match["name"], settings)] * int(match["count"] or 1)
    return terms


def split_models(text: str) -> list[str]:
    """`a,b[x=1,y=2]` -> two patterns, each as `tidy` has it. Raises UserError: none."""
    found = [tidy(part) for part in _split(text, ",") if part.strip()]
    if not found:
        raise UserError(f"'{text}' names no model; `linbench list models` has them.")
    return found


def tidy(text: str) -> str:
    """A pattern without spaces about its signs: those within a name stay, as folders may have such names."""
    return _SIGN.sub(r"\1", text.strip())


def _setting(pair: str, text: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise UserError(f"'{pair}' in '{text}' is not a setting; write NAME[setting=value].")
    return name.strip(), value.strip()


def _split(text: str, separator: str) -> list[str]:
    """At separators that stand outside brackets."""
    return re.split(rf"{re.escape(separator)}(?![^\[]*\])", text)
