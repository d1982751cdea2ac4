"""Reading of YAML files that users write."""

import re
from collections.abc import Collection, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from linbench.common.errors import UserError
from linbench.common.files import read_regular

MOST_BYTES = 1 << 20
"""The largest file that is read; the longest that is shipped has a twentieth of it."""

DEEPEST = 24
"""The most lists and mappings inside each other."""

MOST_VALUES = 100_000
"""The most values, counting each value again that an alias repeats."""

MOST_DIGITS = 100
"""The most digits of a number."""

_LONG_NUMBER = re.compile(rf"[-+]?[0-9_.]{{{MOST_DIGITS + 1},}}")

_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's C loader if there is one: it takes a tenth of the time."""


class _Loader(_FASTEST):  # type: ignore[misc]
    """A YAML loader that refuses a name given twice and reads scalars as YAML 1.2 does.

    `no`, `1:30`, `010` and dates are text; 1e-5 is a number.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names_so_far = set[str]()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in names_so_far:
                message = f"{name.value} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, name.start_mark)
            names_so_far.add(name.value)
        return super().construct_mapping(node, deep)


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(0|[1-9][0-9]*)", [*"-+0123456789"]),
    "float": (
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+0123456789."],
    ),
    "merge": (r"<<", ["<"]),
}
"""Unquoted text that is not text: for each kind a pattern, and the characters that it can begin with."""

for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern})$"), _first)


class TooMuchError(ValueError):
    """An error of YAML that is too long, too deep, or too large because of its aliases."""


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    The text is measured before values are made, since aliases can make a few bytes endless.

    Raises TooMuchError: it is larger than anyone writes by hand; yaml.YAMLError: it is not YAML.
    """
    if len(text) > MOST_BYTES:
        raise TooMuchError(f"it has more than {MOST_BYTES:,} characters")
    try:
        _require_moderate(text)
        return yaml.load(text, Loader=_Loader)
    except TooMuchError:
        raise
    # a number or date that Python cannot represent, or half a character
    except (ValueError, OverflowError) as error:
        raise yaml.YAMLError(str(error)) from None


def _require_moderate(text: str) -> None:
    """Raise TooMuchError if the text has too many values or is too deep."""
    open_sizes, anchored, names = [0], dict[str, int](), list[str | None]()
    for event in yaml.parse(text, Loader=_FASTEST):
        if isinstance(event, yaml.CollectionStartEvent):
            open_sizes.append(1)
            names.append(event.anchor)
            if len(names) > DEEPEST:
                raise TooMuchError(f"it has more than {DEEPEST} lists and mappings inside each other")
        elif isinstance(event, yaml.CollectionEndEvent):
            size, name = open_sizes.pop(), names.pop()
            open_sizes[-1] += size
            if name is not None:
                anchored[name] = size
        elif isinstance(event, yaml.AliasEvent):
            # an alias inside its own anchor is endless
            open_sizes[-1] += anchored.get(str(event.anchor), MOST_VALUES)
        elif isinstance(event, yaml.ScalarEvent):
            if not event.style and _LONG_NUMBER.fullmatch(event.value):
                raise TooMuchError(f"the number {event.value[:20]}... has more than {MOST_DIGITS} digits")
            open_sizes[-1] += 1
            if event.anchor is not None:
                anchored[event.anchor] = 1
        if sum(open_sizes) > MOST_VALUES:
            raise TooMuchError(f"with its aliases it has more than {MOST_VALUES:,} values")


def read_mapping(path: Path | Traversable, what: str, names: Collection[str]) -> Mapping[str, Any]:
    """Read a YAML file that holds a mapping.

    Args:
        path: the file.
        what: what the file is, such as "suite", for messages.
        names: the names that the mapping may have, for messages.

    Raises UserError: the file cannot be read or is not a mapping in YAML.
    """
    try:
        content = read_regular(path, MOST_BYTES) if isinstance(path, Path) else path.read_bytes()
        values = read_yaml(content.decode())
    except UnicodeDecodeError:
        raise UserError(f"the {what} {path} is not text in UTF-8.") from None
    except TooMuchError as error:
        raise UserError(f"the {what} {path} is too large: {error}.") from None
    except yaml.YAMLError as error:
        found = " ".join(str(error).split()).replace(' in "<unicode string>",', " at")
        raise UserError(f"the {what} {path} is not YAML: {found}.") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the {what} {path}: {getattr(error, 'strerror', None) or error}."
        ) from None
    if not isinstance(values, Mapping):
        raise UserError(f"the {what} {path} must be a mapping with {', '.join(names)}.")
    return values
