"""Text in which signs have a meaning, such as `a,b[x=1]+c`, and quotes that take the meaning away."""

import re
from collections.abc import Iterator

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_BEFORE = re.compile(r"(^|[+,\[(=.]\s*|(^|[+,])\s*[0-9]+x)$")
"""The text before a quote that opens a quotation. The mark in `john's` opens none."""


def outside_quotes(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield each character outside quotes: its position, itself, the number of brackets open around it."""
    place = depth = 0
    while place < len(text):
        if (quoted := _quoted(text, place)) is not None:
            place += len(quoted)
            continue
        depth -= text[place] == "]" and depth > 0
        yield place, text[place], depth
        depth += text[place] == "["
        place += 1


def _quoted(text: str, place: int) -> str | None:
    """Return the quotation that begins at a position, with its quotes; None if none begins there."""
    if text[place] not in "'\"" or not _BEFORE.search(text[:place].strip()):
        return None
    match = _QUOTED.match(text, place)
    return match[0] if match else None


def split(text: str, sign: str) -> list[str]:
    """Split a text at each `sign` outside brackets and quotes: `a, b[x,y], 'c,d'` has three parts."""
    places = [place for place, character, depth in outside_quotes(text) if character == sign and depth == 0]
    starts = [0, *(place + 1 for place in places)]
    ends = [*places, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def split_quotation(text: str) -> tuple[str, str]:
    """Split `'a+b'/c` into `a+b` and `/c`: the quotation at the beginning, without quotes, and the rest.

    Without a quotation the first part is empty.
    """
    quoted = _quoted(text, 0) if text else None
    return ("", text) if quoted is None else (quoted[1:-1], text[len(quoted) :])


def strip_quotes(text: str) -> str:
    """Return the text without quotes around it."""
    inside, rest = split_quotation(text)
    return text if rest else inside
