"""Settings that refuse what they do not know, in one sentence."""

from collections.abc import Mapping
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from linbench.common.errors import UserError, unknown


class Settings(BaseModel):
    """Immutable, typed settings. Strings as they come from a command line are converted; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """Validate `values`, "null" meaning None; `where` is the prefix a user knows them by ("task", "model", "protocol").

        Raises UserError: one sentence about the first value that is wrong.
        """
        try:
            return cls.model_validate({name: None if value == "null" else value for name, value in values.items()})
        except ValidationError as invalid:
            raise cls._sentence(invalid.errors()[0], where) from None

    @classmethod
    def _sentence(cls, error: ErrorDetails, where: str) -> UserError:
        name = ".".join([where, *map(str, error["loc"])])
        if error["type"] == "extra_forbidden":
            return unknown("setting", name, (f"{where}.{field}" for field in cls.model_fields))
        if error["type"] == "missing":
            return UserError(f"{name} must be given.")
        message = error["msg"].removeprefix("Value error, ")
        if not error["loc"]:
            return UserError(f"{where}: {message}.")
        return UserError(f"{name} = {error['input']}: {message[0].lower()}{message[1:]}.")

    @classmethod
    def describe(cls) -> list[tuple[str, str, str, str]]:
        """(name, type, default, description) of every setting, in order of declaration."""
        return [(name, _type_name(field.annotation), _default(field.default), field.description or "") for name, field in cls.model_fields.items()]


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is tuple:  # of any length
        return f"{_type_name(get_args(annotation)[0])}, ..."
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return text.replace("typing.", "").replace("Literal", "").strip("[]").replace("'", "").replace(", ", " | ")


def _default(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
