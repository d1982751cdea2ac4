"""Numbers in the prose of a page that look measured.

These are: a figure with a point, a percentage, a number of times, a time, an amount of memory or a speed with
its unit, a count out of a count, and a cell of a table that is a number. Code, links, headings, identifiers
of papers, versions of software, tables that a command makes, and sections whose raw results are lost are left
out.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

RAW_LOST = "Measured then; raw results are not kept."
"""The sentence of a decision record that says so: of the section that it stands in, or of the whole record if
it stands before the first section."""

MADE_TABLE = re.compile(r"<!-- (?:table: ([a-z0-9-]+)|(results/\S+\.md)) -->\n((?:\|.*\n)*)")
"""A table that a command makes: its name, or the file that holds it, and its lines."""

_NO_PROSE = (
    MADE_TABLE,
    re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^#.*$", re.MULTILINE),
    re.compile(r"^ {4}\S.* = .*$", re.MULTILINE),  # a formula
    re.compile(r"`[^`]+`"),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"\b\d{4}\.\d{5}\b"),  # a paper at arXiv
    re.compile(r"\bdoi:\S+"),
    re.compile(r"\b(?:Python|torch|Triton|flash-linear-attention)\s+\d[\d.]*\d(?:\s+to\s+\d[\d.]*\d)?"),
)

_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fourteen|sixteen|twenty|hundred|thousand"
)
_NUMBER = r"(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e-?\d+)?"
_UNIT = (
    r"%|times|(?:M|k|thousand|million)\s+tokens|tokens/s|tokens\s+(?:a|per)\s+second|(?:[KMG]i?B|ms|µs|s|h)\b"
    r"|(?:micro|milli)?seconds|minutes|hours|[MGT]FLOP"
)
_MEASURED = re.compile(
    rf"(?<![\w.,])(?:{_NUMBER}\s?(?:{_UNIT})|(?:\d[\d,]*)?\.\d+(?:e-?\d+)?|\d+e-\d+|\d[\d,]*\s+of\s+\d+"
    rf"|(?:half\s+an?|{_WORD})\s+(?:seconds?|minutes?|hours?)\b|(?:{_WORD})\s+times"
    rf"|(?:{_WORD})\s+seeds?\s+of\s+(?:{_WORD})\b)",
    re.IGNORECASE,
)
_CELL = re.compile(rf"(?<=\|)[ ~<>]*{_NUMBER}(?: ± {_NUMBER})?[ †]*(?=\|)")


class Number(NamedTuple):
    """A number that looks measured, with the line that it begins on and what stands there."""

    line: int
    text: str
    context: str


def spaced(phrase: str) -> re.Pattern[str]:
    """Return a pattern of a phrase on any number of lines; `{}` stands for a number."""
    words = (re.escape(word).replace(r"\{\}", r"[\d.,]*\d(?:e-?\d+)?") for word in phrase.split())
    return re.compile(r"\s+".join(words))


def prose(text: str) -> str:
    """Return a page in which all that is no prose is left blank; lines keep their places."""
    text = "".join(_told_as_lost(text))
    for pattern in _NO_PROSE:
        text = _blank(text, pattern)
    return text


def measured(text: str, known: Iterable[re.Pattern[str]] = ()) -> list[Number]:
    """Return the numbers of a page that look measured, but for those within what is known."""
    left, lines = text, text.splitlines()
    for pattern in known:
        left = _blank(left, pattern)
    left = prose(left)
    found = {one.start(): one[0] for one in _CELL.finditer(left)}
    found |= {one.start(): one[0] for one in _MEASURED.finditer(_blank(left, _CELL))}
    numbers = []
    for start, words in sorted(found.items()):
        line = left.count("\n", 0, start)
        numbers.append(Number(line + 1, " ".join(words.split()), lines[line].strip()))
    return numbers


def _blank(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda found: re.sub(r"\S", "·", found[0]), text)


def _told_as_lost(text: str) -> Iterable[str]:
    """Yield the sections of a page, those blank that say that raw results are not kept."""
    first, *others = re.split(r"(?<=\n)(?=## )", text)
    lost = spaced(RAW_LOST)
    everything = lost.search(first) is not None
    for section in (first, *others):
        yield re.sub(r"\S", "·", section) if everything or lost.search(section) else section
