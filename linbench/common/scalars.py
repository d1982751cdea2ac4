"""Text from a command line as the value that a constructor takes: by the type of its parameter, else as JSON
has it.

A `Reader` takes text, which it reads, or a value that a suite or Python gave, which it only looks at.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from pydantic_core import PydanticKnownError

from linbench.common.errors import nearest
from linbench.common.quotes import split, unquoted

_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LIKE_A_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*\.?[0-9_]*([eE][+-]?[0-9]+)?|0[xXoObB][0-9a-fA-F_]+")
_INFINITE = re.compile(r"[+-]?\.?(inf|infinity|nan)", re.IGNORECASE)
_MOST_DIGITS = 300


class Reader(NamedTuple):
    """One type of value. words: what it takes. rank: of several the one that says most of a text goes
    first."""

    words: str
    rank: int
    read: Callable[[Any], Any]

    def accept(self, value: Any) -> Any:
        """Return the value. Raises ValueError: another is given. PydanticKnownError: a number that is not
        finite."""
        found = self.read(value)
        if not _finite(found):
            raise PydanticKnownError("finite_number")
        return found

    def takes(self, value: Any) -> bool:
        """Whether a value is of this type."""
        try:
            self.read(value)
        except ValueError:
            return False
        return True


def _no(words: str) -> NoReturn:
    raise ValueError(f"{words} would do")


def _number(text: str) -> int | float | None:
    """A number as JSON has it, or with a sign or a dot more; None: the text is none. A number too large for a
    float is infinite."""
    text = text.strip()
    if _INFINITE.fullmatch(text):
        return math.inf
    if not _NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _nothing(value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value.strip() == "null"):
        _no("null")


def _truth(value: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    return (
        words[value.strip().lower()]
        if isinstance(value, str) and value.strip().lower() in words
        else _no("true or false")
    )


def _whole(value: Any) -> int:
    number = _number(value) if isinstance(value, str) else value
    return number if isinstance(number, int) and not isinstance(number, bool) else _no("a whole number")


def _real(value: Any) -> float:
    number = _number(value) if isinstance(value, str) else value
    return (
        float(number) if isinstance(number, int | float) and not isinstance(number, bool) else _no("a number")
    )


def _text(value: Any) -> str:
    return (
        unquoted(value)
        if isinstance(value, str)
        else _no("text, in quotes where YAML would make something else of it,")
    )


def _json(value: Any) -> Any:
    """A value as JSON has it, or else the text: text in quotes is always text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in {"null", "true", "false"}:
        return {"null": None, "true": True, "false": False}[text]
    if (number := _number(text)) is not None:
        return number
    if _LIKE_A_NUMBER.fullmatch(text):
        _no(f"a number as JSON writes it, or text in quotes, '{text[:20]}',")
    if text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(
                f"it begins as JSON does, and is none; text stands in quotes, such as '{text[:20]}'"
            ) from None
    return unquoted(text)


NOTHING = Reader("null", 0, _nothing)
TRUTH = Reader("true or false", 1, _truth)
WHOLE = Reader("a whole number", 2, _whole)
REAL = Reader("a number", 3, _real)
TEXT = Reader("text", 6, _text)
JSON = Reader("anything that JSON has", 7, _json)

_SIMPLE = {None: NOTHING, NoneType: NOTHING, bool: TRUTH, int: WHOLE, float: REAL, str: TEXT}


def one_of(options: Sequence[Any]) -> Reader:
    """Return the reader of a few values, each written as JSON has it, text without quotes."""
    names = {option if isinstance(option, str) else json.dumps(option): option for option in options}

    def read(value: Any) -> Any:
        same = [option for option in options if type(option) is type(value) and option == value]
        if same or (isinstance(value, str) and unquoted(value) in names):
            return same[0] if same else names[unquoted(value)]
        hint = nearest(str(value), {name: name for name in names}).removesuffix("?")
        raise ValueError(f"{' or '.join(names)} would do" + (f"; {hint}" if hint else ""))

    return Reader(" or ".join(names), 4, read)


def member_of(kind: type[Enum]) -> Reader:
    """Return the reader of an enumeration's members, by their names."""
    names = one_of([*kind.__members__])
    return names._replace(read=lambda value: value if isinstance(value, kind) else kind[names.read(value)])


def several(elements: Sequence[Reader], container: Callable[[Iterable[Any]], Any], *, alike: bool) -> Reader:
    """Return the reader of a list or tuple, as `1,2` in brackets or not. alike: of any length, every element
    by the one reader."""
    inner = " and ".join(dict.fromkeys(reader.words for reader in elements))
    words = f"a list of {inner}" if alike else f"{len(elements)} values, {inner}, with commas between"

    def read(value: Any) -> Any:
        parts = _parts(value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not (alike or len(parts) == len(elements)):
            _no(words)
        try:
            return container(
                reader.read(part)
                for reader, part in zip([*elements] * len(parts) if alike else elements, parts, strict=True)
            )
        except ValueError:
            _no(words)

    return Reader(words, 5, read)


def _parts(text: str) -> list[str]:
    held = unquoted(text.strip()).strip()
    held = held[1:-1] if (held[:1], held[-1:]) in {("[", "]"), ("(", ")")} else held
    parts = [part.strip() for part in split(held, ",")]
    return parts[:-1] if parts[-1] == "" else parts


def any_of(readers: Iterable[Reader]) -> Reader:
    """Return the reader of whatever one of these reads, the first by rank."""
    ordered = sorted(dict.fromkeys(readers), key=lambda reader: reader.rank)
    if TEXT in ordered and JSON in ordered:
        ordered.remove(JSON)
    words = " or ".join(reader.words for reader in ordered)

    def read(value: Any) -> Any:
        for reader in ordered:
            if reader.takes(value):
                return reader.read(value)
        return ordered[0].read(value) if len(ordered) == 1 else _no(words)

    return Reader(words, ordered[-1].rank, read)


def reader_of(annotation: Any) -> Reader:
    """Return the reader of a type: bool, int, float, str, None, Literal, unions, lists and tuples of these;
    of whatever else as JSON has it."""
    if annotation in (None, NoneType, bool, int, float, str):
        return _SIMPLE[annotation]
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return reader_of(inside[0])
    if origin in (Union, UnionType):
        return any_of(map(reader_of, inside))
    if origin is Literal:
        return one_of(inside)
    if origin is tuple and inside[-1:] != (Ellipsis,):
        return several([reader_of(each) for each in inside], tuple, alike=False)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return member_of(annotation)
    if origin in (list, tuple, Sequence, Iterable):
        return several([reader_of(inside[0])], tuple if origin is tuple else list, alike=True)
    if annotation in (list, tuple, Sequence):
        return several([JSON], tuple if annotation is tuple else list, alike=True)
    return JSON


def reader_like(default: Any) -> Reader:
    """Return the reader of a parameter of which nothing but its default is known: a whole number may stand
    for any, and null is allowed."""
    if isinstance(default, Enum):
        return any_of([NOTHING, member_of(type(default))])
    if isinstance(default, bool | str | float):
        return any_of([NOTHING, _SIMPLE[type(default)]]) if type(default) in _SIMPLE else JSON
    if isinstance(default, int):
        return any_of([NOTHING, WHOLE, REAL])
    if type(default) in (list, tuple):
        elements = {reader_like(each).words: reader_like(each) for each in default}
        one = next(iter(elements.values())) if len(elements) == 1 else JSON
        return any_of([NOTHING, several([one], type(default), alike=True)])
    return JSON


def _finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_finite, (*value, *value.values())))
    if isinstance(value, list | tuple | set):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
