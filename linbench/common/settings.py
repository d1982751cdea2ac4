"""Settings that refuse what they do not know, in one sentence."""

from collections.abc import Mapping
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from linbench.common.errors import UserError, nearest_quoted, shortened, unknown
from linbench.common.numbers import LARGEST

_WOULD_DO = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "tuple_type": "a list",
}
"""What a setting takes, by pydantic's name for the error of a value of another kind."""

ABSENT = "absent"
"""Key in a field's `json_schema_extra`: the value that results of before the setting was there had. See
`Settings.identity`."""


class Settings(BaseModel):
    """Immutable, typed settings. Strings as they come from a command line are converted; unknown names are
    refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _within_64_bits(self) -> Self:
        """Larger numbers than a tensor holds have no use anywhere, and some that compute with them fail
        late."""
        for name, value in self:
            for one in value if isinstance(value, tuple | list) else (value,):
                if isinstance(one, int) and abs(one) > LARGEST:
                    raise ValueError(f"{name} is larger than {LARGEST}, which no number may be")
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """Validate `values`, "null" meaning None; `where` is the prefix a user knows them by ("task",
        "model", "protocol").

        Raises UserError: one sentence about the first value that is wrong.
        """
        try:
            return cls.model_validate({name: cls._read(name, value) for name, value in values.items()})
        except ValidationError as invalid:
            # what is missing may be there under a misspelt name
            first = min(invalid.errors(), key=lambda error: error["type"] != "extra_forbidden")
            raise cls._sentence(first, where, values) from None

    def identity(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """Return the settings as plain JSON values, as a result is filed under them.

        A setting that was added later is left out where it has the value that stands for how things were
        before, so that results of then are found.
        """
        values: dict[str, Any] = self.model_dump(mode="json", exclude_unset=exclude_unset)
        return {name: value for name, value in values.items() if not self._was_absent(name, value)}

    @classmethod
    def _was_absent(cls, name: str, value: Any) -> bool:
        extra = cls.model_fields[name].json_schema_extra if name in cls.model_fields else None
        return isinstance(extra, dict) and ABSENT in extra and extra[ABSENT] == value

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        """A value as a command line has it: null, or several numbers as 0,1,2, in brackets or not."""
        if not isinstance(value, str) or not cls._has_numbers(name):
            return None if value == "null" else value
        parts = value.strip().removeprefix("(").removesuffix(")").rstrip(", ")
        return parts.split(",") if parts else ()

    @classmethod
    def _has_numbers(cls, name: str) -> bool:
        annotation = cls.model_fields[name].annotation if name in cls.model_fields else None
        return get_origin(annotation) is tuple and get_args(annotation)[0] in (int, float)

    @classmethod
    def _sentence(cls, error: ErrorDetails, where: str, values: Mapping[str, Any]) -> UserError:
        name = ".".join([where, *map(str, error["loc"])])
        if error["loc"] and cls._has_numbers(field := str(error["loc"][0])) and field in values:
            kind = "whole numbers" if get_args(cls.model_fields[field].annotation)[0] is int else "numbers"
            given = "nothing" if values[field] == "" else shortened(values[field])
            return UserError(
                f"{where}.{field} = {given}: {kind} with commas between them would do, such as 0,1,2."
            )
        if error["type"] == "extra_forbidden":
            return unknown("setting", name, (f"{where}.{field}" for field in cls.model_fields))
        if error["type"] == "missing":
            return UserError(f"{name} must be given.")
        given = shortened(error["input"])
        if would_do := _WOULD_DO.get(error["type"]):
            return UserError(f"{name} = {given}: {would_do} would do.")
        message = error["msg"].removeprefix("Value error, ")
        if not error["loc"]:
            return UserError(f"{where}: {message}.")
        hint = nearest_quoted(given, error["ctx"]["expected"]) if error["type"] == "literal_error" else ""
        return UserError(f"{name} = {given}: {message[0].lower()}{message[1:]}{f'; {hint}' if hint else '.'}")

    @classmethod
    def describe(cls) -> list[tuple[str, str, str, str]]:
        """(name, type, default, description) of every setting, in order of declaration."""
        return [
            (name, _type_name(field.annotation), written(field.default), field.description or "")
            for name, field in cls.model_fields.items()
        ]


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is tuple:  # of any length
        return f"{_type_name(get_args(annotation)[0])}, ..."
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return (
        text.replace("typing.", "").replace("Literal", "").strip("[]").replace("'", "").replace(", ", " | ")
    )


def written(value: Any) -> str:
    """A value as a command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(written, value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
