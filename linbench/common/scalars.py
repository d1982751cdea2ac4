"""Values for a constructor's parameters, read from text by the parameter's type, or else as JSON.

A `Reader` reads text. A value that a suite or Python gave is only checked.
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
from linbench.common.quotes import split, strip_quotes

_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LIKE_A_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*\.?[0-9_]*([eE][+-]?[0-9]+)?|0[xXoObB][0-9a-fA-F_]+")
_INFINITE = re.compile(r"[+-]?\.?(inf|infinity|nan)", re.IGNORECASE)
_MOST_DIGITS = 300


class Reader(NamedTuple):
    """A reader for one type of value.

    words: the values it takes, in words. rank: of several readers the one with the lowest rank is tried
    first.
    """

    words: str
    rank: int
    read: Callable[[Any], Any]

    def accept(self, value: Any) -> Any:
        """Read a value.

        Raises ValueError: it is of another type; PydanticKnownError: it is a number that is not finite.
        """
        result = self.read(value)
        if not _is_finite(result):
            raise PydanticKnownError("finite_number")
        return result

    def takes(self, value: Any) -> bool:
        """Return whether a value is of this type."""
        try:
            self.read(value)
        except ValueError:
            return False
        return True


def _refuse(words: str) -> NoReturn:
    raise ValueError(f"it must be {words}")


def _parse_number(text: str) -> int | float | None:
    """Return the number in a text, or None. Besides JSON's numbers, `+1`, `1.` and `.5` are accepted.

    A number too large for a float is infinite.
    """
    text = text.strip()
    if _INFINITE.fullmatch(text):
        return math.inf
    if not _NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _read_null(value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value.strip() == "null"):
        _refuse("null")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        _refuse("true or false")
    return word == "true"


def _read_int(value: Any) -> int:
    number = _parse_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int):
        _refuse("a whole number")
    return number


def _read_float(value: Any) -> float:
    number = _parse_number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        _refuse("a number")
    return float(number)


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse("text; put it in quotes if YAML reads it as something else")
    return strip_quotes(value)


def _read_json(value: Any) -> Any:
    """Return the JSON value of a text, or the text itself. A text in quotes is always text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in {"null", "true", "false"}:
        return {"null": None, "true": True, "false": False}[text]
    number = _parse_number(text)
    if number is not None:
        return number
    if _LIKE_A_NUMBER.fullmatch(text):
        _refuse(f"a number as JSON writes it, or text in quotes such as '{text[:20]}'")
    if text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(
                f"it begins like JSON but is not JSON; put text in quotes, such as '{text[:20]}'"
            ) from None
    return strip_quotes(text)


NOTHING = Reader("null", 0, _read_null)
TRUTH = Reader("true or false", 1, _read_bool)
WHOLE = Reader("a whole number", 2, _read_int)
REAL = Reader("a number", 3, _read_float)
TEXT = Reader("text", 6, _read_text)
JSON = Reader("anything that JSON has", 7, _read_json)

_SIMPLE = {None: NOTHING, NoneType: NOTHING, bool: TRUTH, int: WHOLE, float: REAL, str: TEXT}


def one_of(options: Sequence[Any]) -> Reader:
    """Return the reader of a few values, written as JSON but with text outside quotes."""
    names = {option if isinstance(option, str) else json.dumps(option): option for option in options}

    def read(value: Any) -> Any:
        for option in options:
            if type(option) is type(value) and option == value:
                return option
        if isinstance(value, str) and strip_quotes(value) in names:
            return names[strip_quotes(value)]
        hint = nearest(str(value), {name: name for name in names}).removesuffix("?")
        raise ValueError(f"it must be {' or '.join(names)}" + (f"; {hint}" if hint else ""))

    return Reader(" or ".join(names), 4, read)


def member_of(kind: type[Enum]) -> Reader:
    """Return the reader of an enumeration's members, by their names."""
    names = one_of([*kind.__members__])
    return names._replace(read=lambda value: value if isinstance(value, kind) else kind[names.read(value)])


def several(elements: Sequence[Reader], container: Callable[[Iterable[Any]], Any], *, alike: bool) -> Reader:
    """Return the reader of a list or tuple, written as `1,2`, in brackets or not.

    Args:
        elements: the readers of the elements.
        container: the type to return, such as tuple.
        alike: the list has any length, and its elements are read by the only reader in `elements`.
    """
    inner = " and ".join(dict.fromkeys(reader.words for reader in elements))
    words = f"a list, each element {inner}" if alike else f"{len(elements)} comma-separated values, {inner}"

    def read(value: Any) -> Any:
        parts = _parts(value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not (alike or len(parts) == len(elements)):
            _refuse(words)
        readers = [*elements] * len(parts) if alike else elements
        try:
            return container(reader.read(part) for reader, part in zip(readers, parts, strict=True))
        except ValueError:
            _refuse(words)

    return Reader(words, 5, read)


def _parts(text: str) -> list[str]:
    inside = strip_quotes(text.strip()).strip()
    inside = inside[1:-1] if (inside[:1], inside[-1:]) in {("[", "]"), ("(", ")")} else inside
    parts = [part.strip() for part in split(inside, ",")]
    return parts[:-1] if parts[-1] == "" else parts


def any_of(readers: Iterable[Reader]) -> Reader:
    """Return the reader of whatever one of these reads, tried by rank."""
    ordered = sorted(dict.fromkeys(readers), key=lambda reader: reader.rank)
    if TEXT in ordered and JSON in ordered:
        ordered.remove(JSON)
    words = " or ".join(reader.words for reader in ordered)

    def read(value: Any) -> Any:
        for reader in ordered:
            if reader.takes(value):
                return reader.read(value)
        return ordered[0].read(value) if len(ordered) == 1 else _refuse(words)

    return Reader(words, ordered[-1].rank, read)


def reader_of(annotation: Any) -> Reader:
    """Return the reader of bool, int, float, str, None, Literal, enums, and unions and lists of these.

    Values of any other type are read as JSON.
    """
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
    """Return the reader of a parameter without annotation, from its default.

    If the default is a whole number, any number is accepted. null always is.
    """
    if isinstance(default, Enum):
        return any_of([NOTHING, member_of(type(default))])
    if isinstance(default, bool | str | float):
        return any_of([NOTHING, _SIMPLE[type(default)]]) if type(default) in _SIMPLE else JSON
    if isinstance(default, int):
        return any_of([NOTHING, WHOLE, REAL])
    if type(default) in (list, tuple):
        elements = {reader_like(part).words: reader_like(part) for part in default}
        element = next(iter(elements.values())) if len(elements) == 1 else JSON
        return any_of([NOTHING, several([element], type(default), alike=True)])
    return JSON


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, (*value, *value.values())))
    if isinstance(value, list | tuple | set):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
