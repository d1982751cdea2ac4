"""Reading of JSON that others may have written.

Text that is too deep or has too long numbers is refused before it is parsed.
"""

import re
from typing import Any

from pydantic_core import from_json

DEEPEST = 32
"""The most lists and mappings inside each other. Results have about eight."""

MOST_DIGITS = 19
"""The most digits of a whole number: enough for 64 bits."""

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def read_json(text: bytes) -> Any:
    """Return the value of JSON in UTF-8.

    Raises ValueError: it is not JSON, deeper than `DEEPEST`, or has a lone surrogate or a whole number of
    more than `MOST_DIGITS` digits.
    """
    if _deep(text):
        raise ValueError(f"it is not JSON, or has more than {DEEPEST} lists and mappings inside each other")
    value = from_json(text)
    if b"0" * (MOST_DIGITS + 1) in text.translate(_DIGITS):
        _require_short(value)
    return value


def _deep(text: bytes) -> bool:
    """Return whether brackets are too deep.

    Strings are cut out only if all brackets together seem too deep.
    """
    if not _deeper(text.translate(None, _NOT_BRACKETS)):
        return False
    return _deeper(_STRING.sub(b"", text).translate(None, _NOT_BRACKETS))


def _deeper(brackets: bytes) -> bool:
    """Return whether brackets are left when `DEEPEST` layers of closed pairs have been removed."""
    for _ in range(DEEPEST):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def _require_short(value: Any) -> None:
    """Raise ValueError for a whole number that is too long."""
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise ValueError(f"it has a number of more than {MOST_DIGITS} digits")
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            _require_short(part)
