"""Reading JSON that others may have written: what is too deep, too long or no text is refused before anything
is made of it."""

import json
import re
from typing import Any

DEEPEST = 32
"""Lists and mappings inside each other; results have about eight."""

MOST_DIGITS = 19
"""Of a whole number: enough for 64 bits."""

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_json(text: bytes) -> Any:
    """Return the value that a text in UTF-8 says.

    Raises ValueError: it is not JSON; it is deeper than `DEEPEST`; it has a whole number of more than
    `MOST_DIGITS` digits, or a lone surrogate.
    """
    if _deep(text):
        raise ValueError(f"it is no JSON, or has more than {DEEPEST} lists and mappings inside each other")
    value = json.loads(str(text, "utf-8"))
    if b"\\u" in text or b"0" * (MOST_DIGITS + 1) in text.translate(_DIGITS):
        _require_plain(value)
    return value


def _deep(text: bytes) -> bool:
    """Brackets that close at once are taken away, layer by layer; those in strings only where they come in
    the way."""
    return _layered(text.translate(None, _NOT_BRACKETS)) and _layered(
        _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    )


def _layered(brackets: bytes) -> bool:
    """Whether any are left when `DEEPEST` layers are gone."""
    for _ in range(DEEPEST):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def _require_plain(value: Any) -> None:
    """Raises ValueError: a whole number that is too long, or a text that UTF-8 does not have."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise ValueError(f"it has a number of more than {MOST_DIGITS} digits")
    elif isinstance(value, list | dict):
        for part in value:
            _require_plain(part)
        for part in value.values() if isinstance(value, dict) else ():
            _require_plain(part)
