"""Shapes as the command line writes them: B256xT256xH2xD64."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from linbench.common.errors import UserError
from linbench.common.numbers import whole_number

MAX_SIZE = 1 << 30
"""Largest size of a dimension."""

Shape = TypeVar("Shape", bound=tuple[Any, ...])


def parse(text: str, kind: type[Shape], example: str) -> tuple[Shape, ...]:
    """Parse shapes separated by commas.

    Args:
        kind: a NamedTuple whose fields are single letters.
        example: shapes for the error message.

    Raises UserError: the text is not of that kind.
    """
    fields: Any = kind
    pattern = "x".join(rf"{name}([0-9]+)" for name in fields._fields)
    shapes = []
    for part in text.split(","):
        match = re.fullmatch(pattern, part.strip(), re.IGNORECASE)
        sizes = [whole_number(size, 1, MAX_SIZE) for size in match.groups()] if match else [None]
        if None in sizes:
            raise UserError(f"--shapes takes shapes such as {example}, not '{text}'.")
        shapes.append(fields(*sizes))
    return tuple(shapes)


def format_shape(shape: Mapping[str, int]) -> str:
    """Format sizes by field name as `parse` reads them."""
    return "x".join(f"{name}{size}" for name, size in shape.items())
