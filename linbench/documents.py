"""YAML files that users write."""

from collections.abc import Collection, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from linbench.common.errors import UserError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A tenth of the time, where PyYAML was built with it."""


def read_mapping(path: Path | Traversable, what: str, names: Collection[str]) -> Mapping[str, Any]:
    """The file of a `what`, such as a suite, which holds some of these `names`. Raises UserError: it cannot be read, or is no mapping in YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the {what} {path}: {getattr(error, 'strerror', None) or error}.") from None
    try:
        values = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise UserError(f"the {what} {path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, Mapping):
        raise UserError(f"the {what} {path} must be a mapping with {', '.join(names)}.")
    return values
