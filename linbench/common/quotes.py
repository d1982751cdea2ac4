"""Text with signs that mean something, such as `a,b[x=1]+c`: where they stand, and how a name may hold
them."""

import re
from collections.abc import Iterator

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_BEFORE = re.compile(r"(^|[+,\[(=.]\s*|(^|[+,])\s*[0-9]+x)$")
"""What stands before a quote that opens one: the mark within `john's` is none."""


def plain(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield every character outside quotes: its place, itself, and how many brackets are open around it."""
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
    """What stands in quotes from there on, with them; None: nothing does."""
    if text[place] not in "'\"" or not _BEFORE.search(text[:place].strip()):
        return None
    match = _QUOTED.match(text, place)
    return match[0] if match else None


def split(text: str, sign: str) -> list[str]:
    """`a, b[x,y], 'c,d'` at commas -> three parts: at signs outside brackets and quotes."""
    places = [place for place, each, depth in plain(text) if each == sign and depth == 0]
    return [
        text[start:end]
        for start, end in zip([0, *(place + 1 for place in places)], [*places, len(text)], strict=True)
    ]


def opening(text: str) -> tuple[str, str]:
    """`'a+b'/c` -> `a+b` and `/c`: what stands in quotes at the beginning, without them, and what follows;
    nothing and all where none do."""
    quoted = _quoted(text, 0) if text else None
    return ("", text) if quoted is None else (quoted[1:-1], text[len(quoted) :])


def unquoted(text: str) -> str:
    """The text without the quotes that it stands in, if it does."""
    held, rest = opening(text)
    return text if rest else held
