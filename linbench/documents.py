"""YAML files that users write."""

import re
from collections.abc import Collection, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from linbench.common.errors import UserError

_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A tenth of the time, where PyYAML was built with it."""


class _Loader(_FASTEST):  # type: ignore[misc]
    """YAML itself lets the last of two equal names stand. Scalars are those of YAML 1.2: `no` is text, and so are `1:30`, `010` and dates; 1e-5 is a number."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set[str]()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name.value} stands twice", name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(0|[1-9][0-9]*)", [*"-+0123456789"]),
    "float": (r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*"-+0123456789."]),
    "merge": (r"<<", ["<"]),
}
"""What unquoted text is something else than text, by the kind that it is, with the characters that it can begin with."""

for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern})$"), _first)


def read_mapping(path: Path | Traversable, what: str, names: Collection[str]) -> Mapping[str, Any]:
    """The file of a `what`, such as a suite, which holds some of these `names`. Raises UserError: it cannot be read, or is no mapping in YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the {what} {path}: {getattr(error, 'strerror', None) or error}.") from None
    try:
        values = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UserError(f"the {what} {path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, Mapping):
        raise UserError(f"the {what} {path} must be a mapping with {', '.join(names)}.")
    return values
