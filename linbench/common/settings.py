"""Typed settings that refuse unknown names and wrong values with one sentence."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from linbench.common.errors import UserError, nearest_quoted, shorten, unknown
from linbench.common.numbers import LARGEST

_MUST_BE = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "tuple_type": "a list",
    "none_required": "null",
}
"""The values a setting takes, by pydantic's name for the error."""


def without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return settings, or other values by name, that are not among these names."""
    return {name: value for name, value in values.items() if name not in names}


ABSENT = "absent"
"""Key in a field's `json_schema_extra` for the value that stands for results older than the setting.

See `Settings.identity`.
"""


class TypeWords(NamedTuple):
    """The values that a setting takes, in words, where its annotation does not tell them."""

    words: str


class Settings(BaseModel):
    """Immutable, typed settings. Text from a command line is converted; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _within_64_bits(self) -> Self:
        """Refuse numbers larger than a tensor can hold, which would fail late or not at all."""
        for name, value in self:
            for number in value if isinstance(value, tuple | list) else (value,):
                if isinstance(number, int) and abs(number) > LARGEST:
                    raise ValueError(f"{name} must be at most {LARGEST}")
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """Validate settings and return them; the text "null" means None.

        Args:
            values: the settings by name.
            where: the prefix that users write before the name, such as "task", "model" or "protocol".

        Raises UserError: a name or value is wrong; its sentence is about the first.
        """
        try:
            return cls.model_validate({name: cls._read(name, value) for name, value in values.items()})
        except ValidationError as invalid:
            # a misspelt name first: a setting may be missing because of it
            first = min(invalid.errors(), key=lambda error: error["type"] != "extra_forbidden")
            raise cls._sentence(first, where, values) from None

    def identity(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """Return the settings as plain JSON values for an identity.

        A setting that was added later is left out if it has the value that stands for the time before, so
        that older results are still found.
        """
        values: dict[str, Any] = self.model_dump(mode="json", exclude_unset=exclude_unset)
        for name, value in _absent_values(type(self)).items():
            if name in values and values[name] == value:
                del values[name]
        return values

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        """Read the text null, or numbers such as 0,1,2, in brackets or not; return other values unchanged."""
        if not isinstance(value, str) or not cls._has_numbers(name):
            return None if value == "null" else value
        parts = value.strip().removeprefix("(").removesuffix(")").rstrip(", ")
        return parts.split(",") if parts else ()

    @classmethod
    def _has_numbers(cls, name: str) -> bool:
        annotation = cls.model_fields[name].annotation if name in cls.model_fields else None
        return get_origin(annotation) is tuple and get_args(annotation)[0] in (int, float)

    @classmethod
    def _at(cls, place: tuple[int | str, ...]) -> Collection[str]:
        """Return the names of settings at a place, which may be in a list of settings within these."""
        if not place:
            return cls.model_fields
        field = cls.model_fields.get(str(place[0]))
        annotation = field.annotation if field else None
        inner = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
        for each in inner:
            if issubclass(each, Settings):
                return each._at(tuple(part for part in place[1:] if isinstance(part, str)))
        return ()

    @classmethod
    def _sentence(cls, error: ErrorDetails, where: str, values: Mapping[str, Any]) -> UserError:
        name = ".".join([where, *map(str, error["loc"])])
        field = str(error["loc"][0]) if error["loc"] else ""
        if cls._has_numbers(field) and field in values:
            kind = "whole numbers" if get_args(cls.model_fields[field].annotation)[0] is int else "numbers"
            wrong = "empty" if values[field] == "" else f"'{shorten(values[field])}'"
            return UserError(f"{where}.{field} must be comma-separated {kind} such as 0,1,2, not {wrong}.")
        if error["type"] == "extra_forbidden":
            around = name.rpartition(".")[0]
            return unknown("setting", name, (f"{around}.{field}" for field in cls._at(error["loc"][:-1])))
        if error["type"] == "missing":
            return UserError(f"{name} must be given.")
        given = shorten(error["input"])
        if error["type"] in _MUST_BE:
            return UserError(f"{name} must be {_MUST_BE[error['type']]}, not '{given}'.")
        message = error["msg"].removeprefix("Value error, ")
        if not error["loc"]:
            return UserError(f"{where}: {message}.")
        hint = nearest_quoted(given, error["ctx"]["expected"]) if error["type"] == "literal_error" else ""
        end = f"; {hint}" if hint else "."
        return UserError(f"{name} = {given}: {message[0].lower()}{message[1:]}{end}")

    @classmethod
    def describe(cls) -> list[tuple[str, str, str, str]]:
        """Return (name, type, default, description) of every setting, in order of declaration."""
        return [
            (name, _type_of(field), format_setting(field.default), field.description or "")
            for name, field in cls.model_fields.items()
        ]


def _type_of(field: FieldInfo) -> str:
    given = [each.words for each in field.metadata if isinstance(each, TypeWords)]
    return given[0] if given else _type_name(field.annotation)


def _type_name(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    if get_origin(annotation) is tuple:
        return f"{_type_name(get_args(annotation)[0])}, ..."
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return (
        text.replace("typing.", "").replace("Literal", "").strip("[]").replace("'", "").replace(", ", " | ")
    )


def format_setting(value: Any) -> str:
    """Return a value as a command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_setting, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _absent_values(cls: type[Settings]) -> dict[str, Any]:
    """Return the values that stand for the time before a setting was there, by the names of such settings."""
    extras = ((name, field.json_schema_extra) for name, field in cls.model_fields.items())
    return {name: more[ABSENT] for name, more in extras if isinstance(more, dict) and ABSENT in more}
