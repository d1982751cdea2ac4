"""Shapes as they are written on the command line: B256xT256xH2xD64."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from linbench.common.errors import UserError
from linbench.common.numbers import whole

LARGEST_SIZE = 1 << 30
"""Of each dimension."""

Shape = TypeVar("Shape", bound=tuple[Any, ...])


def parsed(text: str, kind: type[Shape], example: str) -> tuple[Shape, ...]:
    """Shapes of a NamedTuple whose fields are single letters, separated by commas. Raises UserError."""
    named: Any = kind
    pattern = "x".join(rf"{name}([0-9]+)" for name in named._fields)
    found = [re.fullmatch(pattern, part.strip(), re.IGNORECASE) for part in text.split(",")]
    shapes = [named(*(whole(size, 1, LARGEST_SIZE) for size in match.groups())) for match in found if match]
    if len(shapes) < len(found) or any(size is None for shape in shapes for size in shape):
        raise UserError(f"--shapes takes shapes such as {example}, not '{text}'.")
    return tuple(shapes)


def written(shape: Mapping[str, int]) -> str:
    """The other way round, from the fields by name."""
    return "x".join(f"{name}{size}" for name, size in shape.items())
